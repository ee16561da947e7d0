"""Incremental responses when the client leaves, when the store hangs, and under a budget."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Identity, Role
from server.admission.callers import Caller
from server.settings import Settings
from tests.support.fault_proxy import Proxy, Seen, forward, hang
from tests.support.incremental import DELIMITER, IDS, PART, all_payloads, asked, with_increments
from tests.support.served import UNBOUGHT, Served
from tests.support.sightings import report_sighting
from tests.support.until import until

TIERS = """{ sightings(area: "Harbor", first: 10) { nodes { id ... @defer { reporter { trustTier } } } } }"""
BUDGET = replace(UNBOUGHT, budget_units=1_000, budget_units_per_second=1e-6)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(with_increments(settings), deadline_seconds=50, capacity=BUDGET)


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    """Route the gateway's calls through the proxy."""
    return replace(store_options, store=proxy.url)


def to_reporters(fault: Callable[[Proxy, Seen], Any]) -> Callable[[Proxy, Seen], Any]:
    """Apply the fault to the reads of reporters, and forward the other calls."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        is_read = seen.operation in ("GetItem", "BatchGetItem") and BLIP.name in str(seen.body)
        return await (fault if is_read else forward)(proxy, seen)

    return answer


async def two_sightings(served: Served) -> None:
    for user in ("ben", "cleo"):
        await report_sighting(served, area="Harbor", category="Cats", user=user)
    served.reports.clear()


def reads(proxy: Proxy) -> int:
    return sum(seen.operation == "BatchGetItem" for seen in proxy.seen)


async def unprocessed_keys(_proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond as a table that is too busy to read anything."""
    return web.Response(body=orjson.dumps({"Responses": {}, "UnprocessedKeys": seen.body["RequestItems"]}))


async def test_a_client_that_leaves_ends_the_reads_of_deferred_fragments(
    served: Served, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Backoff(initial=0.001, maximum=0.002, attempts=9_000)
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", patience)
    await two_sightings(served)
    proxy.always = to_reporters(unprocessed_keys)
    async with asked(served, TIERS, IDS, user="ada") as response:
        await response.content.readuntil(DELIMITER + PART)
        await until(lambda: reads(proxy) >= 3)
        response.close()
    await until(lambda: bool(served.reports))
    [report] = served.reports
    assert report.codes == ["CANCELLED"]
    before = reads(proxy)
    proxy.always = None
    assert len(await all_payloads(served, TIERS, user="ada")) == 2
    assert reads(proxy) == before + 1


async def test_a_socket_that_completes_an_operation_ends_its_reads(served: Served, proxy: Proxy) -> None:
    await two_sightings(served)
    proxy.always = to_reporters(hang)
    listener = await served.listen(TIERS, user="ada")
    assert (await listener.message())["payload"]["hasNext"] is True
    await until(lambda: reads(proxy) == 1)
    await listener.socket.send_json({"id": "1", "type": "complete"})
    await until(lambda: bool(served.reports))
    assert [report.codes for report in served.reports] == [["CANCELLED"]]
    await listener.socket.close()


async def test_the_budget_is_charged_once_for_all_parts(served: Served) -> None:
    await two_sightings(served)

    async def remaining() -> float:
        allowance = await served.gateway.server.admission.budgets.settle(Caller(Identity("ada", Role.USER)), 0.0)
        assert allowance is not None
        return allowance.remaining

    costs = []
    for query in (TIERS, TIERS.replace("@defer", "@defer(if: false)"), TIERS):
        await served.ask("{ areas }", user="ada")
        before = await remaining()
        if "if: false" in query:
            await served.ask(query, user="ada")
        else:
            await all_payloads(served, query, user="ada")
        costs.append(before - await remaining())
    assert costs[0] == pytest.approx(costs[2], abs=0.01)
    assert costs[0] == pytest.approx(costs[1], abs=0.05)  # the parts have more bytes
    assert costs[0] > 1


class TestDeadline:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, deadline_seconds=1.5)

    async def test_the_deadline_ends_fragments_whose_reads_hang(self, served: Served, proxy: Proxy) -> None:
        await two_sightings(served)
        proxy.always = to_reporters(hang)
        payloads = await all_payloads(served, TIERS, user="ada")
        assert len(payloads[0]["data"]["sightings"]["nodes"]) == 2
        ended = [part for payload in payloads[1:] for part in payload["completed"]]
        assert [part["errors"][0]["extensions"]["code"] for part in ended] == ["TIMEOUT"] * 2
        [report] = served.reports
        assert report.codes == ["TIMEOUT"]
