"""Snapshots of a match whose scorer makes corrections, and the match that is polled from them."""

from typing import Any

import pytest
from msgspec.structs import replace

from datastore.matches.cricket import Ball, Match, MatchPhase, MatchSnapshot, Wicket, phase_of
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import ActiveMatch
from pipelines.matches.live.poller import TickOutcome
from pipelines.matches.scoring.scorebook import InningsBook
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.cricket_play import current_state, list_match
from tests.support.served import NOON, Served

FIXTURE = Match("m", "cup", "CUP", "reds", "blues", NOON, "NS", MatchPhase.UPCOMING, scheduled_overs=20)
SIDES = {1: "reds", 2: "blues"}


def ball_at(position: int, runs: int = 0, *, innings: int = 1, batter: str = "R1", **more: Any) -> Ball:
    """Return the ball at a position of its innings, from 1. The ids leave room for inserted balls."""
    over, number = divmod(position - 1, 6)
    return Ball(
        innings * 100_000 + position * 10,
        innings,
        over,
        number + 1,
        batter,
        batter,
        "R2",
        "R2",
        "B11",
        "B11",
        **{"batter_runs": runs, "four": runs == 4, "six": runs == 6} | more,
    )


def out(position: int, player: str = "R1", kind: str = "bowled", fielders: tuple[str, ...] = (), **more: Any) -> Ball:
    return ball_at(
        position, **{"batter": player, "wickets": (Wicket(player, player, kind, fielders, kind != "run out"),)} | more
    )


def snapshot_with(*balls: Ball, status: str = "1st Innings", begun: int = 0, **facts: Any) -> MatchSnapshot:
    """Return a match with these balls and their totals. At least `begun` innings are listed."""
    books: dict[int, InningsBook] = {}
    numbers = {delivery.innings for delivery in balls} | set(range(1, begun + 1))
    for number in sorted(numbers):
        book = books[number] = InningsBook(number, SIDES[number])
        for delivery in balls:
            if delivery.innings == number:
                book.add(delivery)
    match = replace(
        FIXTURE,
        status=status,
        phase=phase_of(status),
        innings=tuple(book.score() for book in books.values()),
        scorecards=tuple(book.card() for book in books.values()),
    )
    return MatchSnapshot(replace(match, **facts), balls)


def with_total(snapshot: MatchSnapshot, **changes: Any) -> MatchSnapshot:
    """Return the snapshot with another total of the last innings."""
    *before, last = snapshot.match.innings
    return replace(snapshot, match=replace(snapshot.match, innings=(*before, replace(last, **changes))))


class ScriptedProvider:
    """A provider that returns the snapshot of the test."""

    name = "scripted"

    def __init__(self) -> None:
        self.snapshot = snapshot_with(status="NS")

    async def match(self, match_id: str) -> MatchSnapshot | None:
        return self.snapshot


class PolledMatch:
    """A polled match. `ids` are the ids of all events so far."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._provider = ScriptedProvider()
        self.instance = PipelineInstance(served, self._provider)  # type: ignore[arg-type]
        self.ids: list[str] = []
        self.version = 0

    async def tick(self, snapshot: MatchSnapshot) -> list[CricketEvent]:
        """Tick and return the events. Check that versions are contiguous and that no event is repeated."""
        self._provider.snapshot = snapshot
        before = len(self.instance.changes)
        outcome = await self.instance.poller.tick("m")
        changes = [change.active for change in self.instance.changes[before:]]
        assert outcome is (TickOutcome.CHANGED if changes else TickOutcome.UNCHANGED)
        for active in changes:
            assert active.version == (self.version or active.version - 1) + 1
            self.version = active.version
        events = [event for active in changes for event in active.events]
        self.ids += [event.event_id for event in events]
        assert len(self.ids) == len(set(self.ids))
        return events

    async def texts(self, snapshot: MatchSnapshot) -> list[str]:
        return [event.text for event in await self.tick(snapshot)]

    async def kinds(self, snapshot: MatchSnapshot) -> list[CricketEventKind]:
        return [event.kind for event in await self.tick(snapshot)]

    async def state(self) -> ActiveMatch:
        return await current_state(self._served, "m")

    def restart(self) -> None:
        """Drop the poller's memory of the match, as a crash does."""
        self.instance.poller.forget("m")


OVER = (ball_at(1), ball_at(2, 4), ball_at(3), out(4), ball_at(5, 6, batter="R3"), ball_at(6, 1, batter="R3"))


def amended(number: int, new: Ball) -> tuple[Ball, ...]:
    """Return the over with another ball at a position."""
    return (*OVER[: number - 1], new, *OVER[number:])


@pytest.fixture
async def live(served: Served) -> PolledMatch:
    await list_match(served, FIXTURE)
    live = PolledMatch(served)
    await live.tick(snapshot_with(status="NS"))
    return live
