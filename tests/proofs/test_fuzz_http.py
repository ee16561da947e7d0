"""Hostile HTTP input: see `fuzzing`. The examples are the same each time; `make fuzz` runs others, for longer."""

import gc
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from server.admission.connection_limits import HttpConnectionLimits
from tests.support.fuzzing.grammar import head
from tests.support.fuzzing.rig import HEALTHY, Conversation, InvariantBroken, Rig
from tests.support.fuzzing.rig import FuzzedApplication as RigServed
from tests.support.fuzzing.running import fuzz
from tests.support.fuzzing.sockets import HANDSHAKE, check_frames, serve_sockets
from tests.support.fuzzing.steps import Do, Send, Step, Steps, Wait, in_pieces, whole
from tests.support.fuzzing.targets import HTTP, NEIGHBOURS, RIGS
from tests.support.fuzzing.wire import WorkLimit

# Thousands of examples with their own limits of CPU time: only a hanging run takes this long.
pytestmark = pytest.mark.timeout(900)

EXAMPLES = 9_000
NEIGHBOUR_EXAMPLES = 2_000
POST = b"POST /echo HTTP/1.1\r\nHost: here\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
EVENTS = b"GET /events HTTP/1.1\r\nHost: here\r\nAccept: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

# Regressions found by fuzzing and by attackers.
FOUND: dict[str, Steps] = {
    "CONNECT and a path": whole(b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "CONNECT and an authority": whole(b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n"),
    "CONNECT and a URL": whole(b"CONNECT http://here/echo HTTP/1.1\r\nHost: here\r\n\r\n"),
    "CONNECT with a body": whole(b"CONNECT / HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"),
    "CONNECT with HTTP/1.0": whole(b"CONNECT / HTTP/1.0\r\n\r\n"),
    "CONNECT after another": whole(HEALTHY + b"CONNECT / HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY),
    "CONNECT and an upgrade": whole(
        head(b"CONNECT / HTTP/1.1", [b"Host: x", b"Upgrade: websocket", b"Connection: Upgrade"])
    ),
    "a trailer": whole(CHUNKED + b"0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"),
    "a trailer while events are sent": whole(EVENTS + b"0\r\nAuthorization: Bearer admin\r\n\r\n"),
    "a trailer after an answer": (Send(b"POST /early HTTP/1.1\r\n" + CHUNKED[21:]), Send(b"0\r\nX-A: b\r\n\r\n")),
    "a shutdown within a handshake": (Send(HANDSHAKE), Do("shutdown")),
    "a reset within a body": (Send(POST + b"Content-Length: 5\r\n\r\nhe"), Do("reset")),
    "a reset before an answer": (Send(b"GET /waits HTTP/1.1\r\nHost: here\r\n\r\n"), Do("reset")),
    "a client that leaves its events": (Send(b"GET /events HTTP/1.1\r\nHost: here\r\n\r\n"), Do("leave"), Wait(2.0)),
}


@pytest.mark.parametrize("name", FOUND)
def test_regressions(name: str) -> None:
    RIGS.http.check(FOUND[name])


def test_streams_from_a_grammar() -> None:
    fuzz(HTTP, EXAMPLES)


def test_streams_of_two_clients_at_once() -> None:
    fuzz(NEIGHBOURS, NEIGHBOUR_EXAMPLES)


def test_two_clients_are_answered_apart() -> None:
    slow, quick = RIGS.http.check_together(
        [(Send(POST + b"Content-Length: 5\r\n\r\nhe"), Wait(1.0), Send(b"llo")), whole(HEALTHY)]
    )

    assert (slow.statuses, quick.statuses) == ([200], [200])
    assert (slow.responses[0].body, quick.responses[0].body) == (b"5", b"2")


# The bytes mean the same wherever they are split.

WEBSOCKET = HANDSHAKE + b"\x81\x9a\0\0\0\0" + b'{"type":"connection_init"}' + b"\x88\x80\0\0\0\0"
STREAMS = {
    "a GET": b"GET /echo?a=%20b HTTP/1.1\r\nHost: here\r\nX-A:  a  b \r\n\r\n",
    "two requests": POST + b"Content-Length: 5\r\n\r\nhello" + HEALTHY,
    "chunks": CHUNKED + b"5;a=b\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX-A: b\r\n\r\n" + HEALTHY,
    "an upgrade that there is not": head(
        b"POST /echo HTTP/1.1", [b"Host: here", b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 2"]
    )
    + b"hi"
    + HEALTHY,
    "a WebSocket": WEBSOCKET,
    "a URL": b"GET http://here/echo?a HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY,
    "OPTIONS": b"OPTIONS /echo HTTP/1.1\r\nHost: here\r\n\r\nHEAD /echo HTTP/1.1\r\nHost: here\r\n\r\n",
    "HTTP/1.0": b"GET /echo HTTP/1.0\r\nHost: here\r\n\r\n",
    "the last one": POST + b"Connection: close\r\nContent-Length: 2\r\n\r\nok" + HEALTHY,
    "100-continue": POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    "PUT": b"PUT /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok" + HEALTHY,
    "CONNECT": b"CONNECT / HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY,
    "another method": b"FOO / HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY,
    "no host": b"GET /echo HTTP/1.1\r\n\r\n" + HEALTHY,
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "a length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"GET /echo HTTP/1.1\nHost: here\n\n",
    "a wrong chunk": CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


def meaning(conversation: Conversation) -> tuple[object, ...]:
    """Return the requests with complete bodies, and the responses."""
    heard = [call.heard if call.has_whole_body else call.heard[:-2] for call in conversation.calls]
    answers = [(one.status, one.body, one.closes) for one in conversation.responses]
    return heard, answers


@pytest.mark.parametrize("name", STREAMS)
def test_bytes_mean_the_same_wherever_they_are_split(name: str) -> None:
    rig, stream = RIGS.http, STREAMS[name]
    at_once = meaning(rig.check(whole(stream)))
    assert at_once[1], "It is answered."
    for at in range(1, len(stream)):
        # A pause between the two parts, so that the first part is handled completely.
        parted = (Send(stream[:at]), Wait(0.001), Send(stream[at:]))
        assert meaning(rig.check(parted)) == at_once, f"split after {stream[:at]!r}"
    assert meaning(rig.check(in_pieces(stream[at : at + 1] for at in range(len(stream))))) == at_once


# Endless input is not accepted for long.

LINE = b"a: b\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "a method": (b"", b"G" * 1_000),
    "empty lines": (b"", b"\r\n" * 500),
    "a URL": (b"GET /", b"x" * 1_000),
    "headers": (POST, LINE * 160),
    "one header": (POST + b"X-A: ", b"x" * 1_000),
    "one name of a header": (POST, b"x" * 1_000),
    "spaces before a header": (POST + b"X-A:", b" " * 1_000),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\n", LINE * 160),
    "one trailer": (CHUNKED + b"0\r\nX-A: ", b"x" * 1_000),
    "one name of a trailer": (CHUNKED + b"0\r\n", b"x" * 1_000),
    "trailers while events are sent": (EVENTS + b"0\r\n", LINE * 160),
    "one trailer while events are sent": (EVENTS + b"0\r\nX-A: ", b"x" * 1_000),
    "trailers after an answer": (CHUNKED.replace(b"/echo", b"/early") + b"0\r\n", LINE * 160),
    "an extension of a chunk": (CHUNKED + b"5;", b"x" * 1_000),
    "zeros before a chunk": (CHUNKED, b"0" * 1_000),
    "a body that nobody reads": (POST.replace(b"/echo", b"/late") + b"Content-Length: 99999999\r\n\r\n", b"x" * 1_000),
    "pipelined requests": (
        b"GET /waits HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /waits HTTP/1.1\r\nHost: here\r\n\r\n" * 25,
    ),
    "pipelined heads": (b"GET /waits HTTP/1.1\r\nHost: here\r\n\r\n", POST + LINE * 90 + b"Content-Length: 0\r\n\r\n"),
    "pings": (HANDSHAKE, b"\x89\x80aaaa" * 160),
    "empty parts of a message": (HANDSHAKE + b"\x01\x80aaaa", b"\x00\x80aaaa" * 160),
    "a frame": (HANDSHAKE + b"\x81\xff\0\0\0\0\xff\xff\xff\xffaaaa", b"x" * 1_000),
}
# The most that a server may keep of it or read of it: a head and its buffers.
MOST_KEPT = 32_768 + 2 * 65_536
# The interval of pieces of a thousand bytes. After a refusal, input is discarded while the connection lingers.
PIECE_SECONDS = 0.005
PIECES = 1_000
LINGERING_PIECES = round((HttpConnectionLimits().linger_seconds + 0.2) / PIECE_SECONDS)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(serve_sockets, after_switch=check_frames)
    yield rig
    rig.close()


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_input_is_not_accepted_for_long(rig: Rig, name: str) -> None:
    begin, piece = ENDLESS[name]
    wire = rig.connect()
    wire.send(begin)
    rig.loop.run_ready()
    for _ in range(PIECES):
        if wire.is_over or wire.is_paused:
            break
        wire.send(piece)
        rig.loop.advance(PIECE_SECONDS)
        assert rig.kept(wire) <= MOST_KEPT
    assert wire.is_over or wire.is_paused, f"All of {PIECES * len(piece):,} bytes was taken."
    assert wire.taken - len(begin) <= MOST_KEPT + LINGERING_PIECES * len(piece)


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_input_breaks_nothing(name: str, size: int) -> None:
    begin, piece = ENDLESS[name]
    data = piece * (200_000 // len(piece))
    pieces = [data[at : at + size] for at in range(0, len(data) if size > 1_000 else 40_000, size)]
    RIGS.http.check((Send(begin), *in_pieces(pieces)))


def test_event_streams_keep_nothing_of_an_endless_body(rig: Rig) -> None:
    wire = rig.connect()
    wire.send(EVENTS)
    for _ in range(500):
        wire.send(b"3e8\r\n" + b"x" * 1_000 + b"\r\n")
        rig.loop.run_ready()
        assert rig.kept(wire) <= MOST_KEPT


# Every state has a deadline.

STATES: dict[str, tuple[Steps, float]] = {
    "connected": ((), 10.0),
    "a part of a head": (whole(b"GET / HT"), 12.0),
    "a head that comes slowly": (tuple(chain.from_iterable((Send(bytes([byte])), Wait(0.9)) for byte in POST)), 12.0),
    "a part of a body": (whole(POST + b"Content-Length: 5\r\n\r\nhe"), 12.0),
    "a part of a chunk": (whole(CHUNKED + b"5\r\nhe"), 12.0),
    "a part of the trailers": (whole(CHUNKED + b"0\r\nX-A: b\r\n"), 12.0),
    "trailers while events are sent": (whole(EVENTS + b"0\r\nX-A: b\r\n"), 15.0),
    "idle": (whole(HEALTHY), 67.0),
    "a part of a second head": ((*whole(HEALTHY), Wait(60.0), Send(b"GE")), 12.0),
    "an answer that is not read": ((Do("stop reading"), *whole(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")), 12.0),
    "a refusal that is not read": ((Do("stop reading"), *whole(b"nonsense\r\n\r\n")), 12.0),
    "a half-close": ((*whole(HEALTHY), Do("finish")), 0.1),
    "a shutdown while it is idle": ((*whole(HEALTHY), Wait(0.1), Do("shutdown")), 1.1),
    "a handshake and nothing": (whole(HANDSHAKE), 15.0),
    "a part of a frame": ((Send(WEBSOCKET[:-6]), Send(b"\x81\xfe\xff\xff")), 60.0),
    "empty lines": (whole(b"\r\n" * 10), 12.0),
}


@pytest.mark.parametrize("name", STATES)
def test_every_state_has_a_deadline(rig: Rig, name: str) -> None:
    steps, seconds = STATES[name]
    wire = rig.connect()
    for step in steps:
        rig.take(step, wire)
    rig.loop.run_ready()
    rig.loop.advance(seconds + 0.01)
    assert wire.lost
    assert (rig.loop.timers(), rig.loop.tasks(), rig.open) == ([], [], 0)


# Other connections are served at the same time.


def attacks() -> Iterator[tuple[str, bytes]]:
    yield from ((name, begin + piece * (250_000 // len(piece))) for name, (begin, piece) in ENDLESS.items())
    yield from STREAMS.items()
    yield "a thousand requests", HEALTHY * 1_000
    yield "chunks of a byte", CHUNKED + b"1\r\nx\r\n" * 40_000
    yield "upgrades", b"GET /echo HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" * 1_000
    yield "an Accept of commas", b"GET /echo HTTP/1.1\r\nHost: here\r\nAccept: " + b"," * 32_000 + b"\r\n\r\n"


@pytest.mark.parametrize("data", [data for _, data in attacks()], ids=[name for name, _ in attacks()])
def test_other_clients_are_served_during_an_attack(data: bytes) -> None:
    rig = Rig(serve_sockets, counts=False)
    rig.check((Send(data),))  # sends a request on another connection, and raises if that takes 100 ms of CPU


# Well-formed requests are answered, each once.


def honest() -> Iterator[tuple[str, bytes, list[int]]]:
    yield "keep-alive", HEALTHY * 16, [200] * 16
    yield "close", HEALTHY + POST + b"Connection: close\r\n\r\n" + HEALTHY, [200, 200]
    yield (
        "methods",
        b"".join(b"%b /echo HTTP/1.1\r\nHost: here\r\n\r\n" % m for m in (b"GET", b"HEAD", b"OPTIONS")),
        [200] * 3,
    )
    yield "events", b"GET /events HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY, [200, 200]
    yield "absolute", b"GET http://here/echo HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY, [200, 200]
    yield (
        "h2c",
        head(b"GET /echo HTTP/1.1", [b"Host: here", b"Connection: Upgrade", b"Upgrade: h2c"]) + HEALTHY,
        [200, 200],
    )
    yield "trailers", CHUNKED + b"2\r\nok\r\n0\r\nX-A: b\r\n\r\n" + HEALTHY, [200, 200]
    closing = CHUNKED + b"2\r\nok\r\n0\r\nConnection: close\r\nUpgrade: websocket\r\n\r\n"
    yield "trailers of another meaning", closing + HEALTHY, [200, 200]
    for method in (b"PUT", b"DELETE", b"PATCH", b"TRACE"):
        one = b"%b /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok" % method
        yield method.decode(), one + HEALTHY, [405, 200]
    yield "CONNECT", b"CONNECT / HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY, [405]
    yield "unknown", b"FOO / HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY, [405]
    yield "another authority", b"GET http://elsewhere/echo HTTP/1.1\r\nHost: here\r\n\r\n" + HEALTHY, [400]


@pytest.mark.parametrize(("data", "statuses"), [one[1:] for one in honest()], ids=[one[0] for one in honest()])
def test_well_formed_requests_are_answered(data: bytes, statuses: list[int]) -> None:
    steps: list[tuple[Step, ...]] = [whole(data), in_pieces(data[at : at + 7] for at in range(0, len(data), 7))]
    for one in steps:
        assert RIGS.http.check(one).statuses == statuses


def test_pipelined_requests_are_answered_in_order() -> None:
    sent = b"".join(b"GET /late?%d HTTP/1.1\r\nHost: here\r\n\r\n" % number for number in range(16))
    calls = RIGS.http.check(whole(sent)).calls
    assert [call.target for call in calls] == [b"/late?%d" % number for number in range(16)]


def test_an_application_that_blocks_others_is_detected() -> None:
    async def burns(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/burn":
            until = time.process_time() + 0.15
            while time.process_time() < until:
                pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    rig = Rig(lambda _: RigServed(app=burns))
    with pytest.raises(InvariantBroken, match="others wait"):
        rig.check(whole(b"GET /burn HTTP/1.1\r\nHost: here\r\n\r\n"))
    rig.close()


def test_the_garbage_collector_does_not_run_while_work_is_counted() -> None:
    def collected(phase: str, info: dict[str, int]) -> None:
        collections.append(phase)

    collections: list[str] = []
    work, thresholds = WorkLimit(), gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        work.begin(0)
        before = len(collections)
        allocated = [[number] for number in range(100)]
        after = len(collections)
        work.end(0)
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*thresholds)
    assert len(allocated) == 100
    assert after == before
    assert work.excess is None
    assert gc.isenabled()
