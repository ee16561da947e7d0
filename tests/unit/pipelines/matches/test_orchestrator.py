"""The matches that an instance polls: their start, their takeover and their suspension."""

import asyncio
from datetime import timedelta

import pytest

from datastore.keyspace.matches.locks import match_lock
from datastore.matches.live_state import ActiveStatus
from datastore.matches.locks import Locks, all_locks
from tests.support.active_matches import active_match_state, matches
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.orchestrator import FAST_INTERVALS, ScriptedReplay, fixture, has_changes, has_status
from tests.support.served import Served
from tests.support.until import until_async


async def _is_free(served: Served, match_id: str) -> bool:
    return match_lock(match_id) not in [lock.name for lock in await all_locks(served.store())]


async def test_a_match_that_goes_live_is_stored_and_polled(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", "m2")
    instance = PipelineInstance(served, provider, **FAST_INTERVALS)

    await instance.orchestrator.reconcile()

    assert instance.orchestrator.polled == {"m1", "m2"}
    await until_async(lambda: has_changes(instance, "m1", "m2"))
    assert (await active_match_state(served, "m1")).instance_id == "one"
    assert (await fixture(served, "m2")).league_code == "LBL"
    await instance.orchestrator.aclose()


async def test_many_instances_share_the_matches_and_none_is_polled_twice(served: Served) -> None:
    ids = [f"m{number}" for number in range(12)]
    provider = ScriptedReplay(served, *ids)
    instances = [PipelineInstance(served, provider, f"i{number}", tick_seconds=60) for number in range(4)]

    await asyncio.gather(*[instance.orchestrator.reconcile() for instance in instances])

    polled = [match_id for instance in instances for match_id in instance.orchestrator.polled]
    assert sorted(polled) == sorted(ids)
    for instance in instances:
        await instance.orchestrator.aclose()


async def test_reconciling_again_changes_nothing(served: Served) -> None:
    instance = PipelineInstance(served, ScriptedReplay(served, "m1"), tick_seconds=60)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    before = await active_match_state(served, "m1")

    for _ in range(3):
        await instance.orchestrator.reconcile()

    assert await active_match_state(served, "m1") == before
    await instance.orchestrator.aclose()


async def test_a_match_of_a_dead_instance_is_taken_over_once_its_lock_is_free(served: Served) -> None:
    provider = ScriptedReplay(served, "m1")
    dead = PipelineInstance(served, provider, "dead", tick_seconds=60)
    await dead.orchestrator.reconcile()
    await until_async(lambda: has_changes(dead, "m1"))
    await until_async(lambda: _is_free(served, "m1"))  # the tick releases its lock after its callback
    before = await active_match_state(served, "m1")
    assert await Locks(served.store(), "dead", served.clock()).acquire(match_lock("m1"), 60)
    other = PipelineInstance(served, provider, "other", tick_seconds=60)

    served.clock.forward(seconds=11)
    await other.orchestrator.reconcile()
    assert other.orchestrator.polled == set()
    served.clock.forward(seconds=60)
    await other.orchestrator.reconcile()

    assert other.orchestrator.polled == {"m1"}
    claimed = await active_match_state(served, "m1")
    assert (claimed.instance_id, claimed.fence) == ("other", before.fence + 1)
    assert claimed.version >= before.version
    await other.orchestrator.aclose()


async def test_a_match_is_not_taken_from_a_poller_with_a_late_clock_until_it_is_silent(
    served: Served,
) -> None:
    """Two clocks differ by ten seconds: by the stored times alone, each tick was one lock lifetime ago."""
    provider = ScriptedReplay(served, "m1")
    late = PipelineInstance(
        served, provider, "late", now=lambda: served.clock() - timedelta(seconds=5), tick_seconds=60
    )
    early = PipelineInstance(
        served, provider, "early", now=lambda: served.clock() + timedelta(seconds=5), tick_seconds=60
    )
    await late.orchestrator.reconcile()
    await until_async(lambda: has_changes(late, "m1"))
    await until_async(lambda: _is_free(served, "m1"))

    for _ in range(4):
        served.clock.forward(seconds=5)
        await late.poller.tick("m1")
        served.clock.forward(seconds=1)
        await early.orchestrator.reconcile()
        assert early.orchestrator.polled == set()
    served.clock.forward(seconds=11)
    await early.orchestrator.reconcile()

    assert early.orchestrator.polled == {"m1"}
    await late.orchestrator.aclose()
    await early.orchestrator.aclose()


async def test_an_instance_that_stops_releases_its_matches_at_once(served: Served) -> None:
    provider = ScriptedReplay(served, "m1")
    instance, other = (
        PipelineInstance(served, provider, "one", **FAST_INTERVALS),
        PipelineInstance(served, provider, "other", **FAST_INTERVALS),
    )
    running = asyncio.create_task(instance.orchestrator.run())
    await until_async(lambda: has_changes(instance, "m1"))
    running.cancel()
    await asyncio.wait([running])

    await other.orchestrator.reconcile()

    assert other.orchestrator.polled == {"m1"}
    await other.orchestrator.aclose()


async def test_a_deactivated_match_stays_unlisted(served: Served) -> None:
    instance = PipelineInstance(served, ScriptedReplay(served, "m1"), **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await matches(served).deactivate("m1")

    for _ in range(3):
        await instance.orchestrator.reconcile()

    assert (await active_match_state(served, "m1")).status is ActiveStatus.ENDED
    await instance.orchestrator.aclose()


async def test_a_match_that_was_ticked_while_the_provider_was_slow_is_not_taken_over(served: Served) -> None:
    """The match is ticked after the other instance read the list, and before it reads the match."""
    provider = ScriptedReplay(served, "m1")
    instance, other = (PipelineInstance(served, provider, name, tick_seconds=60) for name in ("one", "other"))
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    seen = await active_match_state(served, "m1")
    served.clock.forward(seconds=11)
    assert await matches(served).record_tick("m1", seen.fence)

    await other.orchestrator._take_over(seen)

    assert (await active_match_state(served, "m1")).instance_id == "one"
    assert other.orchestrator.polled == set()
    await instance.orchestrator.aclose()


async def test_a_match_is_suspended_between_days_and_continues_from_its_state(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", balls_per_tick=24)
    instance = PipelineInstance(served, provider, tick_seconds=60)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    listed, provider.listed = provider.listed, set()
    await instance.orchestrator.reconcile()
    assert (await active_match_state(served, "m1")).status is ActiveStatus.ACTIVE
    served.clock.forward(minutes=15)

    await instance.orchestrator.reconcile()
    resting = await active_match_state(served, "m1")
    assert resting.status is ActiveStatus.IDLE
    assert instance.orchestrator.polled == set()
    provider.listed = listed
    await instance.orchestrator.reconcile()

    restarted = await active_match_state(served, "m1")
    assert restarted.status is ActiveStatus.ACTIVE
    assert restarted.version >= resting.version
    assert restarted.previous_ball_id >= resting.previous_ball_id
    event_ids = [event.event_id for change in instance.changes for event in change.active.events]
    assert len(event_ids) == len(set(event_ids))
    await instance.orchestrator.aclose()


async def test_a_match_unknown_to_the_provider_is_suspended_and_ended_after_a_day(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.matches.live.orchestrator.MISSING_TICKS", 3)
    provider = ScriptedReplay(served, "m1")
    instance = PipelineInstance(served, provider, **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    provider.unknown.add("m1")
    provider.listed = set()
    await until_async(lambda: has_status(served, ActiveStatus.IDLE))
    await instance.orchestrator.reconcile()
    assert instance.ended == []

    served.clock.forward(days=1)
    await instance.orchestrator.reconcile()

    await until_async(lambda: has_status(served, ActiveStatus.ENDED))
    assert instance.ended == ["m1"]
    assert (await fixture(served, "m1")).archived_at is not None
    await instance.orchestrator.aclose()


async def test_while_the_provider_fails_no_match_starts_or_ends(served: Served) -> None:
    provider = ScriptedReplay(served, "m1")
    instance = PipelineInstance(served, provider, tick_seconds=60)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    before = await active_match_state(served, "m1")
    provider.listed = None

    await instance.orchestrator.reconcile()

    assert await active_match_state(served, "m1") == before
    assert instance.orchestrator.polled == {"m1"}
    await instance.orchestrator.aclose()


async def test_one_damaged_match_does_not_hold_up_the_others(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", "m2")
    instance = PipelineInstance(served, provider, tick_seconds=60)
    assert served.gateway.database is not None
    item = {"matchId": {"S": "m1"}, "status": {"S": "active"}}
    await served.gateway.database.client.call(
        "PutItem", {"TableName": served.gateway.database.prefix + "active-matches", "Item": item}
    )

    await instance.orchestrator.reconcile()

    assert instance.orchestrator.polled == {"m2"}
    await instance.orchestrator.aclose()
