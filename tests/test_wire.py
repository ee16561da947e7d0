"""The wire client and servers that misbehave below HTTP: every answer goes to who asked for it, or to nobody."""

import asyncio
import os
import random
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials
from fault_proxy import until
from wire_server import Script, Server, Talk, answer, certificate, chunked, echo, on_both_loops, serving

from datastore.backoff import Backoff
from datastore.client import Client, Endpoint
from datastore.errors import Timeout, Unavailable
from datastore.metering import Meter
from datastore.signing import CredentialSource
from datastore.wire import Limits, connecting
from datastore.wire.connection import Connection

ONCE = Backoff(tries=1)
QUICK = Backoff(first=0.001, most=0.004, tries=4)
# Whoever has to wait for this, waits in vain.
NEVER = Backoff(first=10**6, most=10**6)


def client_at(url: str, *, backoff: Backoff = QUICK, limits: Limits = Limits()) -> Client:  # noqa: B008 - frozen
    credentials = CredentialSource(Credentials("local", "local"))
    return Client(Endpoint(lambda: url, lambda: url, "local"), credentials, backoff=backoff, limits=limits)


@asynccontextmanager
async def talking(
    script: Script,
    *,
    backoff: Backoff = QUICK,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> AsyncIterator[tuple[Client, Server]]:
    async with serving(script) as server, client_at(server.url, backoff=backoff, limits=limits) as client:
        yield client, server


async def ask(client: Client, number: int = 0, operation: str = "GetItem", **options: Any) -> Any:
    return (await client.call(operation, {"TableName": "t", "number": number}, **options))["number"]


# --- Answers in all their forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
@on_both_loops
async def test_an_answer_may_come_in_chunks_and_these_in_pieces(pieces: int) -> None:
    async def script(talk: Talk) -> None:
        while True:
            said = chunked(await talk.asked(), 3)
            await talk.say(*[said[start : start + pieces] for start in range(0, len(said), pieces)])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await ask(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 1


@on_both_loops
async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def script(talk: Talk) -> None:
        content = b'{"number":%d}' % (await talk.asked())["number"]
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\n", content[:5], content[5:])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await ask(client, number) for number in range(2)] == [0, 1]
        assert server.connections == 2


@pytest.mark.parametrize(("header", "connections"), [("Connection: keep-alive", 1), ("Server: old", 3)])
@on_both_loops
async def test_a_server_of_http_1_0_is_understood(header: str, connections: int) -> None:
    async def script(talk: Talk) -> None:
        while True:
            await talk.say(answer(await talk.asked(), header, version="1.0"))

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await ask(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == connections


@on_both_loops
async def test_what_is_said_before_the_answer_is_not_the_answer() -> None:
    async def script(talk: Talk) -> None:
        while True:
            asked = await talk.asked()
            await talk.say(b"HTTP/1.1 100 Continue\r\nx-amz-crc32: 1\r\n\r\n", pause=0.01)
            await talk.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(asked))

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await ask(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 1


@on_both_loops
async def test_an_answer_that_ends_its_connection_is_the_last_one_on_it() -> None:
    async def script(talk: Talk) -> None:
        status = "503 Service Unavailable" if talk.number == 0 else "200 OK"
        await talk.say(answer(await talk.asked(), "Connection: close", status=status))
        await talk.asked()
        raise AssertionError("It was asked again.")

    async with talking(script) as (client, server):
        assert [await ask(client, number) for number in range(2)] == [0, 1]
        assert server.connections == 3


# --- Answers that are none --------------------------------------------------------------------------------------------


async def _cut(talk: Talk) -> None:
    await talk.say(answer(await talk.asked())[:-3])


async def _cut_head(talk: Talk) -> None:
    await talk.say(answer(await talk.asked())[:20])


async def _cut_chunks(talk: Talk) -> None:
    await talk.say(chunked(await talk.asked(), 3)[:-20])


async def _reset(talk: Talk) -> None:
    await talk.say(answer(await talk.asked())[:-3], pause=0.02)
    talk.reset()


async def _hang_after_head(talk: Talk) -> None:
    await talk.say(answer(await talk.asked())[:-20])
    await talk.asked()


async def _nonsense(talk: Talk) -> None:
    await talk.asked()
    await talk.say(b"SSH-2.0-OpenSSH_9.6\r\n")
    await talk.asked()


async def _other_protocol(talk: Talk) -> None:
    await talk.asked()
    await talk.say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    await talk.asked()


async def _two_lengths(talk: Talk) -> None:
    await talk.say(answer(await talk.asked(), "Content-Length: 2"))
    await talk.asked()


async def _length_and_chunks(talk: Talk) -> None:
    await talk.say(answer(await talk.asked(), "Transfer-Encoding: chunked"))
    await talk.asked()


async def _large(talk: Talk) -> None:
    await talk.asked()
    await talk.say(answer("x" * 900_000))
    await talk.asked()


async def _large_head(talk: Talk) -> None:
    await talk.asked()
    await talk.say(answer({}, "x-more: " + "x" * 500_000))
    await talk.asked()


SPOILT = {
    "cut": _cut,
    "cut in its head": _cut_head,
    "cut between chunks": _cut_chunks,
    "reset": _reset,
    "hanging": _hang_after_head,
    "nonsense": _nonsense,
    "another protocol": _other_protocol,
    "two lengths": _two_lengths,
    "a length and chunks": _length_and_chunks,
    "too large": _large,
    "too large a head": _large_head,
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT.keys())
@on_both_loops
async def test_half_an_answer_is_none_and_its_connection_is_closed(spoilt: Script) -> None:
    """Asked again, it is answered; and of a write nobody knows what came of the first try."""
    meter = Meter()

    async def script(talk: Talk) -> None:
        await (echo if talk.number else spoilt)(talk)

    limits = Limits(silence=0.3 if spoilt is _hang_after_head else 5, answer_bytes=800_000)
    async with talking(script, limits=limits) as (client, server):
        assert [await ask(client, number, "PutItem", meter=meter) for number in range(2)] == [0, 1]
        await until(lambda: server.open == 1)
        assert server.connections == 2
    assert [(call.attempts, call.unsure) for call in meter.calls] == [(2, True), (1, False)]


@on_both_loops
async def test_bytes_that_drip_are_waited_for_until_the_deadline() -> None:
    async def script(talk: Talk) -> None:
        await talk.asked()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b" "] * 500, pause=0.01)

    # A machine may stand still for longer than a few pauses, and all that drips lasts for seconds.
    async with talking(script, limits=Limits(silence=0.5)) as (client, server):
        began = time.monotonic()
        with pytest.raises(Timeout):
            await ask(client, timeout=0.8)
        assert time.monotonic() - began > 0.75
        await until(lambda: server.open == 0)
        assert server.connections == 1


# --- Connections that are kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("goodbye", ["close", "half", "reset", "more", "a bit more"])
@on_both_loops
async def test_a_connection_that_was_closed_or_spoke_unasked_is_not_used_again(goodbye: str) -> None:
    said = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.say(answer(await talk.asked()))
        if talk.number == 0:
            await asyncio.sleep(0.02)
            if goodbye == "close":
                talk.writer.close()
            elif goodbye == "half":
                talk.writer.write_eof()
            elif goodbye == "reset":
                talk.reset()
            else:
                await talk.say(answer({"number": -1})[: 3 if goodbye == "a bit more" else None])
            await asyncio.sleep(0.02)
            said.set()
        await talk.asked()

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, server):
        assert await ask(client, 1, "PutItem", meter=meter) == 1
        await said.wait()
        assert await ask(client, 2, "PutItem", meter=meter) == 2
        assert server.connections == 2
    assert [(call.attempts, call.unsure) for call in meter.calls] == [(1, False)] * 2


@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
@on_both_loops
async def test_a_connection_that_is_closed_but_not_yet_lost_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Who asks in the turn of the loop that heard of its end: nothing is sent on it, and so no write is in doubt."""
    ended, close = asyncio.Event(), Connection.close

    def told(connection: Connection) -> None:
        ended.set()  # and so whoever waits for it runs before `connection_lost`
        close(connection)

    async def script(talk: Talk) -> None:
        await talk.say(answer(await talk.asked()))
        if talk.number:
            await talk.asked()

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, server):
        await ask(client)
        monkeypatch.setattr(Connection, "close", told)
        await ended.wait()
        assert await ask(client, 1, operation, meter=meter) == 1
        assert server.connections == 2
        monkeypatch.undo()
    assert [(call.attempts, call.unsure) for call in meter.calls] == [(1, False)]


@pytest.mark.parametrize("length", [None, 3])
@on_both_loops
async def test_a_second_answer_in_the_same_breath_is_nobodys(length: int | None) -> None:
    async def script(talk: Talk) -> None:
        while True:
            await talk.say(answer(await talk.asked()) + answer({"number": -1})[:length])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await ask(client, number) for number in range(4)] == [0, 1, 2, 3]
        assert server.connections == 4


async def _one_answer(talk: Talk) -> None:
    """The next request is read, and its connection closed instead of an answer."""
    await talk.say(answer(await talk.asked()))
    await talk.asked()


@pytest.mark.parametrize("operation", ["GetItem", "BatchGetItem", "Query", "Scan", "GetRecords", "TransactGetItems"])
@on_both_loops
async def test_a_read_on_a_connection_that_is_just_being_closed_is_made_again_at_once(operation: str) -> None:
    meter = Meter()
    async with talking(_one_answer, backoff=NEVER) as (client, server):
        assert [await ask(client, number, operation, meter=meter) for number in range(3)] == [0, 1, 2]
        assert server.connections == 3
    assert [call.attempts for call in meter.calls] == [1, 2, 2]


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem", "TransactWriteItems", "UpdateTable"])
@on_both_loops
async def test_a_write_on_a_connection_that_is_just_being_closed_may_have_been_applied(operation: str) -> None:
    meter = Meter()
    async with talking(_one_answer, backoff=ONCE) as (client, server):
        await ask(client, 1, operation)
        with pytest.raises(Unavailable) as lost:
            await ask(client, 2, operation, meter=meter)
        assert server.connections == 1
    assert lost.value.extensions == {"code": "UNAVAILABLE", "retryable": False, "mayHaveBeenApplied": True}
    assert [(call.attempts, call.unsure, call.wrote) for call in meter.calls] == [(1, True, True)]


@on_both_loops
async def test_a_read_that_is_closed_on_without_an_answer_is_tried_again_at_once_only_once() -> None:
    async def script(talk: Talk) -> None:
        await (_one_answer(talk) if talk.number == 0 else talk.asked())

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, _):
        await ask(client)
        with pytest.raises(Unavailable):
            await ask(client, meter=meter)
    assert [call.attempts for call in meter.calls] == [2]


@on_both_loops
async def test_connections_that_idle_for_too_long_are_closed() -> None:
    async with talking(echo, limits=Limits(idle=0.1)) as (client, server):
        await asyncio.gather(*[ask(client) for _ in range(5)])
        for _ in range(8):
            await ask(client)
            await asyncio.sleep(0.02)
        assert server.open == 1
        await until(lambda: server.open == 0)
        assert await ask(client, 7) == 7


@on_both_loops
async def test_a_server_that_closes_connections_under_load_disturbs_nobody() -> None:
    chance = random.Random(7)

    async def script(talk: Talk) -> None:
        for _ in range(chance.randrange(1, 6)):
            await talk.say(answer(await talk.asked()), pause=chance.choice([0, 0, 0.001]))

    async with talking(script, limits=Limits(connections=8), backoff=Backoff(0.001, 0.002, 30)) as (client, server):

        async def one(start: int) -> list[int]:
            return [await ask(client, start + number) for number in range(30)]

        starts = range(0, 1600, 100)
        answers = await asyncio.gather(*map(one, starts))

        assert answers == [list(range(start, start + 30)) for start in starts]
        assert server.most <= 9  # one may be closed at this end and not yet at the other


# --- Waiting ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_who_waits_longest_for_a_connection_is_served_first() -> None:
    async with talking(echo, limits=Limits(connections=1)) as (client, server):
        order: list[int] = []

        async def one(number: int) -> None:
            order.append(await ask(client, number))

        waiting = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        waiting[3].cancel()
        await asyncio.wait(waiting)

        assert order == [0, 1, 2, 4, 5]
        assert server.most == 1


@on_both_loops
async def test_a_deadline_holds_in_line_and_costs_no_place() -> None:
    async def script(talk: Talk) -> None:
        while True:
            asked = await talk.asked()
            await asyncio.sleep(0.3 if asked["number"] == 0 else 0)
            await talk.say(answer(asked))

    meter = Meter()
    async with talking(script, limits=Limits(connections=1)) as (client, server):
        first = asyncio.create_task(ask(client, 0))
        await asyncio.sleep(0.02)
        with pytest.raises(Timeout):
            await ask(client, 1, timeout=0.1, meter=meter)
        assert [await first, await ask(client, 2)] == [0, 2]
        assert server.connections == 1
    assert [(call.abandoned, call.unsure) for call in meter.calls] == [(True, True)]


@on_both_loops
async def test_connections_to_two_places_share_what_there_is() -> None:
    async with serving(echo) as tables, serving(echo) as streams:
        credentials = CredentialSource(Credentials("local", "local"))
        endpoint = Endpoint(lambda: tables.url, lambda: streams.url, "local")
        async with Client(endpoint, credentials, limits=Limits(connections=2)) as client:
            operations = ["GetItem", "GetRecords"] * 20
            calls = [ask(client, number, operation) for number, operation in enumerate(operations)]
            assert await asyncio.gather(*calls) == list(range(40))
            for number in range(4):
                await asyncio.gather(*[ask(client, number, operations[number]) for _ in range(2)])
                assert tables.open + streams.open <= 3
        assert tables.most <= 2
        assert streams.most <= 2


@on_both_loops
async def test_a_store_that_moves_is_found_at_the_next_call() -> None:
    async with serving(echo) as first, serving(echo) as second:
        urls = [first.url]
        credentials = CredentialSource(Credentials("local", "local"))
        async with Client(Endpoint(lambda: urls[0], lambda: urls[0], "local"), credentials) as client:
            await ask(client)
            urls[0] = second.url
            assert await ask(client, 1) == 1
        assert (first.connections, second.connections) == (1, 1)


# --- Requests ---------------------------------------------------------------------------------------------------------

LARGE = {"TableName": "t", "number": 1, "text": "x" * 2_000_000}
# More than the buffers of both ends' systems hold.
HUGE = LARGE | {"text": "x" * 12_000_000}


@on_both_loops
async def test_a_large_request_goes_out_as_fast_as_it_is_read() -> None:
    async def script(talk: Talk) -> None:
        await asyncio.sleep(0.05)
        await echo(talk)

    async with talking(script, backoff=ONCE) as (client, server):
        answers = await asyncio.gather(*[client.call("GetItem", LARGE) for _ in range(2)])
        assert answers == [LARGE, LARGE]
        assert await ask(client, 2) == 2
        assert server.connections == 2


@on_both_loops
async def test_a_large_request_may_be_answered_before_it_is_read() -> None:
    async def script(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.say(answer({"number": talk.number}))
        await asyncio.sleep(5)

    async with talking(script, backoff=ONCE) as (client, server):
        assert await client.call("GetItem", HUGE) == {"number": 0}
        assert await ask(client) == 1
        assert server.connections == 2


@pytest.mark.parametrize("reads", [0, 3_000_000])
@on_both_loops
async def test_a_large_request_that_is_not_read_is_given_up(reads: int) -> None:
    async def script(talk: Talk) -> None:
        await talk.reader.readexactly(reads)
        await asyncio.sleep(10)

    async with talking(script, backoff=ONCE, limits=Limits(silence=0.2)) as (client, server):
        with pytest.raises(Timeout):
            await client.call("PutItem", HUGE)
        call = asyncio.create_task(client.call("PutItem", HUGE))
        await until(lambda: server.connections == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# --- Connecting -------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_what_never_left_was_not_applied() -> None:
    async with serving(echo) as server:
        url = server.url
    meter = Meter()
    async with client_at(url) as client:
        with pytest.raises(Unavailable) as refused:
            await ask(client, 1, "PutItem", meter=meter)

    assert refused.value.extensions == {"code": "UNAVAILABLE", "retryable": True}
    assert [(call.attempts, call.unsure, call.wrote) for call in meter.calls] == [(QUICK.tries, False, False)]


@on_both_loops
async def test_a_server_that_does_not_finish_connecting_is_given_up_after_a_second_or_so() -> None:
    async def silent(talk: Talk) -> None:
        await talk.reader.read(10**6)
        await asyncio.sleep(10)

    meter = Meter()
    async with serving(silent) as server:
        url = server.url.replace("http", "https")
        async with client_at(url, backoff=ONCE, limits=Limits(connections=1, connect=0.2)) as client:
            with pytest.raises(Timeout):
                await ask(client, 1, timeout=0.05)
            call = asyncio.create_task(ask(client, 1))
            await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            for _ in range(2):
                with pytest.raises(Timeout) as late:
                    await ask(client, 1, "PutItem", meter=meter)
    assert late.value.extensions == {"code": "TIMEOUT", "retryable": True}
    assert [call.unsure for call in meter.calls] == [False, False]


@on_both_loops
async def test_a_name_is_looked_up_and_each_of_its_addresses_tried() -> None:
    async with serving(echo, host="localhost") as server, client_at(server.url, backoff=ONCE) as client:
        assert await ask(client, 1) == 1
    async with client_at("http://no..name", backoff=ONCE) as client:
        with pytest.raises(Unavailable):
            await ask(client)


@pytest.fixture
def no_trust_yet() -> Any:
    connecting.trust.cache_clear()
    yield
    connecting.trust.cache_clear()


@pytest.mark.parametrize("place", ["a file", "a folder", "a store of its own", "nowhere", "a folder without any"])
def test_the_systems_roots_are_trusted_and_mozillas_where_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, place: str
) -> None:
    public, _ = certificate(tmp_path, "localhost")
    file, folder = tmp_path / "roots.pem", tmp_path / "folder"
    folder.mkdir()
    (folder / "README").touch()
    if place in ("a file", "a folder"):
        shutil.copy(public, file if place == "a file" else folder / "0a1b2c3d.0")
    if place == "a store of its own":  # as on Windows
        monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda own, _: own.load_verify_locations(public))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", "nowhere" if place == "nowhere" else f"nowhere{os.pathsep}{folder}")

    context = connecting.trust()

    # Those of a folder are looked for when they are needed.
    roots = {"a file": [1], "a folder": [0], "a store of its own": [1]}.get(place, range(100, 1000))
    assert context.cert_store_stats()["x509"] in roots
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@on_both_loops
async def test_tls_is_spoken_to_whom_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None
) -> None:
    public, context = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    names: list[str | None] = []
    context.sni_callback = lambda _object, name, _context: names.append(name)

    async with serving(echo, context, "localhost") as server, client_at(server.url, backoff=ONCE) as client:
        assert await asyncio.gather(*[ask(client, number) for number in range(8)]) == list(range(8))
        assert await client.call("PutItem", LARGE) == LARGE
        assert (set(names), server.connections) == ({"localhost"}, 8)


@on_both_loops
async def test_a_read_over_tls_is_made_again_when_its_connection_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None
) -> None:
    public, context = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))

    async with serving(_one_answer, context, "localhost") as server:
        async with client_at(server.url, backoff=NEVER) as client:
            assert [await ask(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 3


@pytest.mark.parametrize("fault", ["another name", "not trusted"])
@on_both_loops
async def test_nothing_is_sent_to_a_server_that_cannot_prove_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, fault: str
) -> None:
    public, context = certificate(tmp_path, "localhost" if fault == "not trusted" else "dynamodb.example")
    if fault == "another name":
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
    heard: list[Any] = []
    meter = Meter()

    async def script(talk: Talk) -> None:
        heard.append(await talk.asked())

    async with serving(script, context, "localhost") as server, client_at(server.url, backoff=ONCE) as client:
        with pytest.raises(Unavailable) as refused:
            await ask(client, 1, "PutItem", meter=meter)

    assert isinstance(refused.value.__cause__, Exception)
    assert "retryable" in refused.value.extensions
    assert [call.unsure for call in meter.calls] == [False]
    assert heard == []


# --- Leaving ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_closing_the_client_ends_every_call_and_connection() -> None:
    async def silent(talk: Talk) -> None:
        await talk.asked()
        await talk.asked()

    async with serving(silent) as server:
        async with client_at(server.url, backoff=Backoff(5, 5), limits=Limits(connections=2)) as client:
            calls = [asyncio.create_task(ask(client, number)) for number in range(5)]
            await until(lambda: server.open == 2)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in ended] == [Unavailable] * 5
        await until(lambda: server.open == 0)
        with pytest.raises(Unavailable):
            await ask(client)


class Stepped:
    """What drives a coroutine without a task: it is stepped on when what it waits for is done."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.waits: asyncio.Future[Any] | None = None
        self.steps = 0
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.step()

    def step(self, *_: object, problem: BaseException | None = None) -> None:
        try:
            waits = self._work.send(None) if problem is None else self._work.throw(problem)
        except StopIteration as done:
            self.ended.set_result(done.value)
        except BaseException as failed:
            self.ended.set_exception(failed)
        else:
            self.waits = waits
            self.steps += 1
            waits._asyncio_future_blocking = False
            waits.add_done_callback(self.step)

    def leave(self) -> None:
        assert self.waits is not None
        self.waits.remove_done_callback(self.step)
        self.step(problem=asyncio.CancelledError())

    def close(self) -> None:
        if self.waits is not None:
            self.waits.remove_done_callback(self.step)
        self._work.close()


@on_both_loops
async def test_a_call_needs_no_task_to_be_driven_timed_or_left() -> None:
    async def script(talk: Talk) -> None:
        while True:
            asked = await talk.asked()
            if asked["number"] < 0:
                await asyncio.sleep(10)
            await talk.say(answer(asked))

    async def driven(client: Client, number: int, **options: Any) -> Any:
        stepped: list[Stepped] = []
        asyncio.get_running_loop().call_soon(lambda: stepped.append(Stepped(ask(client, number, **options))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return stepped[0]

    async with talking(script, backoff=ONCE, limits=Limits(connections=1)) as (client, server):
        calls = [await driven(client, number) for number in range(3)]
        assert [await call.ended for call in calls] == [0, 1, 2]
        late, waiting = await driven(client, -1, timeout=0.05), await driven(client, 5)
        with pytest.raises(Timeout):
            await late.ended
        assert await waiting.ended == 5
        left, waiting = await driven(client, -1), await driven(client, 6)
        left.leave()
        with pytest.raises(asyncio.CancelledError):
            await left.ended
        assert await waiting.ended == 6
        assert server.connections == 3


@pytest.mark.parametrize("secure", [False, True])
@on_both_loops
async def test_who_leaves_at_any_of_the_points_where_a_call_waits_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, secure: bool
) -> None:
    """For credentials, in line, for a connection, while sending, for the answer, between two tries: one further each
    time, until the call is answered.
    """
    public, context = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    large = {"TableName": "t", "number": -1, "text": "x" * 1_000_000}

    async def script(talk: Talk) -> None:
        while True:
            asked = await talk.asked()
            busy = "text" in asked and talk.number % 2 == 0
            await talk.say(answer(asked, status="503 Busy" if busy else "200 OK"), pause=0.001)

    async def leave_at(client: Client, steps: int) -> bool:
        """Whether it was left; the call has been answered else."""
        left = Stepped(client.call("PutItem", large))
        while left.steps < steps and not left.ended.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        if not left.ended.done():
            left.leave()
            with pytest.raises(asyncio.CancelledError):
                await left.ended
            return True
        assert await left.ended == large
        return False

    async with serving(script, context if secure else None, "localhost") as server:
        for steps in range(1, 99):
            async with client_at(server.url, limits=Limits(connections=2), backoff=Backoff(0.001, 0.001, 99)) as client:
                others = [asyncio.create_task(ask(client, number)) for number in range(4)]
                await asyncio.sleep(0)
                gone = await leave_at(client, steps)
                assert await asyncio.gather(*others) == [0, 1, 2, 3]
                assert await asyncio.gather(*[ask(client, number) for number in range(4)]) == [0, 1, 2, 3]
            if not gone:
                break
        assert steps > 3


@pytest.mark.parametrize("steps", [1, 2, 3])
@on_both_loops
async def test_a_call_that_is_closed_gives_back_its_place(steps: int) -> None:
    """Also in the turn of the event loop in which it began to connect."""
    async with talking(echo, limits=Limits(connections=1)) as (client, _):
        call = Stepped(ask(client, 1))
        while call.steps < steps and not call.ended.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        call.close()
        assert await ask(client, 2, timeout=0.5) == 2


@pytest.mark.parametrize("seed", range(6))
@on_both_loops
async def test_whatever_happens_nobody_gets_the_answer_of_another(seed: int) -> None:
    """Servers dawdle, cut, drop and say too much, callers leave at any moment: own answers come, or none."""
    chance = random.Random(seed)

    async def script(talk: Talk) -> None:
        while True:
            asked = await talk.asked()
            whole = chunked(asked, 5) if chance.random() < 0.3 else answer(asked)
            cut = chance.randrange(len(whole))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
            match chance.randrange(12):
                case 0:
                    return None
                case 1:
                    await talk.say(whole[:cut])
                    return talk.reset()
                case 2:
                    await talk.say(whole + answer({"number": -1}))
                case 3:
                    await talk.say(whole)
                    return None
                case 4 | 5:
                    await talk.say(whole[:cut], whole[cut:], pause=0.002)
                case _:
                    await talk.say(whole)

    async with talking(script, limits=Limits(connections=5), backoff=Backoff(0.001, 0.004, 3)) as (client, server):
        told: list[tuple[int, int]] = []

        async def one(number: int) -> None:
            operation, timeout = chance.choice(["GetItem", "PutItem"]), chance.choice([0.003, 0.01, 5, 5])
            with suppress(Timeout, Unavailable):
                told.append((number, await ask(client, number, operation, timeout=timeout)))

        async def leaving(task: asyncio.Task[None]) -> None:
            if chance.random() < 0.4:
                for _ in range(chance.randrange(1, 12)):
                    await asyncio.sleep(0)
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.random() * 0.02)
                task.cancel()
            await asyncio.wait([task])

        for start in range(0, 240, 40):
            tasks = [asyncio.create_task(one(start + number)) for number in range(40)]
            await asyncio.gather(*map(leaving, tasks))

        assert all(number == answered for number, answered in told)
        assert len(told) > 60
        # No place is lost: as many as there may be can still be asked at once.
        client._backoff = Backoff(0.001, 0.004, 60)
        assert await asyncio.gather(*[ask(client, number) for number in range(20)]) == list(range(20))
        assert server.most <= 5 + 5  # some closed at this end, and not yet at the other
