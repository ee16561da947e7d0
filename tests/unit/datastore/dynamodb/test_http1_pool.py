"""The client's pool of connections, and the callers that wait for one."""

import asyncio
import random
from dataclasses import replace

import pytest
from botocore.credentials import Credentials

from datastore.dynamodb.client import Client, Endpoint
from datastore.dynamodb.http1.connection import HttpConnection
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.errors import Timeout, Unavailable
from datastore.session.metering import Meter
from tests.support.until import until
from tests.support.wire_server import ServerTalk, echo, on_both_loops, serve_script, whole_answer
from tests.support.wire_talks import NEVER, ONCE, PATIENT, call_numbered, count_connections, one_answer, talking

pytestmark = pytest.mark.breaks_rules("the server is no DynamoDB, and reads no request")

# --- Idle connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goodbye", ["close", "half", "reset", "more", "a bit more"])
@on_both_loops
async def test_a_connection_that_was_closed_or_received_unrequested_bytes_is_not_used_again(
    goodbye: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, connections = asyncio.Event(), count_connections(monkeypatch)

    async def script(talk: ServerTalk) -> None:
        await talk.say(whole_answer(await talk.asked()))
        if talk.number == 0:
            await answered.wait()
            if goodbye == "close":
                talk.writer.close()
            elif goodbye == "half":
                talk.writer.write_eof()
            elif goodbye == "reset":
                talk.reset()
            else:
                await talk.say(whole_answer({"number": -1})[: 3 if goodbye == "a bit more" else None])
        await talk.asked()

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, server):
        assert await call_numbered(client, 1, "PutItem", meter=meter) == 1
        answered.set()
        await until(lambda: all(connection.closing for connection in connections.there))
        assert await call_numbered(client, 2, "PutItem", meter=meter) == 2
        assert server.connections == 2
    assert [(call.attempts, call.ambiguous) for call in meter.calls] == [(1, False)] * 2


@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
@on_both_loops
async def test_a_connection_that_is_closed_but_not_yet_lost_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """A call in the turn of the loop that noticed the close sends nothing on it, so no write is ambiguous."""
    ended, close = asyncio.Event(), HttpConnection.close

    def notify_and_close(connection: HttpConnection) -> None:
        ended.set()  # so the waiter of `ended` runs before `connection_lost`
        close(connection)

    async def script(talk: ServerTalk) -> None:
        await talk.say(whole_answer(await talk.asked()))
        if talk.number:
            await talk.asked()

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, server):
        await call_numbered(client)
        monkeypatch.setattr(HttpConnection, "close", notify_and_close)
        await ended.wait()
        assert await call_numbered(client, 1, operation, meter=meter) == 1
        assert server.connections == 2
        monkeypatch.undo()
    assert [(call.attempts, call.ambiguous) for call in meter.calls] == [(1, False)]


@pytest.mark.parametrize("length", [None, 3])
@on_both_loops
async def test_a_second_response_in_the_same_packet_is_discarded(length: int | None) -> None:
    async def script(talk: ServerTalk) -> None:
        while True:
            await talk.say(whole_answer(await talk.asked()) + whole_answer({"number": -1})[:length])

    async with talking(script, backoff=ONCE) as (client, server):
        assert [await call_numbered(client, number) for number in range(4)] == [0, 1, 2, 3]
        assert server.connections == 4


@pytest.mark.parametrize("operation", ["GetItem", "BatchGetItem", "Query", "Scan", "GetRecords", "TransactGetItems"])
@on_both_loops
async def test_a_read_on_a_connection_that_is_just_being_closed_is_retried_at_once(operation: str) -> None:
    meter = Meter()
    async with talking(one_answer, backoff=NEVER) as (client, server):
        assert [await call_numbered(client, number, operation, meter=meter) for number in range(3)] == [0, 1, 2]
        assert server.connections == 3
    assert [call.attempts for call in meter.calls] == [1, 2, 2]


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem", "TransactWriteItems", "UpdateTable"])
@on_both_loops
async def test_a_write_on_a_connection_that_is_just_being_closed_may_have_been_applied(operation: str) -> None:
    meter = Meter()
    async with talking(one_answer, backoff=ONCE) as (client, server):
        await call_numbered(client, 1, operation)
        with pytest.raises(Unavailable) as lost:
            await call_numbered(client, 2, operation, meter=meter)
        assert server.connections == 1
    assert lost.value.extensions == {"code": "UNAVAILABLE", "retryable": False, "mayHaveBeenApplied": True}
    assert [(call.attempts, call.ambiguous, call.may_have_written) for call in meter.calls] == [(1, True, True)]


@on_both_loops
async def test_a_read_whose_connection_closes_without_a_response_is_retried_at_once_only_once() -> None:
    async def script(talk: ServerTalk) -> None:
        await (one_answer(talk) if talk.number == 0 else talk.asked())

    meter = Meter()
    async with talking(script, backoff=ONCE) as (client, _):
        await call_numbered(client)
        with pytest.raises(Unavailable):
            await call_numbered(client, meter=meter)
    assert [call.attempts for call in meter.calls] == [2]


@on_both_loops
async def test_connections_that_idle_for_too_long_are_closed() -> None:
    async with talking(echo, limits=replace(PATIENT, idle_seconds=0.3)) as (client, server):
        await asyncio.gather(*[call_numbered(client) for _ in range(5)])
        # The same connection is always used, and the others idle.
        while server.open > 1:
            await call_numbered(client)
            await asyncio.sleep(0.02)
        await until(lambda: server.open == 0)
        assert await call_numbered(client, 7) == 7


@on_both_loops
async def test_a_server_that_closes_connections_under_load_disturbs_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, connections = random.Random(7), count_connections(monkeypatch)

    async def script(talk: ServerTalk) -> None:
        # The first answers come when all connections that are allowed have been asked.
        await until(lambda: connections.most >= 8)
        for _ in range(rng.randrange(1, 6)):
            await talk.say(whole_answer(await talk.asked()), pause=rng.choice([0, 0, 0.001]))

    limits, backoff = replace(PATIENT, connections=8), Backoff(0.001, 0.002, 30)
    async with talking(script, limits=limits, backoff=backoff) as (client, _):

        async def one(start: int) -> list[int]:
            return [await call_numbered(client, start + number) for number in range(30)]

        starts = range(0, 1600, 100)
        answers = await asyncio.gather(*map(one, starts))

        assert answers == [list(range(start, start + 30)) for start in starts]
        assert connections.most == 8


# --- Waiting ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_the_longest_waiter_gets_the_next_connection() -> None:
    async with talking(echo, limits=replace(PATIENT, connections=1)) as (client, server):
        order: list[int] = []

        async def one(number: int) -> None:
            order.append(await call_numbered(client, number))

        waiting = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        waiting[3].cancel()
        await asyncio.wait(waiting)

        assert order == [0, 1, 2, 4, 5]
        assert server.most == 1


@on_both_loops
async def test_a_deadline_applies_in_the_queue_and_leaks_no_slot() -> None:
    received, may_answer = asyncio.Event(), asyncio.Event()

    async def script(talk: ServerTalk) -> None:
        while True:
            request = await talk.asked()
            received.set()
            if request["number"] == 0:
                await may_answer.wait()
            await talk.say(whole_answer(request))

    meter = Meter()
    async with talking(script, limits=replace(PATIENT, connections=1)) as (client, server):
        first = asyncio.create_task(call_numbered(client, 0))
        await received.wait()
        with pytest.raises(Timeout):
            await call_numbered(client, 1, timeout=0.1, meter=meter)
        may_answer.set()
        assert [await first, await call_numbered(client, 2)] == [0, 2]
        assert server.connections == 1
    # It was never sent, so it cannot have been applied.
    assert [(call.abandoned, call.ambiguous) for call in meter.calls] == [(False, False)]


@on_both_loops
async def test_connections_to_two_hosts_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = count_connections(monkeypatch)
    async with serve_script(echo) as tables, serve_script(echo) as streams:
        credentials = CredentialSource(Credentials("local", "local"))
        endpoint = Endpoint(lambda: tables.url, lambda: streams.url, "local")
        async with Client(endpoint, credentials, limits=replace(PATIENT, connections=2)) as client:
            operations = ["GetItem", "GetRecords"] * 20
            calls = [call_numbered(client, number, operation) for number, operation in enumerate(operations)]
            assert await asyncio.gather(*calls) == list(range(40))
            for number in range(4):
                await asyncio.gather(*[call_numbered(client, number, operations[number]) for _ in range(2)])
                await until(lambda: tables.open + streams.open <= 2)
        assert connections.most <= 2


@on_both_loops
async def test_the_next_call_finds_a_store_that_has_moved() -> None:
    async with serve_script(echo) as first, serve_script(echo) as second:
        urls = [first.url]
        credentials = CredentialSource(Credentials("local", "local"))
        async with Client(Endpoint(lambda: urls[0], lambda: urls[0], "local"), credentials, limits=PATIENT) as client:
            await call_numbered(client)
            urls[0] = second.url
            assert await call_numbered(client, 1) == 1
        assert (first.connections, second.connections) == (1, 1)
