"""The client and servers that break HTTP: each response goes to the caller that requested it, or to none."""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Timeout, Unavailable
from datastore.session.metering import Meter
from tests.support.until import until
from tests.support.wire_server import Script, ServerTalk, chunked_answer, echo, on_both_loops, whole_answer
from tests.support.wire_talks import LARGE, ONCE, PATIENT, call_numbered, change_limits, count_connections, talking

pytestmark = pytest.mark.breaks_rules("the server is no DynamoDB, and reads no request")

# --- Valid responses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
@on_both_loops
async def test_a_response_may_arrive_in_chunks_and_these_in_pieces(pieces: int) -> None:
    async def script(talk: ServerTalk) -> None:
        while True:
            said = chunked_answer(await talk.asked(), 3)
            await talk.say(*[said[start : start + pieces] for start in range(0, len(said), pieces)])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await call_numbered(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 1


@on_both_loops
async def test_a_response_without_a_length_ends_with_its_connection() -> None:
    async def script(talk: ServerTalk) -> None:
        content = b'{"number":%d}' % (await talk.asked())["number"]
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\n", content[:5], content[5:])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await call_numbered(client, number) for number in range(2)] == [0, 1]
        assert server.connections == 2


@pytest.mark.parametrize(("header", "connections"), [("Connection: keep-alive", 1), ("Server: old", 3)])
@on_both_loops
async def test_a_server_of_http_1_0_is_understood(header: str, connections: int) -> None:
    async def script(talk: ServerTalk) -> None:
        while True:
            await talk.say(whole_answer(await talk.asked(), header, version="1.0"))

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await call_numbered(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == connections


@on_both_loops
async def test_informational_responses_are_skipped() -> None:
    async def script(talk: ServerTalk) -> None:
        while True:
            asked = await talk.asked()
            await talk.say(b"HTTP/1.1 100 Continue\r\nx-amz-crc32: 1\r\n\r\n", pause=0.01)
            await talk.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" + whole_answer(asked))

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await call_numbered(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 1


@on_both_loops
async def test_a_connection_is_not_used_after_connection_close() -> None:
    async def script(talk: ServerTalk) -> None:
        status = "503 Service Unavailable" if talk.number == 0 else "200 OK"
        await talk.say(whole_answer(await talk.asked(), "Connection: close", status=status))
        await talk.asked()
        raise AssertionError("The connection was used again.")

    async with talking(script) as (client, server):
        assert [await call_numbered(client, number) for number in range(2)] == [0, 1]
        assert server.connections == 3


# --- Invalid responses ------------------------------------------------------------------------------------------------


async def _cut(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked())[:-3])


async def _cut_head(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked())[:20])


async def _cut_chunks(talk: ServerTalk) -> None:
    await talk.say(chunked_answer(await talk.asked(), 3)[:-20])


async def _reset(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked())[:-3], pause=0.02)
    talk.reset()


async def _hang_after_head(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked())[:-20])
    await talk.asked()


async def _nonsense(talk: ServerTalk) -> None:
    await talk.asked()
    await talk.say(b"SSH-2.0-OpenSSH_9.6\r\n")
    await talk.asked()


async def _other_protocol(talk: ServerTalk) -> None:
    await talk.asked()
    await talk.say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    await talk.asked()


async def _two_lengths(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked(), "Content-Length: 2"))
    await talk.asked()


async def _length_and_chunks(talk: ServerTalk) -> None:
    await talk.say(whole_answer(await talk.asked(), "Transfer-Encoding: chunked"))
    await talk.asked()


async def _large(talk: ServerTalk) -> None:
    await talk.asked()
    await talk.say(whole_answer("x" * 900_000))
    await talk.asked()


async def _large_head(talk: ServerTalk) -> None:
    await talk.asked()
    await talk.say(whole_answer({}, "x-more: " + "x" * 500_000))
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
async def test_a_broken_response_is_discarded_and_its_connection_closed(spoilt: Script) -> None:
    """A read is answered when it is retried. Whether the first try of a write was applied is unknown."""
    meter = Meter()

    limits = replace(PATIENT, response_bytes=800_000)
    if spoilt is _hang_after_head:
        change_limits(limits, silence_seconds=0.3)

    async def script(talk: ServerTalk) -> None:
        if talk.number:
            change_limits(limits, silence_seconds=50)
        await (echo if talk.number else spoilt)(talk)

    async with talking(script, limits=limits) as (client, server):
        assert [await call_numbered(client, number, "PutItem", meter=meter) for number in range(2)] == [0, 1]
        await until(lambda: server.open == 1)
        assert server.connections == 2
    assert [(call.attempts, call.ambiguous) for call in meter.calls] == [(2, True), (1, False)]


@pytest.mark.proof
@on_both_loops
async def test_a_slow_response_is_read_until_the_deadline() -> None:
    async def script(talk: ServerTalk) -> None:
        await talk.asked()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b" "] * 100_000, pause=0.01)

    # A machine may stand still for longer than many pauses.
    limits = replace(PATIENT, silence_seconds=2.5)
    async with talking(script, limits=limits) as (client, server):
        began = time.monotonic()
        with pytest.raises(Timeout):
            await call_numbered(client, timeout=3)
        assert time.monotonic() - began > 2.9
        await until(lambda: server.open == 0)
        assert server.connections == 1


# --- Requests ---------------------------------------------------------------------------------------------------------

# More than the socket buffers of both ends hold.
HUGE = LARGE | {"text": "x" * 12_000_000}


@on_both_loops
async def test_a_large_request_is_sent_as_fast_as_it_is_read() -> None:
    async def script(talk: ServerTalk) -> None:
        await asyncio.sleep(0.05)
        await echo(talk)

    async with talking(script, backoff=ONCE) as (client, server):
        answers = await asyncio.gather(*[client.call("GetItem", LARGE) for _ in range(2)])
        assert answers == [LARGE, LARGE]
        assert await call_numbered(client, 2) == 2
        assert server.connections == 2


@on_both_loops
async def test_a_large_request_may_be_answered_before_it_is_read() -> None:
    async def script(talk: ServerTalk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.say(whole_answer({"number": talk.number}))
        await asyncio.Event().wait()

    async with talking(script, backoff=ONCE) as (client, server):
        assert await client.call("GetItem", HUGE) == {"number": 0}
        assert await call_numbered(client) == 1
        assert server.connections == 2


@pytest.mark.parametrize("reads", [0, 3_000_000])
@on_both_loops
async def test_a_large_request_that_is_not_read_is_abandoned(reads: int) -> None:
    async def script(talk: ServerTalk) -> None:
        await talk.reader.readexactly(reads)
        await asyncio.Event().wait()

    limits = replace(PATIENT, silence_seconds=0.2)
    async with talking(script, backoff=ONCE, limits=limits) as (client, server):
        with pytest.raises(Timeout):
            await client.call("PutItem", HUGE, timeout=50)
        change_limits(limits, silence_seconds=50)
        client.reset_breakers()
        call = asyncio.create_task(client.call("PutItem", HUGE))
        await until(lambda: server.connections == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# --- Random faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@on_both_loops
async def test_no_caller_ever_receives_the_response_of_another(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers delay, truncate, close and send too much. Callers leave at any moment. Each gets its response or none."""
    rng, connections = random.Random(seed), count_connections(monkeypatch)

    async def script(talk: ServerTalk) -> None:
        while True:
            asked = await talk.asked()
            await until(lambda: connections.most >= 5)
            whole = chunked_answer(asked, 5) if rng.random() < 0.3 else whole_answer(asked)
            cut = rng.randrange(len(whole))
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.005]))
            match rng.randrange(12):
                case 0:
                    return None
                case 1:
                    await talk.say(whole[:cut])
                    return talk.reset()
                case 2:
                    await talk.say(whole + whole_answer({"number": -1}))
                case 3:
                    await talk.say(whole)
                    return None
                case 4 | 5:
                    await talk.say(whole[:cut], whole[cut:], pause=0.002)
                case _:
                    await talk.say(whole)

    async with talking(script, limits=replace(PATIENT, connections=5), backoff=Backoff(0.001, 0.004, 3)) as (client, _):
        responses: list[tuple[int, int]] = []

        async def one(number: int) -> None:
            operation, timeout = rng.choice(["GetItem", "PutItem"]), rng.choice([0.003, 0.01, 50, 50])
            with suppress(Timeout, Unavailable):
                responses.append((number, await call_numbered(client, number, operation, timeout=timeout)))

        async def leaving(task: asyncio.Task[None]) -> None:
            if rng.random() < 0.4:
                for _ in range(rng.randrange(1, 12)):
                    await asyncio.sleep(0)
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.02)
                task.cancel()
            await asyncio.wait([task])

        for start in range(0, 240, 40):
            tasks = [asyncio.create_task(one(start + number)) for number in range(40)]
            await asyncio.gather(*map(leaving, tasks))

        assert all(number == answered for number, answered in responses)
        assert len(responses) > 20
        # No slot is lost: the maximum number of calls can still run at once.
        client._backoff = Backoff(0.001, 0.004, 60)
        connections.most = 0
        assert await asyncio.gather(*[call_numbered(client, number) for number in range(20)]) == list(range(20))
        assert connections.most == 5
