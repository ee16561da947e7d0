"""The scan cache keeps results for 30 seconds: one Scan for all, dropped by writes, and never a failure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item
from datastore.errors import Timeout, Unavailable
from datastore.keyspace.matches.leagues import ACTIVE_LEAGUES, ALL_LEAGUES, LEAGUES
from datastore.keyspace.matches.teams import ALL_TEAMS, TEAMS
from datastore.model.identity import Role
from datastore.session.metering import Deadline
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from tests.support.fault_proxy import Fault, Proxy, Seen, hang, plain_error
from tests.support.served import NOON, Clock, Served, call_name
from tests.support.until import until

TEAMS_AND_LEAGUES = (
    "{ teams { nodes { name } } leagues { nodes { name } } active: leagues(active: true) { nodes { name } } }"
)
SETUP = """mutation {
  syncTeams(input: [{teamId: "1", name: "One", code: "ONE"}]) { teamId }
  putLeague(id: "1", input: {name: "One", code: "ONE"}) { leagueId }
}"""


# Through the API


async def setup(served: Served) -> None:
    assert (await served.ask(SETUP, user="job", role=Role.SYSTEM)).errors is None


async def test_a_second_request_makes_no_call_until_30_seconds_have_passed(served: Served) -> None:
    await setup(served)

    first = await served.ask(TEAMS_AND_LEAGUES)
    served.clock.forward(seconds=29.999)
    second = await served.ask(TEAMS_AND_LEAGUES)
    served.clock.forward(seconds=0.001)
    third = await served.ask(TEAMS_AND_LEAGUES)

    scans = ["Scan cricket-leagues", "Scan cricket-leagues", "Scan cricket-teams"]
    assert (first.made, second.made, third.made) == (scans, [], scans)
    assert first.data == second.data == third.data


async def test_setting_the_clock_back_does_not_extend_the_lifetime(served: Served) -> None:
    await served.ask("{ teams { nodes { name } } }")
    served.clock.forward(seconds=-1)

    assert (await served.ask("{ teams { nodes { name } } }")).made == ["Scan cricket-teams"]


@pytest.mark.parametrize(
    ("role", "write", "scans"),
    [
        (Role.SYSTEM, 'syncTeams(input: [{teamId: "2", name: "Two", code: "TWO"}]) { teamId }', {"teams": 1}),
        (Role.ADMIN, 'updateTeam(id: "1", input: {name: "First"}) { teamId }', {"teams": 1}),
        (Role.SYSTEM, 'putLeague(id: "2", input: {name: "Two", code: "TWO"}) { code }', {"leagues": 2}),
        (Role.ADMIN, 'updateLeague(id: "1", input: {active: false}) { code }', {"leagues": 2}),
        (Role.ADMIN, 'deleteLeague(id: "1") { code }', {"leagues": 2}),
    ],
)
async def test_a_write_is_seen_by_the_next_request(
    served: Served, role: Role, write: str, scans: dict[str, int]
) -> None:
    await setup(served)
    before = await served.ask(TEAMS_AND_LEAGUES)

    assert (await served.ask(f"mutation {{ {write} }}", user="root", role=role)).errors is None
    after = await served.ask(TEAMS_AND_LEAGUES)

    assert after.made == [f"Scan cricket-{table}" for table, count in scans.items() for _ in range(count)]
    assert after.data != before.data


async def test_a_write_without_an_effect_leaves_the_list_correct(served: Served) -> None:
    await setup(served)
    before = await served.ask(TEAMS_AND_LEAGUES)

    deleted = await served.ask('mutation { deleteLeague(id: "none") { code } }', user="root", role=Role.ADMIN)

    assert deleted.data == {"deleteLeague": None}
    assert (await served.ask(TEAMS_AND_LEAGUES)).data == before.data


async def test_writes_of_a_job_are_seen_when_it_reports_them(served: Served) -> None:
    await setup(served)
    await served.ask("{ teams { nodes { name } } }")
    await served.store().write_all(TEAMS, puts=[{"teamId": "2", "name": "Two", "code": "TWO"}])
    services = served.gateway.services
    assert services is not None

    unaware = await served.ask("{ teams { nodes { name } } }")
    services.scan_cache.invalidate(TEAMS)
    aware = await served.ask("{ teams { nodes { name } } }")

    assert [len(answer.data["teams"]["nodes"]) for answer in (unaware, aware)] == [1, 2]


async def test_fifty_requests_at_once_make_one_scan(served: Served) -> None:
    await setup(served)
    assert served.gateway.database is not None
    calls: list[Call] = []
    served.gateway.database.client.add_call_listener(calls.append)

    answers = await asyncio.gather(*[served.ask("{ teams { nodes { name } } }") for _ in range(50)])

    assert [answer.data for answer in answers] == [{"teams": {"nodes": [{"name": "One"}]}}] * 50
    assert [call_name(call) for call in calls] == ["Scan cricket-teams"]


# Between client and engine


@pytest.fixture
def open_store(client: Client, database: Database) -> Callable[..., Store]:
    """Return a function that opens a store whose requests go through the proxy."""

    def store(seconds: float = 10) -> Store:
        return Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "", now=lambda: NOON)

    return store


@pytest.fixture
async def fill(database: Database) -> Callable[..., Awaitable[None]]:
    """Return a function that writes teams without the proxy."""

    async def put(*ids: str) -> None:
        store = Store(
            database.client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON
        )
        await store.write_all(TEAMS, puts=[{"teamId": id} for id in ids])

    return put


@pytest.fixture
def remembered(open_store: Callable[..., Store], clock: Clock) -> ScanCache:
    return ScanCache(open_store, clock)


def team_ids(items: Sequence[Item]) -> list[str]:
    return sorted(item["teamId"] for item in items)


def hold_until(release: asyncio.Event) -> Fault:
    """Return a fault: the engine answers at once, and its response is held until `release` is set."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        await release.wait()
        return web.Response(status=status, headers=headers, body=content)

    return answer


async def test_a_failure_is_passed_to_all_waiters_and_not_cached(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    proxy.faults.extend([plain_error(500)] * 4)

    failed = await asyncio.gather(
        *[remembered.scan(open_store(), ALL_TEAMS, team_ids) for _ in range(5)], return_exceptions=True
    )
    found = await remembered.scan(open_store(), ALL_TEAMS, team_ids)

    assert [type(problem) for problem in failed] == [Unavailable] * 5
    assert found == ["1"]
    assert len(proxy.seen) == 5


async def test_a_result_that_cannot_be_converted_is_not_cached(
    open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")

    def fail(_: Sequence[Item]) -> list[str]:
        raise KeyError("name")

    with pytest.raises(KeyError):
        await remembered.scan(open_store(), ALL_TEAMS, fail)

    assert await remembered.scan(open_store(), ALL_TEAMS, team_ids) == ["1"]


async def test_a_cancelled_caller_does_not_end_the_scan_of_the_others(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    release = asyncio.Event()
    proxy.always = hold_until(release)
    first = asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids))
    others = [asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids)) for _ in range(2)]
    await until(lambda: len(proxy.seen) == 1)

    first.cancel()
    await asyncio.wait([first])
    release.set()

    assert first.cancelled()
    assert await asyncio.gather(*others) == [["1"], ["1"]]
    assert len(proxy.seen) == 1


async def test_a_scan_whose_only_caller_was_cancelled_is_kept_for_the_next(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    release = asyncio.Event()
    proxy.always = hold_until(release)
    first = asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids))
    await until(lambda: len(proxy.seen) == 1)
    first.cancel()
    await asyncio.wait([first])
    release.set()

    assert await remembered.scan(open_store(), ALL_TEAMS, team_ids) == ["1"]
    assert len(proxy.seen) == 1


async def test_a_caller_waits_no_longer_than_its_own_deadline(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    release = asyncio.Event()
    proxy.always = hold_until(release)
    patient = asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids))
    await until(lambda: len(proxy.seen) == 1)

    with pytest.raises(Timeout):
        await remembered.scan(open_store(0.01), ALL_TEAMS, team_ids)
    release.set()

    assert await patient == ["1"]


async def test_the_scan_of_a_caller_short_of_time_has_its_own_deadline(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    release = asyncio.Event()
    proxy.always = hold_until(release)

    with pytest.raises(Timeout):
        await remembered.scan(open_store(0.05), ALL_TEAMS, team_ids)
    release.set()

    assert await remembered.scan(open_store(), ALL_TEAMS, team_ids) == ["1"]
    assert len(proxy.seen) == 1


async def test_a_scan_without_end_is_ended_by_its_deadline(
    proxy: Proxy, open_store: Callable[..., Store], clock: Clock
) -> None:
    deadlines = [0.05]
    remembered = ScanCache(lambda: open_store(*deadlines), clock)
    proxy.always = hang  # the deadline may pass before the request reaches the proxy

    with pytest.raises(Timeout):
        await remembered.scan(open_store(), ALL_TEAMS, team_ids)
    proxy.always = None
    deadlines.clear()

    assert await remembered.scan(open_store(), ALL_TEAMS, team_ids) == []


async def test_a_write_during_a_scan_is_seen_by_all_later_callers(
    proxy: Proxy, open_store: Callable[..., Store], fill: Any, remembered: ScanCache
) -> None:
    await fill("1")
    release = asyncio.Event()
    answered = asyncio.Event()

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        answered.set()
        await release.wait()
        return web.Response(status=status, headers=headers, body=content)

    proxy.faults.append(answer)
    before = asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids))
    await answered.wait()

    await fill("2")
    remembered.invalidate(TEAMS)
    after = await remembered.scan(open_store(), ALL_TEAMS, team_ids)
    release.set()

    assert (after, await before) == (["1", "2"], ["1"])
    assert await remembered.scan(open_store(), ALL_TEAMS, team_ids) == ["1", "2"]
    assert len(proxy.seen) == 2


async def test_a_table_that_is_dropped_leaves_the_others(
    proxy: Proxy, open_store: Callable[..., Store], remembered: ScanCache
) -> None:
    async def read() -> int:
        for pattern, values in ((ALL_TEAMS, {}), (ALL_LEAGUES, {}), (ACTIVE_LEAGUES, {"active": True})):
            await remembered.scan(open_store(), pattern, len, **values)
        return len(proxy.seen)

    assert await read() == 3
    assert await read() == 3
    remembered.invalidate(LEAGUES)
    assert await read() == 5


async def test_the_scan_is_metered_for_the_caller_that_started_it(
    open_store: Callable[..., Store], remembered: ScanCache
) -> None:
    first, second = open_store(), open_store()

    await asyncio.gather(*[remembered.scan(store, ALL_TEAMS, team_ids) for store in (first, second)])

    assert [call.operation for call in first.meter.calls] == ["Scan"]
    assert second.meter.calls == []


async def test_running_scans_end_when_the_gateway_stops(
    proxy: Proxy, open_store: Callable[..., Store], remembered: ScanCache
) -> None:
    proxy.always = hang
    caller = asyncio.create_task(remembered.scan(open_store(), ALL_TEAMS, team_ids))
    await until(lambda: len(proxy.seen) == 1)

    await remembered.aclose()

    with pytest.raises(Unavailable):
        await caller
