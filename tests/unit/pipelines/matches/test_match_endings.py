"""The end of a match: sessions, follows, archive and list."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from datastore.errors import Unavailable
from datastore.matches.cricket import Match, MatchPhase, MatchSnapshot
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_activities import LiveActivities
from datastore.matches.live_state import ActiveMatch, ActiveStatus
from datastore.matches.match_follows import MatchFollows
from datastore.session.store import Store
from pipelines.matches.live.orchestrator import PollIntervals
from pipelines.matches.live.poller import LiveChange
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.push.push_service import LoggedPushService
from tests.support.active_matches import active_match_state, matches
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.orchestrator import FAST_INTERVALS, ScriptedReplay, fixture, has_changes, has_status
from tests.support.served import Served
from tests.support.until import until_async


class CorrectedProvider(ScriptedReplay):
    """A replay whose scorer corrects the last innings."""

    withdrawn_runs = 0

    async def match(self, match_id: str) -> MatchSnapshot | None:
        snapshot = await super().match(match_id)
        if snapshot is None or not self.withdrawn_runs:
            return snapshot
        *innings, last = snapshot.match.innings
        corrected = replace(last, runs=last.runs - self.withdrawn_runs)
        return replace(snapshot, match=replace(snapshot.match, innings=(*innings, corrected)))


async def _polls_nothing(instance: PipelineInstance) -> bool:
    return not instance.orchestrator.polled


async def test_a_match_that_is_over_is_ended_archived_and_unlisted(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", balls_per_tick=300)
    instance = PipelineInstance(served, provider, **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    match = await fixture(served, "m1")
    follows = MatchFollows(served.store(), served.clock())
    started = replace(match, start_time=served.clock())
    for number in range(30):
        await follows.follow(started, f"user{number}", match.home_team_id)
    await until_async(lambda: _is_over(served))

    await until_async(lambda: _is_ended(served, instance))
    await until_async(lambda: _polls_nothing(instance))  # shortly after the end is written

    assert instance.ended == ["m1"]
    assert [follow async for page in follows.pages_of_match("m1") for follow in page] == []
    final = await fixture(served, "m1")
    assert final.archived_at is not None
    assert final.live_updated_at is None
    ended = await active_match_state(served, "m1")
    assert ended.expires_at is not None
    assert (final.version, final.innings) == (ended.version, ended.live.innings)
    assert instance.orchestrator.polled == set()
    await instance.orchestrator.reconcile()
    assert (await active_match_state(served, "m1")).status is ActiveStatus.ENDED


async def _is_over(served: Served) -> bool:
    return (await active_match_state(served, "m1")).live.phase is MatchPhase.FINISHED


async def _is_ended(served: Served, instance: PipelineInstance) -> bool:
    await instance.orchestrator.reconcile()
    return (await active_match_state(served, "m1")).status is ActiveStatus.ENDED


async def test_a_match_is_not_polled_again_while_it_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick after the archiving would take the fixture out of the archive."""
    instance = PipelineInstance(served, ScriptedReplay(served, "m1", balls_per_tick=300), **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_over(served))
    archive = Fixtures.archive
    polled: list[set[str]] = []

    async def reconcile_and_archive(fixtures: Fixtures, match_id: str) -> Match:
        await instance.orchestrator.reconcile()
        polled.append(instance.orchestrator.polled)
        return await archive(fixtures, match_id)

    monkeypatch.setattr(Fixtures, "archive", reconcile_and_archive)
    await until_async(lambda: _is_ended(served, instance))

    assert polled == [set()]


async def test_an_interrupted_end_is_repeated(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", balls_per_tick=300)
    instance = PipelineInstance(served, provider, **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_over(served))
    fails = iter([Unavailable("no"), Unavailable("no")])

    async def fail(active: ActiveMatch) -> None:
        if (problem := next(fails, None)) is not None:
            raise problem
        instance.ended.append(active.match_id)

    instance.orchestrator._on_end = fail
    await instance.orchestrator.reconcile()
    assert (await active_match_state(served, "m1")).status is ActiveStatus.ACTIVE

    await until_async(lambda: _is_ended(served, instance))

    assert instance.ended == ["m1"]


async def test_a_match_that_is_started_again_after_its_end_gets_its_correction_before_it_ends(served: Served) -> None:
    """The correction withdraws a run: such a response is accepted when the next tick repeats it."""
    provider = CorrectedProvider(served, "m1", balls_per_tick=300)
    instance = PipelineInstance(served, provider, **FAST_INTERVALS | {"tick_seconds": 0.05})
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_ended(served, instance))
    before = await active_match_state(served, "m1")
    provider.withdrawn_runs = 1

    await instance.orchestrator.start(await fixture(served, "m1"))
    assert (await active_match_state(served, "m1")).status is ActiveStatus.ACTIVE
    await until_async(lambda: _is_ended(served, instance))

    after = await active_match_state(served, "m1")
    assert after.live.innings[-1].runs == before.live.innings[-1].runs - 1
    assert (await fixture(served, "m1")).innings == after.live.innings
    assert instance.ended == ["m1", "m1"]
    await instance.orchestrator.aclose()


async def test_an_abandoned_match_that_continues_is_polled_again(served: Served) -> None:
    instance = PipelineInstance(served, ScriptedReplay(served, "m1", balls_per_tick=24), **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    await instance.orchestrator.aclose()
    before = await active_match_state(served, "m1")
    abandoned = replace(before.live, phase=MatchPhase.ABANDONED)
    assert await matches(served).commit(replace(before, live=abandoned, version=before.version + 1))
    assert await matches(served).finish("m1", before.fence)
    ended = await active_match_state(served, "m1")

    await instance.orchestrator.reconcile()

    restarted = await active_match_state(served, "m1")
    assert restarted.status is ActiveStatus.ACTIVE
    assert restarted.version >= ended.version
    assert restarted.fence > ended.fence
    assert restarted.previous_ball_id >= ended.previous_ball_id
    assert set(restarted.announced) >= set(ended.announced)
    assert restarted.expires_at is None
    event_ids = [event.event_id for change in instance.changes for event in change.active.events]
    assert len(event_ids) == len(set(event_ids))
    await instance.orchestrator.aclose()


async def test_a_match_stays_owned_and_others_continue_while_its_sessions_are_ended(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", "m2", balls_per_tick=300)
    instance, other = (PipelineInstance(served, provider, name, **FAST_INTERVALS) for name in ("one", "other"))
    reached = asyncio.Event()

    async def end_slowly(active: ActiveMatch) -> None:
        instance.ended.append(active.match_id)
        await reached.wait()

    instance.orchestrator._on_end = end_slowly
    provider.listed = {"m1"}
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_over(served))
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_ending(instance))
    provider.listed = {"m1", "m2"}

    for _ in range(3):
        served.clock.forward(seconds=9)
        await until_async(lambda: _ticked(served))
        await instance.orchestrator.reconcile()
        await other.orchestrator.reconcile()

    assert instance.ended.count("m1") == 1
    assert (await active_match_state(served, "m2")).status is ActiveStatus.ACTIVE
    assert (await active_match_state(served, "m1")).instance_id == "one"
    assert other.ended == []
    reached.set()
    await until_async(lambda: has_status(served, ActiveStatus.ENDED))
    await instance.orchestrator.aclose()
    await other.orchestrator.aclose()


async def _is_ending(instance: PipelineInstance) -> bool:
    return "m1" in instance.ended


async def _ticked(served: Served) -> bool:
    return (await active_match_state(served, "m1")).last_tick_at == served.clock()


async def test_an_instance_that_lost_a_match_at_its_end_removes_nothing_more(served: Served) -> None:
    instance = PipelineInstance(served, ScriptedReplay(served, "m1", balls_per_tick=300), **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: _is_over(served))
    over = await active_match_state(served, "m1")
    match = replace(await fixture(served, "m1"), start_time=served.clock())
    await MatchFollows(served.store(), served.clock()).follow(match, "ada", match.home_team_id)

    async def lose(_: ActiveMatch) -> None:
        assert await matches(served).claim(over, "other") is not None

    instance.orchestrator._on_end = lose
    await instance.orchestrator.finish(over)

    assert (await active_match_state(served, "m1")).status is ActiveStatus.ACTIVE
    pages = MatchFollows(served.store(), served.clock()).pages_of_match("m1")
    assert [follow.user_id async for page in pages for follow in page] == ["ada"]
    assert (await fixture(served, "m1")).archived_at is None
    await instance.orchestrator.aclose()


async def test_a_match_that_ends_while_it_is_suspended_is_ended(served: Served) -> None:
    provider = ScriptedReplay(served, "m1", balls_per_tick=24)
    instance = PipelineInstance(served, provider, **FAST_INTERVALS)
    await instance.orchestrator.reconcile()
    await until_async(lambda: has_changes(instance, "m1"))
    await instance.orchestrator.aclose()
    claimed = await matches(served).claim(await active_match_state(served, "m1"), "one")
    assert claimed is not None
    assert await matches(served).set_idle("m1", claimed.fence)
    provider.listed = set()
    while not provider.is_over("m1"):
        await provider.match("m1")

    await until_async(lambda: _is_ended(served, instance))

    assert (await active_match_state(served, "m1")).live.result is not None
    assert instance.ended == ["m1"]
    await instance.orchestrator.aclose()


async def test_sessions_are_ended_with_the_match_through_the_whole_pipeline(served: Served) -> None:
    changes: list[LiveChange] = []

    def open_store() -> Store:
        return served.store()

    pipeline = CricketPipeline(
        ScriptedReplay(served, "m1", balls_per_tick=300),
        open_store,
        LoggedPushService(),
        instance_id="one",
        now=served.clock,
        intervals=PollIntervals(tick_seconds=0.0, reconcile_seconds=0.02, linger=timedelta(0)),
        on_change=changes.append,
    )
    sessions = LiveActivities(served.store(), served.clock())
    await sessions.register(Match("m1", "1", "L", "10", "20", served.clock()), "ada", "phone", "ab" * 32)
    async with pipeline.open():
        await pipeline.sync()
        running = asyncio.create_task(pipeline.orchestrator.run())
        await until_async(lambda: _has_ended(served))
        running.cancel()
        await asyncio.wait([running])

    answer = await served.ask('{ liveActivities(userId: "ada") { nodes { status endReason } } }', user="ada")
    assert answer.data == {"liveActivities": {"nodes": [{"status": "ENDED", "endReason": "match_finished"}]}}
    shown = await served.ask(
        'query($team: ID!) { match(id: "m1") { homeTeam { name } displayState(teamId: $team) { version headline } } }',
        {"team": changes[-1].match.home_team_id},
    )
    assert shown.data["match"]["displayState"]["version"] == changes[-1].active.version
    assert shown.data["match"]["homeTeam"]["name"] in TEAMS


async def _has_ended(served: Served) -> bool:
    active = await matches(served).latest("m1")
    return active is not None and active.status is ActiveStatus.ENDED


TEAMS = ("Harbour Kites", "Granite Foxes", "Saltmarsh Herons", "Lighthouse Rovers")
