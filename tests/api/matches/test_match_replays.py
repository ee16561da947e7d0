"""Recorded matches, replayed through pollers, tables and the change feed to a subscriber."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from datastore.keyspace.matches import fixture_cache
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import MatchSnapshot
from pipelines.matches.live.poller import MAX_EVENTS
from pipelines.matches.providers.cricsheet.reader import load, read
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_count import count_match, winner
from tests.support.cricket_events import Found, match_events
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.cricket_play import SCORECARDS, Subscriber, current_state, list_match, play_to_the_end, subscribed
from tests.support.cricket_samples import (
    BLUES,
    RECORDINGS,
    REDS,
    ball,
    blues,
    innings,
    match_json,
    over,
    real_data,
    real_files,
)
from tests.support.replays import names_of
from tests.support.served import Served

Json = dict[str, Any]

FIGURES = ("overs", "maidens", "runs", "wickets", "wides", "noBalls")
BATTED = ("out", "not_out", "retired", "absent")


async def replayed(served: Served, recording: Recording, balls_per_tick: int) -> tuple[Subscriber, PipelineInstance]:
    """Replay a recording to the end. Return its subscriber and the instance."""
    provider = ReplayProvider([recording], now=served.clock, balls_per_tick=balls_per_tick)
    await list_match(served, recording.match, recording.teams)
    instance = PipelineInstance(served, provider)
    async with subscribed(served, recording.match_id) as subscriber:
        await play_to_the_end(instance, provider, recording.match_id)
        await subscriber.at(instance.changes[-1].active.version)
    return subscriber, instance


def event_counts(received: list[Json]) -> Found:
    """Count the events of a subscriber in the form of `cricket_events`."""
    return Counter(map(_event_key, received))


def _event_key(event: Json) -> tuple[Any, ...]:
    kind, innings, ball = event["kind"], event["inningsNumber"], event["ball"]
    if ball is None:
        return (kind, innings, event["value"]) if kind == "TARGET" else (kind, innings)
    place = f"{ball['overNumber']}/{int(ball['ballId']) % 100}"
    if kind == "MAIDEN":
        return kind, innings, ball["overNumber"], event["player"]
    if kind in ("FOUR", "SIX"):
        return kind, innings, place
    if kind == "PARTNERSHIP":
        return kind, innings, place, event["value"]
    if kind in ("FIFTY", "HUNDRED", "MILESTONE"):
        return kind, innings, place, event["player"], event["value"]
    return kind, innings, place, event["player"]


def counts_of_match(ended: Json, names: dict[str, str]) -> list[Json]:
    """Return the innings and scorecards of the API in the form of `cricket_count`."""
    return [_innings_counts(*innings, names) for innings in zip(ended["innings"], ended["scorecards"], strict=True)]


def _innings_counts(score: Json, card: Json, names: dict[str, str]) -> Json:
    extras = score["extras"]
    return {
        "team": names[score["teamId"]],
        "super_over": score["isSuperOver"],
        "declared": score["declared"],
        "forfeited": score["forfeited"],
        "runs": score["runs"],
        "wickets": score["wickets"],
        "overs": score["overs"],
        "legal_balls": score["legalBalls"],
        "extras": {
            "byes": extras["byes"],
            "leg_byes": extras["legByes"],
            "wides": extras["wides"],
            "no_balls": extras["noBalls"],
            "penalty": extras["penalty"],
        },
        "batting": {
            line["name"]: {name: line[name] for name in ("runs", "balls", "fours", "sixes")}
            | {"status": line["status"].lower()}
            for line in card["batting"]
            if line["status"].lower() in BATTED
        },
        "bowling": {
            line["name"]: dict(zip(("overs", "maidens", "runs", "wickets", "wides", "no_balls"), values, strict=True))
            for line in card["bowling"]
            for values in [[line[name] for name in FIGURES]]
        },
        "falls": [(fall["name"], fall["runs"]) for fall in card["fallOfWickets"]],
    }


def expected(document: Json) -> list[Json]:
    return [
        {name: value for name, value in innings.items() if name not in ("fours", "sixes")}
        for innings in count_match(document)
    ]


def read_json(path: Path) -> Json:
    document: Json = json.loads(path.read_bytes())
    return document


def assert_contiguous(subscriber: Subscriber) -> None:
    versions = [update["version"] for update in subscriber.updates]
    first = subscriber.snapshot["version"] + 1
    assert versions == list(range(first, first + len(versions)))
    assert not any(update["isSnapshot"] or update["conflatedCount"] for update in subscriber.updates)


def assert_each_event_once(subscriber: Subscriber) -> None:
    ids = [event["eventId"] for event in subscriber.events]
    assert len(ids) == len(set(ids))


@pytest.mark.proof
@pytest.mark.parametrize("path", real_files())
async def test_the_updates_of_a_real_match_have_the_counts_of_its_file(served: Served, path: Path) -> None:
    document = read_json(path)
    recording = load(path)
    names = names_of(recording, document)

    subscriber, _ = await replayed(served, recording, 24)
    answer = await served.ask(SCORECARDS, {"id": path.stem})

    ended = answer.data["match"]
    assert counts_of_match(ended, names) == expected(document)
    assert names.get(ended["result"]["winnerTeamId"] or "") == winner(document)
    assert_contiguous(subscriber)
    assert_each_event_once(subscriber)
    assert event_counts(subscriber.events) == match_events(document)
    starts = [event["text"] for event in subscriber.events if event["kind"] == "INNINGS_START"]
    women = " Women" * (document["info"]["gender"] == "female")
    played = enumerate(document["innings"], 1)
    assert starts == [f"{one['team']}{women} bat: innings {number} begins" for number, one in played]
    active = await current_state(served, path.stem)
    assert subscriber.last["version"] == active.version == ended["version"]
    assert subscriber.last["liveScore"] == ended["liveScore"]
    assert active.previous_ball_id == recording.balls[-1].ball_id


@pytest.mark.proof
@real_data
async def test_ticks_of_one_ball_have_the_same_events(served: Served) -> None:
    path = RECORDINGS / "1345425.json"
    document, recording = read_json(path), load(path)

    subscriber, _ = await replayed(served, recording, 1)

    assert event_counts(subscriber.events) == match_events(document)
    assert len(subscriber.updates) >= len(recording.balls)
    assert_contiguous(subscriber)
    for update in subscriber.updates:
        balls = update["liveScore"]["recentBalls"]
        received = [event["ball"]["ballId"] for event in update["events"] if event["ball"]]
        assert set(received) <= {balls[-1]["ballId"]} if balls else not received


async def test_a_whole_innings_in_one_tick_makes_several_versions(served: Served) -> None:
    sixes = [over(index, *[ball(6)] * 6) for index in range(20)]
    document = match_json(
        innings(REDS, *sixes), innings(BLUES, over(0, *[blues(6)] * 6), target={"runs": 721, "overs": 20})
    )
    recording = read(document, match_id="m")

    subscriber, instance = await replayed(served, recording, 10_000)

    assert event_counts(subscriber.events) == match_events(document)
    assert_each_event_once(subscriber)
    assert_contiguous(subscriber)
    sizes = [len(update["events"]) for update in subscriber.updates]
    assert max(sizes) <= MAX_EVENTS
    assert sum(sizes) > 120 + 6
    known = 0
    for change in instance.changes:
        received = [event.ball.ball_id for event in change.active.events if event.ball is not None]
        assert all(known < ball_id <= change.active.previous_ball_id for ball_id in received)
        known = change.active.previous_ball_id
    assert known == recording.balls[-1].ball_id


@real_data
async def test_a_test_match_in_few_ticks_loses_no_event(served: Served) -> None:
    path = RECORDINGS / "1389401.json"
    document, recording = read_json(path), load(path)

    subscriber, _ = await replayed(served, recording, 10_000)

    assert event_counts(subscriber.events) == match_events(document)
    assert_each_event_once(subscriber)
    assert_contiguous(subscriber)


REVISED = "1270836"


def revisions() -> tuple[Recording, Recording]:
    first = load(RECORDINGS / f"{REVISED}_rev1.json", match_id=REVISED)
    return first, load(RECORDINGS / f"{REVISED}.json")


async def finish_match(served: Served, recording: Recording) -> int:
    """Replay a match and let it leave the list. Return the id of its last ball."""
    subscriber, instance = await replayed(served, recording, 24)
    assert subscriber.last["liveScore"]["phase"] == "FINISHED"
    active = await current_state(served, REVISED)
    await instance.orchestrator.finish(active)
    return active.previous_ball_id


class WatchedReplay(ReplayProvider):
    """A provider that signals when it has returned the end of a match three times: the first is then written."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.end_shown = asyncio.Event()
        self._ends = 0

    async def match(self, match_id: str) -> MatchSnapshot | None:
        snapshot = await super().match(match_id)
        self._ends += self.is_over(match_id)
        if self._ends == 3:
            self.end_shown.set()
        return snapshot


@asynccontextmanager
async def replayed_over(served: Served, recording: Recording, last_ball_id: int) -> AsyncIterator[Subscriber]:
    """Replay a recording over a finished match with an orchestrator, until nothing changes. Yield a subscriber."""
    provider = WatchedReplay([recording], now=served.clock, balls_per_tick=24)
    provider.start_at(REVISED, last_ball_id)
    instance = PipelineInstance(served, provider, "two", tick_seconds=0.0)
    may_tick, match = asyncio.Event(), provider.match

    async def held(match_id: str) -> MatchSnapshot | None:
        await may_tick.wait()
        return await match(match_id)

    # A match that is over and unregistered sends no further updates, so register it first.
    provider.match = held  # type: ignore[method-assign]
    await instance.orchestrator.start(recording.match)
    async with subscribed(served, REVISED) as subscriber:
        may_tick.set()
        async with asyncio.timeout(50):
            await provider.end_shown.wait()
        await instance.orchestrator.finish(await current_state(served, REVISED))
        assert instance.orchestrator.polled == set()
        await subscriber.at(instance.changes[-1].active.version)
        yield subscriber


def amended_balls(first: Recording, second: Recording) -> list[str]:
    return [str(new.ball_id) for old, new in zip(first.balls, second.balls, strict=True) if old != new]


async def final_scorecards(served: Served) -> Json:
    answer = await served.ask(SCORECARDS, {"id": REVISED})
    ended: Json = answer.data["match"]
    return ended


@real_data
@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_revision_over_a_finished_match_corrects_the_amended_balls(served: Served, is_expired: bool) -> None:
    first, second = revisions()
    last_ball_id = await finish_match(served, first)
    if is_expired:  # the state expires after a day
        await ActiveMatches(served.store(), served.clock()).delete(REVISED)
    before = await final_scorecards(served)

    async with replayed_over(served, second, last_ball_id) as subscriber:
        pass

    document = read_json(RECORDINGS / f"{REVISED}.json")
    after = await final_scorecards(served)
    assert subscriber.snapshot["version"] >= before["version"]
    assert_contiguous(subscriber)
    assert {event["kind"] for event in subscriber.events} == {"CORRECTION"}
    assert [event["ball"]["ballId"] for event in subscriber.events] == amended_balls(first, second)
    assert counts_of_match(after, names_of(second, document)) == expected(document)
    assert before["scorecards"] != after["scorecards"]
    assert after["liveScore"]["result"]["text"] == "Bangladesh won by 10 runs"


@real_data
async def test_without_the_cache_a_revision_corrects_changed_dismissals(
    served: Served,
) -> None:
    first, second = revisions()
    last_ball_id = await finish_match(served, first)
    before = await final_scorecards(served)
    await served.store().delete(fixture_cache.CACHE, fixture_cache.cached(REVISED))
    await ActiveMatches(served.store(), served.clock()).delete(REVISED)

    async with replayed_over(served, second, last_ball_id) as subscriber:
        pass

    after = await final_scorecards(served)
    amended = [
        (new["name"], old["dismissal"], new["dismissal"])
        for cards in zip(before["scorecards"], after["scorecards"], strict=True)
        for old, new in zip(cards[0]["batting"], cards[1]["batting"], strict=True)
        if old != new
    ]
    assert amended
    assert [event["text"] for event in subscriber.events] == [
        f"Correction: {name}, {was}, is now {now}" for name, was, now in amended
    ]
    assert_contiguous(subscriber)


@real_data
async def test_a_replay_from_the_start_reverts_a_finished_match_and_ends_the_same(served: Served) -> None:
    first, _ = revisions()
    await finish_match(served, first)
    before = await final_scorecards(served)

    async with replayed_over(served, first, 0) as subscriber:
        pass

    after = await final_scorecards(served)
    assert_contiguous(subscriber)
    assert_each_event_once(subscriber)
    kinds = Counter(event["kind"] for event in subscriber.events)
    wickets = sum(innings["wickets"] for innings in after["innings"])
    assert kinds == {"CORRECTION": 3 + wickets, "RESULT": 1}
    assert [event["text"] for event in subscriber.events[:3]] == [
        "Correction: innings 1 was taken back",
        "Correction: innings 2 was taken back",
        "Correction: the match goes on (Bangladesh won by 10 runs)",
    ]
    assert {name: after[name] for name in ("innings", "scorecards", "result")} == {
        name: before[name] for name in ("innings", "scorecards", "result")
    }
