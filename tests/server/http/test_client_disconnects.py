"""Clients that leave: their remaining reads are not made."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.photos.table import SPARKS
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from datastore.photos.lookups import CONCURRENCY
from datastore.session.store import Store
from server.settings import Settings
from tests.support.fault_proxy import Proxy, Seen, forward, hang
from tests.support.served import UNBOUGHT, Listener, Served
from tests.support.until import until

PROFILES = " ".join(["{", *[f'a{number}: userProfile(id: "{number}") {{ userId }}' for number in range(5)], "}"])
PHOTOS = " ".join(
    ["{", *[f'a{number}: photo(id: "i{number}") {{ imageId }}' for number in range(2 * CONCURRENCY)], "}"]
)
BUDGET = replace(UNBOUGHT, budget_units=1_000, budget_units_per_second=1e-6)
BLIPS = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    """Route the gateway's calls through the proxy."""
    return replace(store_options, store=proxy.url)


@pytest.fixture(autouse=True)
def tireless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry unprocessed keys soon, until the deadline."""
    monkeypatch.setattr(
        "datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=900)
    )


async def unprocessed(_proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond as a table that is too busy to read anything."""
    return web.Response(body=orjson.dumps({"Responses": {}, "UnprocessedKeys": seen.body["RequestItems"]}))


def met(operation: str, table: str, fault: Callable[[Proxy, Seen], Any]) -> Callable[[Proxy, Seen], Any]:
    """Apply the fault to these calls, and forward the others."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        there = any(
            str(name).endswith(table) for name in (seen.body.get("TableName"), *seen.body.get("RequestItems", ()))
        )
        return await (fault if seen.operation == operation and there else forward)(proxy, seen)

    return answer


def count_calls(proxy: Proxy, operation: str) -> int:
    """Return the number of calls, without those of background jobs."""
    made = [seen.body for seen in proxy.seen if seen.operation == operation]
    return len([body for body in made if operation != "Query" or ":prefix" in body["ExpressionAttributeValues"]])


async def stays(proxy: Proxy, operation: str) -> int:
    """Wait until no more calls are made. Return their number."""
    before = -1
    while before != (now := count_calls(proxy, operation)):
        before = now
        await asyncio.sleep(0.03)
    return now


async def ask_and_leave(served: Served, query: str, proxy: Proxy, operation: str, count: int, **who: Any) -> None:
    """Ask over HTTP, and close the connection after this number of calls."""
    async with aiohttp.ClientSession() as session:
        headers = served.headers(who.get("user"), who.get("role", Role.USER), who.get("email"))
        asking = asyncio.create_task(session.post(f"{served.url}/graphql", json={"query": query}, headers=headers))
        await until(lambda: count_calls(proxy, operation) >= count)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def remaining_budget(served: Served, user: str) -> float:
    """Return the rest of a caller's budget."""
    return float((await served.ask("{ areas }", user=user)).headers["ratelimit-remaining"])


async def test_keys_that_the_store_left_over_are_not_asked_for_again(served: Served, proxy: Proxy) -> None:
    proxy.always = met("BatchGetItem", BLIP.name, unprocessed)
    await ask_and_leave(served, PROFILES, proxy, "BatchGetItem", 3)
    before = await stays(proxy, "BatchGetItem")
    assert 3 <= before < 900
    proxy.always = None
    assert (await served.ask(PROFILES)).errors is None
    assert count_calls(proxy, "BatchGetItem") == before + 1


async def test_a_client_that_leaves_is_no_error(served: Served, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    proxy.always = met("BatchGetItem", BLIP.name, hang)
    await ask_and_leave(served, PROFILES, proxy, "BatchGetItem", 1)
    await until(lambda: [report.codes for report in served.reports] == [["CANCELLED"]])
    await still_answers(served)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def still_answers(served: Served) -> None:
    """Check that a later request is answered, once pending calls have ended or were cancelled."""
    assert (await served.ask("{ areas }")).errors is None


async def test_a_queued_lookup_of_a_client_that_left_is_dropped(served: Served, proxy: Proxy) -> None:
    proxy.always = met("Query", SPARKS.name, hang)
    await ask_and_leave(served, PHOTOS, proxy, "Query", CONCURRENCY, user="ada", email="ada@example.com")
    await until(lambda: not served.gateway.server.admission.load.running)
    # The first calls return or fail; the others waited for that.
    proxy.closing.set()
    assert await stays(proxy, "Query") == CONCURRENCY


async def test_a_socket_that_completes_its_operation(served: Served, proxy: Proxy) -> None:
    proxy.always = met("BatchGetItem", BLIP.name, unprocessed)
    listener = await served.listen(PROFILES)
    await until(lambda: count_calls(proxy, "BatchGetItem") >= 3)
    await listener.socket.send_json({"id": "1", "type": "complete"})
    assert 3 <= await stays(proxy, "BatchGetItem") < 900
    await still_alive(listener)


async def test_a_socket_that_goes_away(served: Served, proxy: Proxy) -> None:
    proxy.always = met("BatchGetItem", BLIP.name, unprocessed)
    listener = await served.listen(PROFILES)
    await until(lambda: count_calls(proxy, "BatchGetItem") >= 3)
    await listener.socket.close()
    assert 3 <= await stays(proxy, "BatchGetItem") < 900


class TestBudgets:
    """Reads for a caller that leaves early are charged, although no caller receives them."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=BUDGET)

    async def test_a_client_that_leaves_gets_no_refund(self, served: Served, proxy: Proxy) -> None:
        proxy.always = met("Query", SPARKS.name, hang)
        await ask_and_leave(served, PHOTOS, proxy, "Query", CONCURRENCY, user="ada", email="ada@example.com")
        await until(lambda: bool(served.reports))
        (report,) = served.reports
        assert report.codes == ["CANCELLED"]
        assert report.cost < report.estimate
        assert await remaining_budget(served, "ada") == pytest.approx(BUDGET.budget_units - report.estimate, abs=2)

    async def test_a_subscriber_that_leaves_at_the_start(self, served: Served, proxy: Proxy) -> None:
        proxy.always = met("Scan", ACTIVE_MATCHES.name, hang)
        listener = await served.listen("subscription { liveScores { isSnapshot } }", user="bob")
        await until(lambda: "Scan" in proxy.operations())
        served.reports.clear()
        await listener.socket.close()
        await until(lambda: bool(served.reports))
        (report,) = served.reports
        assert await remaining_budget(served, "bob") == pytest.approx(BUDGET.budget_units - report.estimate, abs=2)

    async def test_a_client_that_stays_gets_the_unused_charge_back(self, served: Served) -> None:
        answer = await served.ask(PHOTOS, user="ada", email="ada@example.com")
        assert answer.errors is None
        spent = sum(call.cost for call in answer.calls)
        assert await remaining_budget(served, "ada") == pytest.approx(BUDGET.budget_units - spent, abs=2)
        assert spent < 2 * CONCURRENCY


async def still_alive(listener: Listener) -> None:
    await listener.socket.send_json({"id": "2", "type": "subscribe", "payload": {"query": "{ areas }"}})
    assert (await listener.message())["type"] == "next"


class TestDeadline:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, deadline_seconds=3.0, capacity=BUDGET)

    @pytest.mark.proof
    async def test_an_operation_that_takes_too_long(self, served: Served, proxy: Proxy) -> None:
        proxy.always = met("Query", SPARKS.name, hang)
        answer = await served.ask(PHOTOS, user="ada", email="ada@example.com")
        assert set(answer.codes) == {"TIMEOUT"}
        # The calls that were made all the same are not known: nothing is refunded.
        (report,) = served.reports
        assert await remaining_budget(served, "ada") == pytest.approx(BUDGET.budget_units - report.estimate, abs=2)
        before = count_calls(proxy, "Query")
        proxy.closing.set()
        assert await stays(proxy, "Query") == before < 2 * CONCURRENCY


# --- One store --------------------------------------------------------------------------------------------------------


def reads_of(store: Store, *names: str) -> "list[asyncio.Task[Any]]":
    return [asyncio.create_task(store.get(BLIPS, Key(name, "S"))) for name in names]


async def test_reads_queued_behind_a_list_are_dropped(served: Served, proxy: Proxy) -> None:
    store = served.store()
    with store.defer_dispatch():
        reads = reads_of(store, "a", "b")
        await asyncio.sleep(0.01)
        store.close()
    await asyncio.gather(*reads, return_exceptions=True)
    assert all(read.cancelled() for read in reads)
    assert await stays(proxy, "BatchGetItem") == 0
    # Cancelled reads are made again for the next caller.
    assert await asyncio.gather(*reads_of(store, "a", "b")) == [None, None]
    assert count_calls(proxy, "BatchGetItem") == 1


async def test_a_reader_that_leaves_takes_nothing_from_those_that_share_the_read(served: Served, proxy: Proxy) -> None:
    store = served.store()
    held = asyncio.Event()

    async def hold(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await held.wait()
        return await forward(proxy, seen)

    proxy.always = met("GetItem", BLIP.name, hold)
    first, second = reads_of(store, "a", "a")
    await until(lambda: count_calls(proxy, "GetItem") == 1)
    first.cancel()
    await asyncio.sleep(0)
    held.set()
    assert await second is None
    assert count_calls(proxy, "GetItem") == 1
