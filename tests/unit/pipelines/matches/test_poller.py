"""Ticks: their owner, their calls, and their interruption at any point."""

import asyncio
import random
from contextlib import suppress
from datetime import date
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.dynamodb.calls import Call
from datastore.dynamodb.transport import STREAM_OPERATIONS
from datastore.keyspace.matches.locks import match_lock
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.cricket_events import CricketEvent
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from datastore.matches.locks import Locks
from datastore.model.identity import Role
from pipelines.demo.match import demo_match
from pipelines.matches.live.poller import TickOutcome
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.provider import ProviderUnavailable
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.served import Served, call_name
from tests.support.until import until

BEHIND = STREAM_OPERATIONS | {"DescribeTable"}


def demo_replay(served: Served, balls_per_tick: int = 6) -> ReplayProvider:
    recording = read(demo_match(random.Random(5), 1, date(2026, 6, 25)), match_id="m1")
    return ReplayProvider([recording], now=served.clock, balls_per_tick=balls_per_tick)


async def registered(served: Served, instance_id: str = "one", provider: ReplayProvider | None = None) -> ActiveMatch:
    snapshot = await (provider or demo_replay(served)).match("m1")
    assert snapshot is not None
    await fixtures_of(served).sync([snapshot.match])
    stored = await fixtures_of(served).latest("m1")
    assert stored is not None
    return await active_matches_of(served).register(stored, instance_id=instance_id)


def active_matches_of(served: Served) -> ActiveMatches:
    return ActiveMatches(served.store(), served.clock())


def fixtures_of(served: Served) -> Fixtures:
    return Fixtures(served.store(), served.clock())


async def active_match_of(served: Served) -> ActiveMatch:
    active = await active_matches_of(served).latest("m1")
    assert active is not None
    return active


async def stored_match(served: Served) -> Match:
    match = await fixtures_of(served).latest("m1")
    assert match is not None
    return match


async def active_match_item(served: Served) -> dict[str, Any]:
    """Return the stored item of the active match."""
    database = served.gateway.database
    assert database is not None
    request = {"TableName": database.prefix + "active-matches", "Key": {"matchId": {"S": "m1"}}}
    found: dict[str, Any] = (await database.client.call("GetItem", request))["Item"]
    return found


class Counted:
    """The calls of the process, and an interruption at one of them."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        self._client = served.gateway.database.client
        self.calls: list[str] = []
        self.at: dict[int, Any] = {}

    def __enter__(self) -> "Counted":
        self._stop = self._client.add_call_listener(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _called(self, call: Call) -> None:
        if call.operation not in BEHIND:
            self.calls.append(call_name(call))
            self.at.get(len(self.calls), lambda: None)()


async def test_a_changed_tick_makes_these_calls(served: Served) -> None:
    instance = PipelineInstance(served, demo_replay(served))
    await registered(served)
    await instance.poller.tick("m1")
    await instance.poller.tick("m1")

    with Counted(served) as counted:
        assert await instance.poller.tick("m1") is TickOutcome.CHANGED

    assert counted.calls[0] == "PutItem cricket-locks"
    assert sorted(counted.calls[1:3]) == ["GetItem active-matches", "GetItem cricket-fixtures"]  # at the same time
    assert counted.calls[3:] == [
        "UpdateItem cricket-fixtures",
        "UpdateItem active-matches",
        "PutItem cricket-fixture-cache",
        "DeleteItem cricket-locks",
    ]


async def test_a_tick_without_changes_writes_only_its_time(served: Served) -> None:
    provider = demo_replay(served)
    instance = PipelineInstance(served, _ConstantProvider(await _snapshot_after(provider, ticks=5)))
    await registered(served)
    await instance.poller.tick("m1")
    await instance.poller.tick("m1")
    before = await active_match_item(served)
    served.clock.forward(seconds=4)

    with Counted(served) as counted:
        assert await instance.poller.tick("m1") is TickOutcome.UNCHANGED

    # Both reads are sent in one batch.
    assert [counted.calls[0], *sorted(counted.calls[1:3]), *counted.calls[3:]] == [
        "PutItem cricket-locks",
        "GetItem active-matches",
        "GetItem cricket-fixtures",
        "UpdateItem active-matches",
        "DeleteItem cricket-locks",
    ]
    after = await active_match_item(served)
    assert {name for name in after if after[name] != before.get(name)} == {"lastTickAt"}


class _ConstantProvider(ReplayProvider):
    """A provider that returns the same snapshot until a test changes it."""

    def __init__(self, snapshot: MatchSnapshot | Exception) -> None:
        self.snapshot = snapshot

    async def match(self, match_id: str) -> MatchSnapshot:
        if isinstance(self.snapshot, Exception):
            raise self.snapshot
        return self.snapshot


async def _snapshot_after(provider: ReplayProvider, ticks: int) -> MatchSnapshot:
    for _ in range(ticks):
        snapshot = await provider.match("m1")
    assert snapshot is not None
    return snapshot


async def test_only_one_of_two_pollers_writes(served: Served) -> None:
    provider = demo_replay(served)
    first, second = PipelineInstance(served, provider, "one"), PipelineInstance(served, provider, "two")
    await registered(served, "one")

    ended = [await asyncio.gather(first.poller.tick("m1"), second.poller.tick("m1")) for _ in range(20)]
    await first.poller.tick("m1")  # alone: the second may have locked the match in every race

    assert {ticks[1] for ticks in ended} <= {TickOutcome.LOCKED, TickOutcome.LOST}
    assert second.changes == []
    versions = [change.active.version for change in first.changes]
    assert versions == list(range(1, len(versions) + 1))
    assert (await active_match_of(served)).version == versions[-1]


async def test_only_one_of_two_claims_of_a_match_remains(served: Served) -> None:
    active = await registered(served, "dead")
    claims = await asyncio.gather(
        *[active_matches_of(served).claim(active, f"claimer {number}") for number in range(10)]
    )

    (won,) = [claim for claim in claims if claim is not None]
    assert (await active_match_of(served)).instance_id == won.instance_id
    assert won.fence == active.fence + 1


class _HeldProvider(ReplayProvider):
    """A provider that responds when the test releases it."""

    gate: asyncio.Event
    requested: asyncio.Event

    async def match(self, match_id: str) -> MatchSnapshot | None:
        snapshot = await super().match(match_id)
        self.requested.set()
        await self.gate.wait()
        return snapshot


@pytest.mark.proof
async def test_a_poller_paused_beyond_its_lock_writes_nothing(served: Served) -> None:
    recording = read(demo_match(random.Random(5), 1, date(2026, 6, 25)), match_id="m1")
    slow = _HeldProvider([recording], now=served.clock, balls_per_tick=90)
    slow.gate, slow.requested = asyncio.Event(), asyncio.Event()
    sleeper, other = PipelineInstance(served, slow, "sleeper"), PipelineInstance(served, demo_replay(served), "other")
    await registered(served, "sleeper")
    asleep = asyncio.create_task(sleeper.poller.tick("m1"))
    await slow.requested.wait()
    served.clock.forward(seconds=21)
    await other.orchestrator.reconcile()
    await until(lambda: len(other.changes) >= 2)
    await other.orchestrator.aclose()
    before = await active_match_of(served), await stored_match(served)

    slow.gate.set()

    assert await asleep is TickOutcome.LOST
    assert sleeper.changes == []
    assert (await active_match_of(served), await stored_match(served)) == before
    assert await served_locks(served) == []


async def served_locks(served: Served) -> list[Any]:
    answer = await served.ask("{ locks { lockKey owner } }", user="ops", role=Role.SYSTEM)
    return list(answer.data["locks"])


@pytest.mark.parametrize("problem", [ProviderUnavailable("later"), TimeoutError()])
async def test_a_provider_failure_changes_nothing(served: Served, problem: Exception) -> None:
    provider = _ConstantProvider(await _snapshot_after(demo_replay(served), ticks=8))
    instance = PipelineInstance(served, provider)
    await registered(served)
    await instance.poller.tick("m1")
    before = await active_match_of(served)
    provider.snapshot = problem
    served.clock.forward(seconds=4)

    assert await instance.poller.tick("m1") is TickOutcome.FAILED

    after = await active_match_of(served)
    assert after.last_tick_at == served.clock()
    assert (after.version, after.live) == (before.version, before.live)


async def test_a_lock_is_released_after_an_error(served: Served) -> None:
    instance = PipelineInstance(served, _ConstantProvider(RuntimeError("broken")))
    await registered(served)

    with pytest.raises(RuntimeError):
        await instance.poller.tick("m1")

    assert await Locks(served.store(), "two", served.clock()).acquire(match_lock("m1"))


async def test_a_tick_interrupted_at_any_call_loses_and_repeats_no_event(served: Served) -> None:
    """Each tick is interrupted one call later than the previous tick, and another instance continues."""
    expected = await _events_of_a_whole_run(served)
    provider = demo_replay(served, balls_per_tick=12)
    await registered(served, "i0", provider)
    versions: list[int] = []
    events: list[CricketEvent] = []
    for number in range(1, 400):
        instance = PipelineInstance(served, provider, f"i{number}")
        await _take_over(served, instance)
        with suppress(asyncio.CancelledError), Counted(served) as counted:
            task = asyncio.create_task(instance.poller.tick("m1"))
            counted.at[1 + number % 7] = task.cancel
            await task
        active = await active_match_of(served)
        versions.append(active.version)
        events += [event for event in active.events if event.event_id not in {known.event_id for known in events}]
        if provider.is_over("m1") and active.live.result is not None:
            break

    assert versions == sorted(versions)
    assert _ids(events) == _ids(expected)
    last = PipelineInstance(served, provider, "last")
    await _take_over(served, last)
    await last.poller.tick("m1")
    assert (await stored_match(served)).innings == (await active_match_of(served)).live.innings


async def _take_over(served: Served, instance: PipelineInstance) -> None:
    served.clock.forward(seconds=11)
    claimed = await active_matches_of(served).claim(await active_match_of(served), instance.name)
    assert claimed is not None


def _ids(events: list[CricketEvent]) -> list[str]:
    return sorted(event.event_id for event in events)


async def _events_of_a_whole_run(served: Served) -> list[CricketEvent]:
    """Return the events of the same match, played under another id without interruption, with the ids of `m1`."""
    recording = read(demo_match(random.Random(5), 1, date(2026, 6, 25)), match_id="whole")
    provider = ReplayProvider([recording], now=served.clock, balls_per_tick=12)
    instance = PipelineInstance(served, provider)
    snapshot = await provider.match("whole")
    assert snapshot is not None
    await fixtures_of(served).sync([snapshot.match])
    found = await fixtures_of(served).latest("whole")
    assert found is not None
    await active_matches_of(served).register(found, instance_id="one")
    while not provider.is_over("whole"):
        await instance.poller.tick("whole")
    events = [event for change in instance.changes for event in change.active.events]
    return [replace(event, event_id=event.event_id.replace("whole:", "m1:", 1)) for event in events]
