"""Load shedding: beyond its limits the process refuses operations at once, and completes the running ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.errors import Throttled, Unavailable
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.admission.load_shedding import LATE_TURNS, MAX_ACTIVE_RATIO, LoadShedder
from server.admission.quotas import KeyedQuota
from server.settings import Settings
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.served import Listener, Served
from tests.support.until import until

READ = '{ sightings(area: "Harbor", first: 1) { edges { node { sightingId } } } }'
LISTEN = "subscription { sightingReported { sightingId } }"


# --- The load ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def working(load: LoadShedder, count: int) -> AsyncIterator[asyncio.Event]:
    """Run `count` operations until the event is set."""
    ended = asyncio.Event()

    async def work() -> None:
        async with load.slot():
            await ended.wait()

    tasks = [asyncio.create_task(work()) for _ in range(count)]
    await asyncio.sleep(0)
    try:
        yield ended
    finally:
        ended.set()
        await asyncio.gather(*tasks)


async def test_as_many_operations_wait_as_run() -> None:
    load = LoadShedder(3, queue_seconds=60)
    async with working(load, 6) as ended:
        assert (load.running, load.waiting) == (3, 3)
        with pytest.raises(Unavailable) as refusal:
            load.check()
        assert refusal.value.extensions == {"code": "UNAVAILABLE", "retryAfter": 1, "retryable": True}
        with pytest.raises(Unavailable, match="The server executes 3 operations"):
            async with load.slot():
                raise AssertionError("there is no slot")
        ended.set()
        await until(lambda: not load.running)
        load.check()
    assert (load.running, load.waiting) == (0, 0)


async def test_waiting_is_limited() -> None:
    load = LoadShedder(1, queue_seconds=0.01)
    async with working(load, 1):
        with pytest.raises(Unavailable, match="none ended in time"):
            async with load.slot():
                raise AssertionError("there is no slot")
        assert (load.running, load.waiting) == (1, 0)
    async with load.slot():
        assert load.running == 1


async def test_waiting_operations_run_in_order() -> None:
    load, order = LoadShedder(1, queue_seconds=60), list[str]()

    async def work(name: str) -> None:
        async with load.slot():
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*[work(name) for name in "ab"], return_exceptions=True)
    async with working(load, 1) as ended:
        waiting = asyncio.create_task(work("first"))
        await asyncio.sleep(0)
        ended.set()
        await asyncio.gather(waiting, return_exceptions=True)
    assert order == ["a", "b", "first"]


async def test_a_cancelled_waiter_leaves_no_trace() -> None:
    load = LoadShedder(1, queue_seconds=60)
    async with working(load, 2) as ended:
        waiting = asyncio.create_task(load.slot().__aenter__())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        ended.set()
    async with load.slot():
        pass
    assert (load.running, load.waiting) == (0, 0)


async def test_a_late_event_loop_refuses_operations() -> None:
    load = LoadShedder(100, lag_seconds=0.5)
    load.record_lag(0.6)
    load.check()  # one late turn may be a large response
    for _ in range(LATE_TURNS):
        load.record_lag(0.6)
    with pytest.raises(Unavailable, match="does not keep up"):
        load.check()
    load.record_lag(0.1)
    load.check()


async def test_a_caller_has_a_limit_of_its_own() -> None:
    load = LoadShedder(100, per_caller=2, queue_seconds=0.01)
    ended = asyncio.Event()

    async def work(caller: str) -> str:
        async with load.slot(caller):
            await ended.wait()
        return caller

    def in_hand() -> int:
        return sum(own.active for own in load._callers.values())

    tasks = [asyncio.create_task(work("ann")) for _ in range(2 * MAX_ACTIVE_RATIO)]
    await until(lambda: in_hand() == 2 * MAX_ACTIVE_RATIO)
    assert load.running == 2
    with pytest.raises(Throttled, match="You have 8 operations running or waiting") as refusal:
        await work("ann")
    assert refusal.value.extensions["retryAfter"] == 1
    bob = asyncio.create_task(work("bob"))
    await until(lambda: load.running == 3)
    # Operations that waited too long are refused. A cancelled one releases its slot.
    await until(lambda: in_hand() == 3)
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])  # otherwise the next one might wait too long for this slot on a busy machine
    late = asyncio.create_task(work("ann"))
    waiting = asyncio.create_task(work("ann"))
    await asyncio.sleep(0)
    waiting.cancel()
    await until(lambda: load.running == 3 and in_hand() == 3)
    ended.set()
    got = await asyncio.gather(*tasks, bob, late, return_exceptions=True)
    assert [type(each) for each in got].count(Throttled) == 6
    assert got[-2:] == ["bob", "ann"]
    assert (load.running, load.waiting, load._callers) == (0, 0, {})


async def test_a_quota_per_key_and_in_total() -> None:
    places = KeyedQuota("things", 3, 2)
    places.acquire("a")
    with places.holding("a"):
        with pytest.raises(Throttled, match="A caller may have 2 things at once"):
            places.acquire("a")
        places.acquire("b")
        with pytest.raises(Unavailable, match="All 3 things of this server are taken"):
            places.acquire("c")
    places.transfer("b", "a")
    places.acquire("c")
    with pytest.raises(Throttled):
        places.transfer("c", "a")
    for key in "aac":
        places.release(key)
    assert (places.total, len(places._taken)) == (0, 0)


# --- Over the wire ----------------------------------------------------------------------------------------------------


class TableGate:
    """A fault that stops calls for the table until it is opened."""

    def __init__(self, proxy: Proxy) -> None:
        self.open = asyncio.Event()
        self.met = 0
        proxy.always = self

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "Query" and str(seen.body["TableName"]).endswith(BLIP.name):
            self.met += 1
            await self.open.wait()
        return await forward(proxy, seen)


class TestShedding:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=replace(settings.capacity, concurrent=1))

    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        """The calls of the gateway go through the proxy."""
        return replace(store_options, store=proxy.url)

    async def test_operations_beyond_the_limit_are_refused_before_they_are_read(
        self, served: Served, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = served.gateway.server.admission.load
        monkeypatch.setattr(load, "_queue_seconds", 60)
        # A subscription that waits for events does not count.
        listener = await served.listen(LISTEN)
        await served.settle(BLIP)
        gate = TableGate(proxy)
        asked = [asyncio.create_task(served.http.post(f"{served.url}/graphql", json={"query": READ})) for _ in range(2)]
        await until(lambda: (load.running, load.waiting) == (1, 1))

        head = await refused_head(served)
        assert head.startswith("HTTP/1.1 503 ")
        assert "retry-after: 1\r\n" in head
        answer = await served.ask(READ)
        assert (answer.status, answer.codes, answer.made) == (503, ["UNAVAILABLE"], [])
        async with served.http.get(f"{served.url}/graphql", params={"query": READ}) as response:
            assert response.status == 503
        for path in ("/healthz", "/readyz"):
            async with served.http.get(served.url + path) as response:
                assert response.status == 200
        for query in (READ, LISTEN):
            assert await refused_on(listener, query) == "UNAVAILABLE"

        assert served.gateway.metrics.registry.get_sample_value("gateway_operations_running") == 1
        assert (served.gateway.metrics.registry.get_sample_value("gateway_operations_shed_total") or 0) >= 5
        assert gate.met == 1
        gate.open.set()
        for answered in await asyncio.gather(*asked):
            assert answered.status == 200
            answered.release()
        assert (await served.ask(READ)).status == 200


class TestOneCaller:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=replace(settings.capacity, concurrent_per_caller=1))

    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        """The calls of the gateway go through the proxy."""
        return replace(store_options, store=proxy.url)

    async def test_only_the_caller_beyond_its_limit_is_refused(
        self, served: Served, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = served.gateway.server.admission.load
        monkeypatch.setattr(load, "_queue_seconds", 0.01)
        gate = TableGate(proxy)
        held = asyncio.create_task(served.ask(READ, user="ann"))
        await until(lambda: gate.met == 1)
        refused = await served.ask(READ, user="ann")
        assert (refused.status, refused.codes) == (429, ["THROTTLED"])
        assert refused.headers["retry-after"] == "1"
        assert (await served.ask("{ __typename }", user="bob")).status == 200
        held.cancel()
        await until(lambda: not load.running)
        gate.open.set()
        assert (await served.ask(READ, user="ann")).status == 200
        assert not load._callers


async def refused_head(served: Served) -> str:
    """Return the response to a client that expects 100 Continue before it sends its body. It receives none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.settings.port)
    head = "POST /graphql HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n".encode())
    answer = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    return answer


async def refused_on(listener: Listener, query: str) -> str:
    """Return the code of the error that ends the operation."""
    await listener.socket.send_json({"id": "x", "type": "subscribe", "payload": {"query": query}})
    message = await listener.message()
    assert (message["id"], message["type"]) == ("x", "error")
    return str(message["payload"][0]["extensions"]["code"])


class TestSockets:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = replace(
            settings.capacity,
            websockets=4,
            websockets_per_caller=2,
            subscriptions=3,
            subscriptions_per_caller=2,
            operations_per_websocket=2,
        )
        return replace(settings, capacity=capacity)

    async def test_subscriptions_are_limited(self, served: Served) -> None:
        ada = await served.listen(LISTEN, user="ada")
        second = await served.listen(LISTEN, user="ada")
        await served.settle(BLIP, 2)
        assert await refused_on(second, LISTEN) == "THROTTLED"
        bob = await served.listen(LISTEN, user="bob")
        await served.settle(BLIP, 3)
        assert await refused_on(bob, LISTEN) == "UNAVAILABLE"

        await ada.socket.send_json({"id": "1", "type": "complete"})
        await until(lambda: served.gateway.server.admission.subscriptions.total == 2)
        await ada.socket.send_json({"id": "2", "type": "subscribe", "payload": {"query": LISTEN}})
        await served.settle(BLIP, 3)
        for listener in (ada, second, bob):
            await listener.socket.close()
        await until(lambda: served.gateway.server.admission.subscriptions.total == 0)

    async def test_sockets_are_limited(self, served: Served) -> None:
        # A user may have two sockets. Without a token the address counts.
        users = [await served.listen(LISTEN, user=user) for user in ("ada", "ada", "bob")]
        assert await close_code(served, served.headers("ada", Role.USER)) == (
            1013,
            "A caller may have 2 WebSockets at once.",
        )
        fourth = await served.listen(LISTEN, user="bob")
        status, error = await refused_handshake(served)
        assert (status, error["extensions"]["code"]) == (503, "UNAVAILABLE")
        assert error["message"].startswith("All 4 WebSockets of this server are taken")

        for listener in [*users, fourth]:
            await listener.socket.close()
        await until(lambda: served.gateway.server.admission.websockets.total == 0)
        strangers = [await connect(served), await connect(served)]
        status, error = await refused_handshake(served)
        assert (status, error["extensions"]["code"]) == (429, "THROTTLED")
        for stranger in strangers:
            await stranger.close()

    async def test_operations_of_a_socket_are_limited(self, served: Served) -> None:
        listener = await served.listen(LISTEN, user="ada")
        await listener.socket.send_json({"id": "2", "type": "subscribe", "payload": {"query": LISTEN}})
        await served.settle(BLIP, 2)
        assert await refused_on(listener, READ) == "BAD_USER_INPUT"


async def connect(served: Served) -> aiohttp.ClientWebSocketResponse:
    return await served.http.ws_connect(f"{served.url}/graphql", protocols=["graphql-transport-ws"])


async def close_code(served: Served, payload: dict[str, str]) -> tuple[int | None, str]:
    """Return the close code and the reason of a socket with this payload of connection_init."""
    socket = await connect(served)
    await socket.send_json({"type": "connection_init", "payload": payload})
    message = await socket.receive(timeout=50)
    return socket.close_code, str(message.extra)


async def refused_handshake(served: Served) -> tuple[int, dict[str, Any]]:
    """Return the status and the error of a refused upgrade."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "graphql-transport-ws",
    }
    async with served.http.get(f"{served.url}/graphql", headers=headers) as response:
        assert int(response.headers["retry-after"]) > 0
        [error] = (await response.json())["errors"]
        return response.status, error
