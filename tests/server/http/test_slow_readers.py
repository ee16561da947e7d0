"""Readers of streams that stop reading, or nearly, over real sockets: what they receive, and when they are
disconnected.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from graphql import EnumValueNode, IntValueNode, build_schema
from websockets.frames import Frame, Opcode

from datastore.keyspace import PATTERNS
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.queues import OverflowPolicy
from server.admission.connection_limits import Connections, HttpConnectionLimits
from server.documents.document_cache import Documents
from server.http.endpoint import GraphQLHTTP
from server.http.headers import EVENTS
from server.http.protocol import UVICORN_OPTIONS
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.operations.runner import Runner
from server.settings import Settings
from server.subscriptions.manager import SubscriptionManager
from tests.support.earthquake_samples import put_raw
from tests.support.served import Served
from tests.support.toy_sockets import AT_LAST, QUICK, SCHEMA, SocketContext, identify_socket_user, upgrade, world
from tests.support.toy_sockets import serve_websockets as serving_sockets
from tests.support.until import until

# With the buffers of the system and the transports, this is more than waits for a client that does not read.
SIZE, MANY = 20_000, 60
WAITING_BYTES = 10 * SIZE


def resume_body(query: str, after: str | None) -> Any:
    return {"query": query, "extensions": {} if after is None else {"resumeAfter": after}}


class SlowReader:
    """A client with almost no receive buffer, which reads when the test says so."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.port))
        self.reader, self.writer = await asyncio.open_connection(sock=connection, limit=4096)

    async def subscribe(self, query: str, after: str | None = None) -> None:
        raise NotImplementedError

    async def payload(self) -> Any:
        """Return the next event or the end."""
        raise NotImplementedError

    async def dribble(self) -> None:
        """Read a few bytes."""
        await self.reader.readexactly(16)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class SlowSocketReader(SlowReader):
    async def subscribe(self, query: str, after: str | None = None) -> None:
        self.writer.write(upgrade("here"))
        await self.reader.readuntil(b"\r\n\r\n")
        self.say({"type": "connection_init"})
        assert await self.message() == {"type": "connection_ack"}
        self.say({"id": "1", "type": "subscribe", "payload": resume_body(query, after)})

    def say(self, message: Any) -> None:
        self.writer.write(Frame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True))

    async def message(self) -> Any:
        while True:
            opcode, length = await self.reader.readexactly(2)
            if length > 125:
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8))
            data = await self.reader.readexactly(length)
            if opcode & 15 == 8:
                return {"closed": int.from_bytes(data[:2])}
            message = json.loads(data)
            if message["type"] != "ping":
                return message

    async def payload(self) -> Any:
        message = await self.message()
        return message["payload"] if "payload" in message else {"over": message["closed"]}


class SlowEventReader(SlowReader):
    async def subscribe(self, query: str, after: str | None = None) -> None:
        body = json.dumps(resume_body(query, after)).encode()
        head = f"POST /graphql HTTP/1.1\r\nhost: x\r\naccept: {EVENTS}\r\ncontent-type: application/json\r\n"
        self.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def payload(self) -> Any:
        while True:  # a chunk has a whole event
            size = b"" if self.reader.at_eof() else await self.reader.readuntil(b"\r\n")
            if size.strip().isalnum() and all(byte in b"0123456789abcdef" for byte in size.strip()):
                chunk = await self.reader.readexactly(int(size, 16) + 2)
                if b"event: next" in chunk:
                    payload = json.loads(chunk.partition(b"data: ")[2])
                    code = payload.get("errors", [{}])[0].get("extensions", {}).get("code")
                    return payload if code is None else {"over": code}


@asynccontextmanager
async def sockets(**limits: float) -> AsyncIterator[SlowReader]:
    how: dict[str, Any] = {"ping_every": 600, "send_timeout": AT_LAST, "waiting_bytes": WAITING_BYTES, **limits}
    async with serving_sockets(limits=replace(QUICK, **how)) as served:
        reader = SlowSocketReader(served.port)
        await reader.connect()
        try:
            yield reader
        finally:
            await reader.close()


@asynccontextmanager
async def slow_streams(send_timeout: float = AT_LAST) -> AsyncIterator[SlowReader]:
    world.begin()
    running = ResponseStreams(StreamLimits(heartbeat=600, send_timeout=600), world.clock)
    runner = Runner(Documents(SCHEMA), SocketContext, deadline=2)
    subscriptions = SubscriptionManager(runner, max_queued_bytes=WAITING_BYTES)
    app = GraphQLHTTP(runner, identify_socket_user, subscriptions=subscriptions, streams=running)
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", **UVICORN_OPTIONS)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state.update(
        Connections(http_limits=HttpConnectionLimits(silent_seconds=send_timeout)).lifespan_state()
    )
    await server.startup()
    reader = SlowEventReader(server.servers[0].sockets[0].getsockname()[1])
    await reader.connect()
    try:
        yield reader
    finally:
        await reader.close()
        await until(lambda: len(running) == 0)
        assert world.held == 0
        await server.shutdown()


EITHER = pytest.mark.parametrize("serving", [sockets, slow_streams])


async def unread(reader: SlowReader, policy: OverflowPolicy, buffer: int = 100) -> None:
    """Subscribe, and wait until this many events wait for the client."""
    await reader.subscribe(f'subscription {{ numbers(whenSlow: "{policy}", buffer: {buffer}, size: {SIZE}) }}')
    await until(lambda: world.held == 1)
    for number in range(MANY):
        world.numbers.put_nowait(number)
    await until(lambda: world.started >= MANY - 1 or world.held == 0)


async def read_numbers(reader: SlowReader) -> list[tuple[int, dict[str, int]]]:
    """Return the received numbers with the counts of dropped events, up to the last one or the end."""
    received: list[tuple[int, dict[str, int]]] = []
    async with asyncio.timeout(AT_LAST):
        while not received or received[-1][0] != MANY - 1:
            payload = await reader.payload()
            if "over" in payload:
                return [*received, (-1, payload)]
            received.append((int(payload["data"]["numbers"].split()[0]), payload.get("extensions", {})))
    return received


@EITHER
async def test_the_newest_events_of_a_buffer_arrive_with_the_count_of_dropped_ones(serving: Any) -> None:
    async with serving() as reader:
        await unread(reader, OverflowPolicy.BUFFER, 5)
        received = await read_numbers(reader)
    sent = len(received) - 5
    assert 0 < sent < MANY - 10
    missing = MANY - 5 - sent
    assert received[:sent] == [(number, {}) for number in range(sent)]
    assert received[sent:] == [(MANY - 5, {"dropped": missing}), *[(number, {}) for number in range(MANY - 4, MANY)]]


@EITHER
async def test_with_conflation_each_key_arrives_with_the_count_of_conflated_events(serving: Any) -> None:
    async with serving() as reader:
        await unread(reader, OverflowPolicy.LATEST)
        received = await read_numbers(reader)
    sent = len(received) - 3
    assert 0 < sent < MANY - 10
    assert [number for number, _ in received] == [*range(sent), MANY - 3, MANY - 2, MANY - 1]
    for number, extensions in received[sent:]:
        assert extensions == {
            "conflated": len(range(sent, number)) - len([0 for n in range(sent, number) if n % 3 != number % 3])
        }


@EITHER
async def test_a_subscriber_to_all_events_gets_all_up_to_the_end(serving: Any) -> None:
    async with serving() as reader:
        await unread(reader, OverflowPolicy.CLOSE)
        received = await read_numbers(reader)
    assert received.pop()[1] == {"over": 4410 if serving is sockets else "SLOW_SUBSCRIBER"}
    assert received == [(number, {}) for number in range(len(received))]
    # Waiting events are discarded at the end, which comes after the last sent event.
    assert 0 < len(received) < MANY - 5


@EITHER
@pytest.mark.parametrize("policy", OverflowPolicy)
async def test_a_client_that_stops_reading_is_soon_disconnected(serving: Any, policy: OverflowPolicy) -> None:
    async with serving(send_timeout=0.3) as reader:
        await unread(reader, policy, 5)
        await until(lambda: world.held == 0)


@EITHER
async def test_a_client_that_does_not_read_is_disconnected_although_nothing_waits(serving: Any) -> None:
    """Everything was written at once: the server notices only that it is not read."""
    async with serving(send_timeout=0.3) as reader:
        await reader.subscribe('subscription { numbers(whenSlow: "close", size: 1000000) }')
        await until(lambda: world.held == 1)
        world.numbers.put_nowait(1)
        await until(lambda: world.held == 0)


@EITHER
async def test_a_client_that_reads_a_few_bytes_at_a_time_is_disconnected_as_soon(serving: Any) -> None:
    async with serving(send_timeout=0.5) as reader:
        await unread(reader, OverflowPolicy.LATEST)
        async with asyncio.timeout(AT_LAST):
            while world.held:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    await reader.dribble()
                await asyncio.sleep(0.02)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, capacity=replace(settings.capacity, waiting_bytes=20_000))


@pytest.mark.parametrize("transport", [SlowSocketReader, SlowEventReader])
async def test_a_client_that_was_too_slow_resumes_and_misses_nothing(
    served: Served, transport: type[SlowReader]
) -> None:
    query, last, had, cuts = "subscription { earthquakeDetected { eventId place } }", None, list[str](), 0
    names = [f"q{number:03}" for number in range(70)]
    while not had or had[-1] != names[-1]:
        reader = transport(int(served.url.rpartition(":")[2]))
        await reader.connect()
        await reader.subscribe(query, last)
        if last is None:
            await served.settle(EARTHQUAKES)
            for name in names:
                await put_raw(served, name, place="x" * 5000)
            await until(lambda: count_followers(served) == 0)
        async with asyncio.timeout(AT_LAST):
            while "over" not in (payload := await reader.payload()):
                had.append(payload["data"]["earthquakeDetected"]["eventId"])
                last = payload["extensions"]["eventId"]
                if had[-1] == names[-1]:
                    break
            else:
                assert payload["over"] in (4410, "SLOW_SUBSCRIBER")
                cuts += 1
        await reader.close()
    assert had == names
    assert cuts > 0


def count_followers(served: Served) -> int:
    assert served.gateway.services is not None
    return served.gateway.services.changes.followers(EARTHQUAKES)


def test_each_subscription_declares_its_overflow_policy_in_the_schema() -> None:
    schema = build_schema(Path("schema/api.graphql").read_text())
    assert schema.subscription_type is not None
    fields = schema.subscription_type.fields
    declared = {name: one for one in PATTERNS if one.when_slow is not None for name in one.fields}
    assert declared.keys() == fields.keys()
    for name, field in fields.items():
        pattern = declared[name]
        if pattern.client_may_choose:
            defaults = {name: one.ast_node and one.ast_node.default_value for name, one in field.args.items()}
            assert isinstance(defaults["whenSlow"], EnumValueNode)
            assert defaults["whenSlow"].value == pattern.default_policy.name
            assert isinstance(defaults["buffer"], IntValueNode)
        else:
            assert not {"whenSlow", "buffer"} & field.args.keys()
            assert pattern.default_policy is OverflowPolicy.CLOSE


@pytest.mark.parametrize("given", ["whenSlow: BUFFER, buffer: 0", "whenSlow: BUFFER, buffer: 1001", "buffer: 0"])
async def test_a_buffer_has_bounds(served: Served, given: str) -> None:
    listener = await served.listen(f"subscription {{ earthquakeDetected({given}) {{ eventId }} }}")
    [error] = (await listener.message())["payload"]["errors"]
    assert (error["extensions"]["code"], error["extensions"]["field"]) == ("BAD_USER_INPUT", "buffer")
    assert "between 1 and 1000" in error["message"]
