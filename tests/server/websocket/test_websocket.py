"""graphql-transport-ws with a real server, by well-behaved and other clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from graphql.language import OperationType
from websockets.exceptions import ConnectionClosed

from datastore.errors import NotFound
from server.admission.callers import Caller
from server.admission.connection_limits import Connections
from server.admission.quotas import KeyedQuota
from server.documents.document_cache import Document, DocumentText
from server.documents.persisted.registry import DocumentRegistry
from server.documents.request import GraphQLParams
from server.websocket.connection import WebSocketConnection
from server.websocket.endpoint import SUBPROTOCOL
from server.websocket.transport import SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.time_jumps import jump
from tests.support.toy_sockets import IMPATIENT, NOW, QUICK, ServedSockets, SocketPeer, serve_websockets, upgrade, world
from tests.support.until import until
from tests.support.websocket import deaf_subscriber, masked_frame


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serve_websockets() as served:
        yield served
    assert not unexpected_errors(caplog)


async def test_a_query_and_a_mutation(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for id, query, data in (
            ("q", "{ hello }", {"hello": "world"}),
            ("m", "mutation { change }", {"change": "changed"}),
        ):
            await peer.subscribe(id, query)
            assert await peer.next(id) == {"data": data}
            assert await peer.receive() == {"type": "complete", "id": id}


async def test_a_subscription(server: ServedSockets) -> None:
    async with server.ready() as peer:
        query = "subscription A($to: Int!) { count(to: $to) } subscription B { held }"
        await peer.subscribe("1", query, variables={"to": 2}, operationName="A", extensions={})
        assert [await peer.next("1") for _ in range(2)] == [{"data": {"count": 0}}, {"data": {"count": 1}}]
        assert await peer.receive() == {"type": "complete", "id": "1"}


async def test_an_id_can_be_used_again_when_its_operation_is_over(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for _ in range(20):
            await peer.subscribe("1", "{ hello }")
            await peer.next("1")
            assert (await peer.receive())["type"] == "complete"


async def test_every_event_sees_a_fresh_context_of_its_own_moment(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { events { number loaded moment again: loaded } }")
        await asyncio.sleep(0.05)
        world.now += 1000
        world.go.set()
        for number in range(3):
            then = NOW + 1001 + number
            event = {"number": number, "loaded": then, "moment": then, "again": then}
            assert await peer.next("1") == {"data": {"events": event}}
        assert (await peer.receive())["type"] == "complete"


async def test_every_operation_has_a_context_of_its_own(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for expected in (NOW + 1, NOW + 2):
            await peer.subscribe("1", "{ twice }")
            assert await peer.next("1") == {"data": {"twice": expected}}
            await peer.receive()
    assert world.contexts == 2


class Known(DocumentRegistry):
    """A registry of documents by id."""

    def plain_text(self, params: GraphQLParams) -> DocumentText | None:
        return None

    async def resolve(self, params: GraphQLParams, caller: Caller) -> DocumentText:
        known = params.document_id or (params.extensions or {}).get("persistedQuery", {}).get("sha256Hash")
        if known != "hello":
            raise NotFound("There is no such document.")
        return DocumentText("{ hello }")

    async def on_valid(self, params: GraphQLParams, document: Document) -> None:
        assert document.operation(None).kind is OperationType.QUERY


async def test_documents_by_id_and_by_hash() -> None:
    persisted = {"version": 1, "sha256Hash": "hello"}
    async with serve_websockets(Known()) as server, server.ready() as peer:
        for payload in ({"documentId": "hello"}, {"extensions": {"persistedQuery": persisted}}):
            await peer.send(type="subscribe", id="1", payload=payload)
            assert await peer.next("1") == {"data": {"hello": "world"}}
            assert (await peer.receive())["type"] == "complete"
        await peer.send(type="subscribe", id="1", payload={"documentId": "other"})
        message = await peer.receive()
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")
        await peer.send(type="subscribe", id="1", payload={"operationName": "Hello", "extensions": {}})
        assert await peer.closed() == (4400, "Invalid message: Send `query`, or `documentId`.")


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("", None),
        ("{", None),
        ("{ nope }", None),
        ("subscription { nope }", None),
        ("subscription { count held }", None),
        ("{ hello \0 }", None),
        ("query A { hello } query B { me }", None),
        ("subscription A { count } subscription B { held }", None),
        ("fragment F on Query { hello }", None),
        ("subscription { count(to: " + "9" * 5000 + ") }", None),
        ("{" + "a{" * 4000, None),
        ("subscription ($to: Int!) { count(to: $to) }", {"to": "x"}),
        ("subscription ($to: Int!) { count(to: $to) }", {}),
        ("subscription ($to: Int!) { count(to: $to) }", {"to": [[[[[1]]]]]}),
    ],
)
async def test_a_faulty_operation_ends_itself_and_not_the_socket(
    server: ServedSockets, query: str, variables: Any
) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", query, variables=variables)
        message = await peer.receive()
        assert (message["type"], message["id"]) == ("error", "1")
        assert message["payload"]
        assert all(error["extensions"]["code"] == "BAD_USER_INPUT" for error in message["payload"])
        await peer.subscribe("1", "{ hello }")
        assert await peer.next("1") == {"data": {"hello": "world"}}


async def test_an_unknown_operation_name(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription A { count }", operationName="B")
        assert (await peer.receive())["type"] == "error"


async def test_errors_of_an_event_come_with_the_event(server: ServedSockets) -> None:
    async with server.ready() as peer:
        world.go.set()
        await peer.subscribe("1", "subscription { events { failing } }")
        payload = await peer.next("1")
        assert payload["data"] == {"events": {"failing": None}}
        assert payload["errors"][0]["extensions"] == {"code": "NOT_FOUND"}


@pytest.mark.parametrize(("how", "code"), [("domain", "NOT_FOUND"), ("bug", "INTERNAL")])
async def test_an_event_source_that_fails_ends_with_an_error(server: ServedSockets, how: str, code: str) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", f'subscription {{ failing(how: "{how}") }}')
        await peer.next("1")
        message = await peer.receive()
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", code)
        assert "swordfish" not in str(message)
        await peer.subscribe("1", "{ hello }")
        await peer.next("1")


async def test_a_subscription_that_may_not_begin(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { refused }")
        message = await peer.receive()
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "UNAUTHENTICATED")


async def test_queries_have_a_deadline() -> None:
    async with serve_websockets(deadline=0.05) as server, server.ready() as peer:
        await peer.subscribe("1", "{ slow }")
        message = await peer.receive()
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "TIMEOUT")


async def test_a_source_that_falls_behind_ends_its_operation_and_not_the_socket(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", 'subscription { failing(how: "slow") }')
        while (message := await peer.receive())["type"] == "next":
            pass
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "SLOW_SUBSCRIBER")
        await peer.subscribe("2", "{ hello }")
        assert (await peer.receive())["id"] == "2"


async def test_subscribing_before_the_ack(server: ServedSockets) -> None:
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.subscribe("1", "{ hello }")
        assert await peer.closed() == (4401, "Unauthorized")


async def test_a_second_init(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.send(type="connection_init")
        assert await peer.closed() == (4429, "Too many initialisation requests")


async def test_no_init() -> None:
    async with serve_websockets(limits=SocketLimits(init_timeout=0.05)) as server, server.peer() as connection:
        assert await SocketPeer(connection).closed() == (4408, "Connection initialisation timeout")


@pytest.mark.parametrize("offered", [None, ["graphql-ws"], ["chat", "graphql-ws"]])
async def test_other_subprotocols(server: ServedSockets, offered: Any) -> None:
    async with server.peer(subprotocols=offered) as connection:
        assert connection.subprotocol is None
        assert await SocketPeer(connection).closed() == (4406, "Subprotocol not acceptable")


async def test_ours_among_other_subprotocols(server: ServedSockets) -> None:
    async with server.ready(subprotocols=["graphql-ws", SUBPROTOCOL]) as peer:
        assert peer.connection.subprotocol == SUBPROTOCOL


async def test_an_id_in_use(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        await peer.subscribe("1", "{ hello }")
        assert await peer.closed() == (4409, "Subscriber for 1 already exists")


async def test_one_operation_too_many(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for id in "123":
            await peer.subscribe(id, "subscription { held }")
            await peer.next(id)
        await peer.subscribe("4", "{ hello }")
        message = await peer.receive()
        assert (message["type"], message["id"]) == ("error", "4")
        await peer.send(type="complete", id="1")
        await peer.subscribe("4", "{ hello }")
        await peer.next("4")


async def test_complete_releases_the_event_source_at_once(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        assert world.held == 1
        await peer.send(type="complete", id="1")
        await until(lambda: world.held == 0)
        await peer.send(type="complete", id="unknown")
        await peer.subscribe("1", "{ slow }")
        await until(lambda: world.held == 1)
        await peer.send(type="complete", id="1")
        await until(lambda: world.held == 0)
        await peer.subscribe("1", "{ hello }")
        assert await peer.next("1") == {"data": {"hello": "world"}}


async def test_no_message_of_an_operation_follows_its_complete(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for _ in range(10):
            await peer.subscribe("1", "subscription { flood(size: 10) }")
            await peer.next("1")
            await peer.send(type="complete", id="1")
            await peer.send(type="ping")
            while (message := await peer.receive()) != {"type": "pong"}:
                assert message["type"] == "next"
            await peer.subscribe("1", "{ hello }")
            assert await peer.next("1") == {"data": {"hello": "world"}}
            assert await peer.receive() == {"type": "complete", "id": "1"}


async def test_an_abandoned_result_is_not_sent(server: ServedSockets) -> None:
    async with server.ready() as peer:
        for id in ("1", "2", "3"):
            await peer.subscribe(id, "{ hello }")
            await peer.send(type="complete", id=id)
        await peer.send(type="ping")
        assert await peer.receive() == {"type": "pong"}


async def test_a_peer_that_does_not_read_has_no_more_waiting_for_it_than_may_be_open(server: ServedSockets) -> None:
    async with deaf_subscriber(server, "subscription { flood }") as ask:
        await until(lambda: world.opened == 1)
        tasks = len(asyncio.all_tasks())
        for number in range(40):
            await ask({"type": "subscribe", "id": f"q{number}", "payload": {"query": "{"}})
            await asyncio.sleep(0.002)
        assert len(asyncio.all_tasks()) < tasks + QUICK.max_operations


async def test_an_event_source_that_resists_is_not_heard_after_complete(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { stubborn }")
        await peer.next("1")
        await peer.send(type="complete", id="1")
        await peer.subscribe("1", "subscription { held }")
        assert await peer.next("1") == {"data": {"held": 0}}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.receive(), 0.1)


async def test_pings_are_answered_with_their_payload(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.send(type="ping")
        assert await peer.receive() == {"type": "pong"}
        await peer.send(type="ping", payload={"a": [1]})
        assert await peer.receive() == {"type": "pong", "payload": {"a": [1]}}
        await peer.send(type="pong", payload={"unasked": True})
        await peer.subscribe("1", "{ hello }")
        await peer.next("1")


async def test_a_peer_that_does_not_answer_pings_goes() -> None:
    limits = SocketLimits(init_timeout=40, ping_every=0.03)
    async with serve_websockets(limits=limits) as server, server.ready() as peer:
        with suppress(ConnectionClosed):  # on a machine that stands still it is closed before
            await peer.subscribe("1", "subscription { held }")
        assert await peer.closed() == (4411, "2 pings went unanswered")


async def test_a_peer_that_leaves_while_it_is_identified(server: ServedSockets) -> None:
    async with server.peer() as connection:
        await connection.send('{"type": "connection_init", "payload": {"Authorization": "Bearer hanging"}}')
        await asyncio.sleep(0.05)


async def test_a_peer_that_does_not_read_is_dropped() -> None:
    async with serve_websockets(limits=IMPATIENT) as server, deaf_subscriber(server, "subscription { flood }"):
        await until(lambda: world.opened == 1)
        await until(lambda: not server.uvicorn.server_state.connections and not server.endpoint.sockets)


GOODBYE = b"\x88\x80\0\0\0\0"


@pytest.mark.parametrize("goodbye", [GOODBYE, b""])
@pytest.mark.parametrize("query", ["subscription { flood }", "subscription { flood(size: 60000) }"])
async def test_a_peer_that_says_goodbye_and_does_not_read_is_dropped(
    goodbye: bytes, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places are held until it is disconnected, and released once."""
    monkeypatch.setattr("server.websocket.connection.CLOSE_SECONDS", 50)
    watched, places = Connections(), KeyedQuota("WebSockets", 10, 10)
    async with serve_websockets(connections=watched, quota=places, limits=SocketLimits()) as server:
        async with deaf_subscriber(server, query) as send:
            await until(lambda: world.opened == 1)
            await asyncio.sleep(0.05)
            assert (watched.open, places.total) == (1, 1)
            await send(goodbye)
            await until(lambda: world.held == 0)
            await asyncio.sleep(0.05)
            assert (watched.open, places.total) == (1, 1)
            jump(50)
            await until(lambda: not server.uvicorn.server_state.connections)
            await until(lambda: not places.total)
        assert (watched.open, places.total) == (0, 0)


async def test_a_peer_that_said_goodbye_may_read_to_the_end(server: ServedSockets) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
    subscribe = json.dumps({"type": "subscribe", "id": "1", "payload": {"query": "subscription { flood }"}})
    writer.write(upgrade("x") + masked_frame('{"type": "connection_init"}') + masked_frame(subscribe))
    await until(lambda: world.opened == 1)
    await asyncio.sleep(0.05)
    writer.write(GOODBYE)
    await until(lambda: world.held == 0)
    said = await reader.read()
    assert len(said) > 200_000
    assert said.endswith(b"}}}\x88\x00")
    writer.close()


async def test_a_peer_that_reads_slowly_gets_everything(server: ServedSockets) -> None:
    async with server.ready(max_queue=1) as peer:
        await peer.subscribe("1", "subscription { flood }")
        for _ in range(50):
            assert len((await peer.next("1"))["data"]["flood"]) == 200_000
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("query", ["subscription { held }", "{ slow }", "subscription { flood }"])
async def test_a_peer_that_vanishes_takes_its_operations_along(server: ServedSockets, query: str) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", query)
        await until(lambda: world.held == 1)
        peer.connection.transport.abort()
        await until(lambda: world.held == 0 and not server.endpoint.sockets)


async def test_vanishing_before_anything_is_said(server: ServedSockets) -> None:
    for data in (upgrade("x"), upgrade("x") + masked_frame('{"type": "connection_init"}'), upgrade("x")[:50]):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        await writer.drain()
        writer.transport.abort()


async def test_the_server_says_that_it_goes() -> None:
    async with serve_websockets() as server, server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        await server.endpoint.close()
        assert await peer.closed() == (1001, "The server is shutting down")


async def test_uvicorn_says_it_too() -> None:
    async with serve_websockets() as server, server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        for connection in tuple(server.uvicorn.server_state.connections):
            assert isinstance(connection, WebSocketConnection)
            connection.shutdown()
        assert await peer.closed() == (1001, "The server is shutting down")


@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("goodbye", [None, GOODBYE, b""])
async def test_a_deaf_peer_does_not_hold_up_the_shutdown(
    received: bool, goodbye: bytes | None, server: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.websocket.connection.CLOSE_REPLY_SECONDS", 0.1)
    async with deaf_subscriber(server, "subscription { flood }") as send:
        await until(lambda: world.opened == 1)
        if goodbye is not None:
            await asyncio.sleep(0.05)
            await send(goodbye)
            await until(lambda: world.held == 0)
        if received:
            await server.endpoint.close()
        for connection in tuple(server.uvicorn.server_state.connections):
            connection.shutdown()
        await until(lambda: not server.uvicorn.server_state.connections and world.held == 0)


async def test_many_sockets_at_once_and_operations_interleaved(server: ServedSockets) -> None:
    async def one() -> None:
        async with server.ready() as peer:
            for id in ("a", "b"):
                await peer.subscribe(id, "subscription { count(to: 20) }")
            got = [await peer.receive() for _ in range(42)]
        for id in ("a", "b"):
            numbers = [
                message["payload"]["data"]["count"] for message in got if message["id"] == id and "payload" in message
            ]
            assert numbers == list(range(20))

    await asyncio.gather(*(one() for _ in range(20)))
