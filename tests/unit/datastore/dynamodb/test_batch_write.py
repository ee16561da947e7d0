"""Batch writes: 25 items a call, unprocessed items are sent again, and none is lost silently."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, Throttled
from datastore.keyspace.matches.team_seasons import TEAM_SEASONS
from datastore.keyspace.matches.teams import TEAMS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.fault_proxy import Proxy, Seen, client_of, forward, hang, refuse
from tests.support.served import NOON, call_name

ALL_TEAMS = AccessPattern("T-1", "", TEAMS, ("Scan",), Who.ANY)
ALL_ROWS = AccessPattern("T-2", "", TEAM_SEASONS, ("Scan",), Who.ANY)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=4))


@pytest.fixture
async def store(proxy: Proxy, database: Database) -> AsyncIterator[Store]:
    async with client_of(proxy) as client:
        yield Store(client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)


def teams(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"teamId": f"t{number}", "name": f"Team {number}", **more} for number in range(count)]


async def test_sixty_items_are_three_calls(store: Store) -> None:
    await store.write_all(TEAMS, puts=teams(60))

    assert [call_name(call) for call in store.meter.calls] == ["BatchWriteItem cricket-teams"] * 3
    assert len(await store.scan(ALL_TEAMS)) == 60


async def test_an_empty_batch_makes_no_call(store: Store) -> None:
    await store.write_all(TEAMS)

    assert store.meter.calls == []


async def test_puts_and_deletes_share_calls_and_the_last_of_two_with_one_key_counts(store: Store) -> None:
    rows = [{"seasonId": "s", "teamId": f"t{number}", "won": number} for number in range(4)]
    await store.write_all(TEAM_SEASONS, puts=rows)

    await store.write_all(
        TEAM_SEASONS,
        puts=[{"seasonId": "s", "teamId": "t9", "won": 1}, {"seasonId": "s", "teamId": "t9", "won": 2}],
        deletes=[Key("s", "t0"), Key("s", "t1")],
    )

    kept = await store.scan(ALL_ROWS)
    assert {(row["teamId"], row["won"]) for row in kept} == {("t2", 2), ("t3", 3), ("t9", 2)}


async def test_an_item_read_before_is_read_again_after_a_write(store: Store) -> None:
    team = AccessPattern("T-3", "", TEAMS, ("GetItem",), Who.ANY)
    await store.write_all(TEAMS, puts=teams(1))
    assert (await store.get(team, Key("t0")) or {})["name"] == "Team 0"

    await store.write_all(TEAMS, puts=[{"teamId": "t0", "name": "Other"}])

    assert (await store.get(team, Key("t0")) or {})["name"] == "Other"


async def test_an_invalid_key_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(BadUserInput):
        await store.write_all(TEAMS, puts=[*teams(30), {"teamId": ""}])

    assert await store.scan(ALL_TEAMS) == []


async def test_items_that_stay_unprocessed_are_sent_again(store: Store, proxy: Proxy) -> None:
    for kept in (20, 5):
        proxy.faults.append(_leave(kept))

    await store.write_all(TEAMS, puts=teams(25))

    sent = [len(requests) for seen in proxy.seen for requests in seen.body["RequestItems"].values()]
    assert sent == [25, 20, 5]
    assert len(await store.scan(ALL_TEAMS)) == 25


async def test_items_that_are_never_processed_are_reported_and_the_others_are_written(
    store: Store, proxy: Proxy
) -> None:
    proxy.always = _leave(3)

    with pytest.raises(Throttled, match="3 of 25"):
        await store.write_all(TEAMS, puts=teams(25))

    proxy.always = None
    assert len(await store.scan(ALL_TEAMS)) == 22


async def test_a_batch_of_several_megabytes_is_sent(store: Store) -> None:
    await store.write_all(TEAMS, puts=teams(25, history="x" * 200_000))

    assert len(await store.scan(ALL_TEAMS)) == 25


async def test_a_write_has_ended_when_it_is_reported_as_failed(store: Store, proxy: Proxy) -> None:
    """A reader then sees everything that was written: no batch arrives later."""
    slow = _Slow()
    proxy.faults.extend([refuse(400, "ValidationException"), slow, slow])

    with pytest.raises(RequestRefused):
        await store.write_all(TEAMS, puts=teams(75))

    assert (slow.began, slow.ended) == (2, 2)
    assert len(await store.scan(ALL_TEAMS)) == 50


async def test_a_cancelled_caller_leaves_no_batch_in_flight(store: Store, proxy: Proxy) -> None:
    proxy.always = hang
    tasks = asyncio.all_tasks()
    writing = asyncio.create_task(store.write_all(TEAMS, puts=teams(75)))
    while len(proxy.seen) < 3:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)
    begun = asyncio.all_tasks() - tasks

    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    batches = [task for task in begun if "write_batches" in repr(task.get_coro())]
    assert len(batches) == 3
    assert all(task.done() for task in batches)


class _Slow:
    """A fault that answers long after other calls have been answered."""

    def __init__(self) -> None:
        self.began = self.ended = 0

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        self.began += 1
        await asyncio.sleep(0.1)
        answer = await forward(proxy, seen)
        self.ended += 1
        return answer


def _leave(count: int) -> Any:
    """Return a fault that leaves the last `count` items of a batch unprocessed."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        ((table, requests),) = seen.body["RequestItems"].items()
        done = requests[: max(0, len(requests) - count)]
        answered: dict[str, Any] = {}
        if done:
            _, _, content = await proxy.ask(Seen(seen.operation, {"RequestItems": {table: done}}, seen.request))
            answered = orjson.loads(content)
        return web.Response(body=orjson.dumps(answered | {"UnprocessedItems": {table: requests[len(done) :]}}))

    return answer
