"""Scorers who change their minds, and providers that contradict themselves: what the next tick makes of it."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.keyspace.matches import fixture_cache
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import (
    Ball,
    CricketEvent,
    CricketEventKind,
    Extras,
    Match,
    MatchPhase,
    MatchSnapshot,
    Result,
    ResultKind,
    Target,
    Wicket,
    phase_of,
)
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch, initial_state
from datastore.session.store import Store
from pipelines.matches.live.diff import MatchWatch
from pipelines.matches.live.poller import Tick
from pipelines.matches.scoring.scorebook import InningsBook
from tests.support.cricket_pipeline import Instance
from tests.support.cricket_play import list_match, state
from tests.support.served import NOON, Served, call_name

FIXTURE = Match("m", "cup", "CUP", "reds", "blues", NOON, "NS", MatchPhase.UPCOMING, scheduled_overs=20)
SIDES = {1: "reds", 2: "blues"}


def ball(place: int, runs: int = 0, *, innings: int = 1, batter: str = "R1", **more: Any) -> Ball:
    """The ball at a place of its innings, from 1; ids leave room for balls that come late."""
    over, number = divmod(place - 1, 6)
    return Ball(
        innings * 100_000 + place * 10,
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


def out(place: int, who: str = "R1", kind: str = "bowled", fielders: tuple[str, ...] = (), **more: Any) -> Ball:
    return ball(place, **{"batter": who, "wickets": (Wicket(who, who, kind, fielders, kind != "run out"),)} | more)


def told(*balls: Ball, status: str = "1st Innings", begun: int = 0, **facts: Any) -> MatchSnapshot:
    """A match with these balls, added up; `begun` innings are listed at least."""
    books: dict[int, InningsBook] = {}
    numbers = {one.innings for one in balls} | set(range(1, begun + 1))
    for number in sorted(numbers):
        book = books[number] = InningsBook(number, SIDES[number])
        for one in balls:
            if one.innings == number:
                book.add(one)
    match = replace(
        FIXTURE,
        status=status,
        phase=phase_of(status),
        innings=tuple(book.score() for book in books.values()),
        scorecards=tuple(book.card() for book in books.values()),
    )
    return MatchSnapshot(replace(match, **facts), balls)


def totals(snapshot: MatchSnapshot, **changes: Any) -> MatchSnapshot:
    """The same balls, with another total of the last innings."""
    *before, last = snapshot.match.innings
    return replace(snapshot, match=replace(snapshot.match, innings=(*before, replace(last, **changes))))


class Scripted:
    """A provider that tells what the test says."""

    name = "scripted"

    def __init__(self) -> None:
        self.says = told(status="NS")

    async def match(self, match_id: str) -> MatchSnapshot | None:
        return self.says


class Live:
    """A match that is polled. `ids` are those of all events so far."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._provider = Scripted()
        self.instance = Instance(served, self._provider)  # type: ignore[arg-type]
        self.ids: list[str] = []
        self.version = 0

    async def tick(self, snapshot: MatchSnapshot) -> list[CricketEvent]:
        """The events of a tick. Checks that versions are contiguous, and that no event was told before."""
        self._provider.says = snapshot
        before = len(self.instance.changes)
        ended = await self.instance.poller.tick("m")
        changes = [change.active for change in self.instance.changes[before:]]
        assert ended is (Tick.CHANGED if changes else Tick.UNCHANGED)
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
        return await state(self._served, "m")

    def restart(self) -> None:
        """Forget all, as after a crash."""
        self.instance.poller.forget("m")


@pytest.fixture
async def live(served: Served) -> Live:
    await list_match(served, FIXTURE)
    live = Live(served)
    await live.tick(told(status="NS"))
    return live


OVER = (ball(1), ball(2, 4), ball(3), out(4), ball(5, 6, batter="R3"), ball(6, 1, batter="R3"))


def amended(number: int, new: Ball) -> tuple[Ball, ...]:
    """The over with another ball at a place."""
    return (*OVER[: number - 1], new, *OVER[number:])


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (ball(2, 1), "Correction at 0.2: 4 off the bat, now 1 off the bat"),
        (ball(2, extras=Extras(byes=4)), "Correction at 0.2: 4 off the bat, now 4 byes"),
        (ball(2, extras=Extras(no_balls=1), legal=False), "Correction at 0.2: 4 off the bat, now 1 no-ball"),
        (replace(ball(2, 4), bowler="B10", bowler_id="B10"), "Correction at 0.2: the bowler is B10, not B11"),
    ],
)  # fmt: skip
async def test_an_amended_ball_is_a_correction_and_nothing_else(live: Live, new: Ball, text: str) -> None:
    await live.tick(told(*OVER))
    [event] = await live.tick(told(*amended(2, new)))

    assert (event.kind, event.text, event.ball, event.innings) == (CricketEventKind.CORRECTION, text, new, 1)
    assert (await live.state()).live.innings[0].runs == told(*amended(2, new)).match.innings[0].runs
    assert await live.tick(told(*amended(2, new))) == []


async def test_a_wicket_that_is_added_is_told(live: Live) -> None:
    await live.tick(told(*OVER[:3]))

    correction, wicket = await live.tick(told(*OVER[:2], out(3, kind="caught", fielders=("B2",))))

    assert correction.text == "Correction at 0.3: no run, now R1 caught by B2"
    assert (wicket.kind, wicket.text, wicket.score) == (CricketEventKind.WICKET, "WICKET! R1 c B2 b B11", "4/1")


async def test_a_four_that_becomes_a_six_is_told(live: Live) -> None:
    await live.tick(told(*OVER[:2]))

    assert await live.texts(told(OVER[0], ball(2, 6))) == [
        "Correction at 0.2: 4 off the bat, now 6 off the bat",
        "SIX! R1 off B11",
    ]


async def test_a_wicket_that_is_taken_away_and_given_again(live: Live) -> None:
    await live.tick(told(*OVER))

    assert await live.texts(told(*amended(4, ball(4)))) == ["Correction at 0.4: R1 bowled, now no run"]
    assert (await live.state()).live.innings[0].wickets == 0
    assert await live.texts(told(*OVER)) == ["Correction at 0.4: no run, now R1 bowled"]
    assert (await live.state()).live.innings[0].wickets == 1


async def test_a_fielder_who_is_added_is_a_correction_without_a_second_wicket(live: Live) -> None:
    await live.tick(told(*amended(4, out(4, kind="caught"))))

    [event] = await live.tick(told(*amended(4, out(4, kind="caught", fielders=("B2",)))))

    assert event.text == "Correction at 0.4: R1 caught, now R1 caught by B2"


async def test_another_batter_out_is_another_wicket(live: Live) -> None:
    run_out = out(4, kind="run out")
    await live.tick(told(*amended(4, run_out)))
    other = replace(run_out, wickets=(Wicket("R2", "R2", "run out", (), bowler_credited=False),))

    assert await live.texts(told(*amended(4, other))) == [
        "Correction at 0.4: R1 run out, now R2 run out",
        "WICKET! R2 run out",
    ]


async def test_the_last_ball_is_taken_back_when_it_is_gone_twice(live: Live) -> None:
    await live.tick(told(*OVER))
    assert await live.tick(told(*OVER[:5])) == []
    assert (await live.state()).live.innings[0].legal_balls == 6

    assert await live.texts(told(*OVER[:5])) == ["Correction: the ball at 0.6 (1 off the bat) was taken back"]
    assert (await live.state()).live.innings[0].legal_balls == 5
    again = ball(6, 2, batter="R3")
    assert await live.texts(told(*OVER[:5], replace(again, ball_id=again.ball_id + 1))) == []


async def test_an_answer_older_than_the_one_before_is_not_believed_at_once(live: Live) -> None:
    await live.tick(told(*OVER))
    version = (await live.state()).version

    for length in (4, 6, 0, 6, 5, 6):
        assert await live.tick(told(*OVER[:length], begun=1)) == []

    assert (await live.state()).version == version


async def test_a_wicket_that_is_back_after_it_was_taken_back(live: Live) -> None:
    await live.tick(told(*OVER[:4]))
    await live.tick(told(*OVER[:3]))
    assert await live.texts(told(*OVER[:3])) == ["Correction: the ball at 0.4 (R1 bowled) was taken back"]

    assert await live.texts(told(*OVER[:4])) == ["Correction: R1 is out after all"]


async def test_another_ball_under_the_id_of_one_that_was_taken_back_is_told(live: Live) -> None:
    await live.tick(told(*OVER[:3]))
    await live.tick(told(*OVER[:2]))
    await live.tick(told(*OVER[:2]))

    assert await live.texts(told(*OVER[:2], out(3))) == ["WICKET! R1 b B11"]


async def test_a_ball_in_the_middle_is_taken_back_at_once(live: Live) -> None:
    await live.tick(told(*OVER))

    assert await live.texts(told(*OVER[:1], *OVER[2:])) == [
        "Correction: the ball at 0.2 (4 off the bat) was taken back"
    ]
    assert (await live.state()).live.innings[0].runs == 7


async def test_balls_that_get_other_ids_are_no_news(live: Live) -> None:
    await live.tick(told(*OVER))

    assert await live.tick(told(*OVER[:3], *[replace(one, ball_id=one.ball_id + 500) for one in OVER[3:]])) == []
    assert await live.tick(told(*[replace(one, ball_id=one.ball_id - 90_000) for one in OVER])) == []
    more = [replace(ball(place, 4), ball_id=20_000 + place) for place in (7, 8)]
    renumbered = [replace(one, ball_id=one.ball_id - 90_000) for one in OVER]
    assert await live.kinds(told(*renumbered, *more)) == [CricketEventKind.FOUR] * 2


async def test_a_whole_over_is_taken_back(live: Live) -> None:
    more = [ball(7), ball(8)]
    await live.tick(told(*OVER, *more))

    events = await live.tick(told(*more))

    assert [event.kind for event in events] == [CricketEventKind.CORRECTION] * 6
    assert (await live.state()).live.innings[0].runs == 0


async def test_many_amended_balls_are_summed_up(live: Live) -> None:
    balls = [ball(place) for place in range(1, 31)]
    await live.tick(told(*balls))

    events = await live.tick(told(*[replace(one, batter_runs=1) for one in balls]))

    assert len(events) == 13
    assert events[-1].text == "Correction: 18 more balls were amended"


@pytest.mark.parametrize(
    ("late", "text"),
    [
        (out(2), "WICKET! R1 b B11"),
        (ball(2, 4), "FOUR! R1 off B11"),
        (ball(2, 6), "SIX! R1 off B11"),
    ],
)
async def test_a_ball_that_is_inserted_late_is_told(live: Live, late: Ball, text: str) -> None:
    after = [ball(3, batter="R3"), ball(4, 4, batter="R3")]
    await live.tick(told(ball(1), *after))

    assert await live.texts(told(ball(1), late, *after)) == [text]
    assert await live.tick(told(ball(1), late, *after)) == []


async def test_a_fifty_that_a_correction_makes_is_told(live: Live) -> None:
    balls = [ball(place, 4) for place in range(1, 13)]
    await live.tick(told(*balls))

    texts = await live.texts(told(*balls[:5], ball(6, 6), *balls[6:]))

    assert texts == [
        "Correction at 0.6: 4 off the bat, now 6 off the bat",
        "SIX! R1 off B11",
        "R1 reaches 50",
        "50 partnership between R1 and R2",
    ]


async def test_runs_taken_back_without_balls(live: Live) -> None:
    snapshot = told(*OVER)
    await live.tick(snapshot)
    fewer = totals(snapshot, runs=9)
    assert await live.tick(fewer) == []
    assert await live.tick(snapshot) == []
    assert await live.tick(fewer) == []

    [event] = await live.tick(fewer)

    assert (event.kind, event.text) == (CricketEventKind.CORRECTION, "Correction: 11/1 (1) is now 9/1 (1)")
    assert (await live.state()).live.innings[0].runs == 9


async def test_a_batter_is_recalled_without_balls(live: Live) -> None:
    with_out, without = told(*OVER), told(*amended(4, ball(4)))
    await live.tick(replace(with_out, balls=()))
    await live.tick(replace(without, balls=()))

    assert await live.texts(replace(without, balls=())) == [
        "Correction: 11/1 (1) is now 11/0 (1)",
        "Correction: R1, b B11, is now retired",
    ]


async def test_an_innings_is_taken_back(live: Live) -> None:
    second = [ball(1, 4, innings=2), ball(2, innings=2)]
    await live.tick(told(*OVER, *second, status="2nd Innings"))
    await live.tick(told(*OVER))

    assert await live.texts(told(*OVER)) == ["Correction: innings 2 was taken back"]
    assert [score.number for score in (await live.state()).live.innings] == [1]
    assert await live.texts(told(*OVER, *second, status="2nd Innings")) == []
    more = told(*OVER, *second, ball(3, 4, innings=2), status="2nd Innings")
    assert await live.kinds(more) == [CricketEventKind.FOUR]


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_answer_without_balls_takes_nothing_back(live: Live, restarts: bool) -> None:
    await live.tick(told(*OVER))
    balls = (await live.state()).live.recent_balls
    if restarts:
        live.restart()

    assert await live.tick(replace(told(*OVER), balls=())) == []
    assert (await live.state()).live.recent_balls == balls
    assert await live.kinds(told(*OVER, out(7, "R3"))) == [CricketEventKind.WICKET]


async def test_a_stale_answer_right_after_a_takeover_is_doubted(live: Live, served: Served) -> None:
    await live.tick(told(*OVER))
    before = await live.state()
    live.restart()

    assert await live.tick(told(*OVER[:4])) == []
    assert (await live.state()).live == before.live
    fixture = await Fixtures(served.store(), NOON).latest("m")
    assert fixture is not None
    assert fixture.innings == told(*OVER).match.innings  # nor is the stale answer written as the fixture
    assert await live.tick(told(*OVER)) == []

    live.restart()
    assert await live.tick(told(*OVER[:5])) == []
    assert await live.texts(told(*OVER[:5])) == ["Correction: the ball at 0.6 (1 off the bat) was taken back"]


async def test_without_cache_and_balls_the_first_whole_answer_is_no_news(live: Live, served: Served) -> None:
    """After a restart only the last 30 balls are known: what lies before them was told."""
    balls = [ball(1, 4), out(2), *[ball(place, batter="R3") for place in range(3, 50)]]
    await live.tick(told(*balls))
    await forget_cache(served)
    live.restart()

    assert await live.tick(replace(told(*balls), balls=())) == []
    assert await live.tick(told(*balls)) == []
    assert await live.kinds(told(*balls, ball(50, 6))) == [CricketEventKind.SIX]


async def test_without_cache_a_ball_among_the_last_is_corrected(live: Live, served: Served) -> None:
    balls = [ball(1, 4), *[ball(place) for place in range(2, 50)]]
    await live.tick(told(*balls))
    await forget_cache(served)
    live.restart()

    changed = [balls[0], *balls[1:44], out(45), *balls[45:]]
    assert await live.texts(told(*changed)) == ["Correction at 7.3: no run, now R1 bowled", "WICKET! R1 b B11"]


async def test_without_cache_a_dismissal_long_ago_is_corrected_by_the_scorecard(live: Live, served: Served) -> None:
    rest = [ball(place, batter="R3") for place in range(2, 50)]
    await live.tick(told(out(1, kind="caught"), *rest))
    await forget_cache(served)
    live.restart()

    last = replace(rest[-1], batter_runs=1)
    assert await live.texts(told(out(1, kind="caught", fielders=("B4",)), *rest[:-1], last)) == [
        "Correction at 8.1: no run, now 1 off the bat",
        "Correction: R1, caught b B11, is now c B4 b B11",
    ]


async def test_totals_that_lag_behind_their_balls_or_lead_them(live: Live) -> None:
    await live.tick(told(*OVER[:3]))
    lagging = replace(told(*OVER[:3]), balls=OVER[:4])
    leading = totals(told(*OVER[:4]), runs=10)

    assert await live.kinds(lagging) == [CricketEventKind.WICKET]
    assert await live.kinds(told(*OVER[:4])) == []
    assert await live.kinds(leading) == []
    assert await live.kinds(told(*OVER)) == [CricketEventKind.SIX]
    assert (await live.state()).live.innings[0].runs == 11


async def test_a_break_that_flaps_is_told_once(live: Live) -> None:
    first = told(*OVER, status="2nd Innings", begun=2)
    await live.tick(told(*OVER))

    assert await live.texts(told(*OVER, status="Innings Break")) == ["Innings break: reds 11/1"]
    assert await live.texts(first) == []
    assert await live.texts(told(*OVER, status="Innings Break", begun=2)) == []
    assert await live.texts(told(*OVER, ball(1, innings=2), status="2nd Innings")) == ["blues bat: innings 2 begins"]


async def test_rain_that_flaps_is_told_once_in_five_minutes(live: Live, served: Served) -> None:
    stores: list[Store] = []
    open_store = served.store

    def recorded() -> Store:
        stores.append(open_store())
        return stores[-1]

    live.instance.poller._open_store = recorded
    playing, raining = told(*OVER), told(*OVER, status="Int.")
    await live.tick(playing)

    stores.clear()
    assert await live.texts(raining) == ["Play is interrupted (Int.)"]
    calls = [call_name(call) for store in stores for call in store.meter.calls]
    assert calls[-4:] == [
        "UpdateItem cricket-fixtures",
        "UpdateItem active-matches",
        "PutItem cricket-fixture-cache",
        "DeleteItem cricket-locks",
    ]
    assert await live.texts(playing) == ["Play resumes"]
    for _ in range(3):
        assert await live.texts(raining) == []
        assert await live.texts(playing) == []
    assert (await live.state()).live.phase is MatchPhase.LIVE

    live.restart()
    served.clock.forward(minutes=4, seconds=59)
    assert await live.texts(raining) == []
    served.clock.forward(seconds=2)
    assert await live.texts(playing) == ["Play resumes"]
    assert await live.texts(raining) == ["Play is interrupted (Int.)"]


async def test_a_target_that_is_revised(live: Live) -> None:
    def chase(runs: int | None, overs: str = "20", method: str | None = None) -> MatchSnapshot:
        target = Target(runs, overs, method) if runs else None
        return told(*OVER, status="2nd Innings", begun=2, target=target)

    await live.tick(told(*OVER, status="Innings Break"))

    assert await live.texts(chase(12)) == ["Target 12 from 20 overs"]
    assert await live.texts(chase(None)) == []
    assert await live.texts(chase(12)) == []
    assert await live.texts(chase(10, "15", "D/L")) == ["Target revised to 10 from 15 overs (D/L)"]
    assert await live.texts(chase(8, "9", "D/L")) == ["Target revised to 8 from 9 overs (D/L)"]
    assert await live.texts(chase(10, "15", "D/L")) == ["Target revised to 10 from 15 overs (D/L)"]


def won(text: str, winner: str) -> Result:
    return Result(ResultKind.WIN, text, winner)


async def test_a_result_that_changes(live: Live) -> None:
    reds, blues = won("Reds won", "reds"), won("Blues won", "blues")
    await live.tick(told(*OVER))

    assert await live.texts(told(*OVER, status="Finished", result=reds)) == ["Reds won"]
    assert await live.texts(told(*OVER, status="Finished")) == []
    assert await live.texts(told(*OVER, status="Finished", result=reds)) == []
    assert await live.texts(told(*OVER, status="Finished", result=blues)) == ["Blues won"]
    assert await live.texts(told(*OVER, status="Finished", result=reds)) == ["Reds won"]


async def test_an_abandoned_match_that_goes_on_later(live: Live) -> None:
    await live.tick(told(*OVER))

    assert await live.texts(told(*OVER, status="Aban.")) == ["Match abandoned"]
    assert await live.texts(told(*OVER)) == ["Correction: the match goes on (Match abandoned)"]
    assert await live.kinds(told(*OVER, out(7, "R3"))) == [CricketEventKind.WICKET]
    assert await live.texts(told(*OVER, out(7, "R3"), status="Aban.")) == ["Match abandoned"]


async def test_a_status_nobody_knows_changes_nothing_but_the_status(live: Live) -> None:
    await live.tick(told(*OVER))

    assert await live.tick(told(*OVER, status="Bad light, umpires confer")) == []
    assert (await live.state()).live.phase is MatchPhase.UNKNOWN
    assert await live.kinds(told(*OVER, out(7, "R3"), status="Bad light, umpires confer")) == [CricketEventKind.WICKET]


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_match_listed_again_does_not_tell_again_what_it_told(
    live: Live, served: Served, is_forgotten: bool
) -> None:
    """Its state may be gone: then what was told is known from its fixture."""
    balls = (*OVER, ball(1, 4, innings=2))
    end = told(*balls, status="Finished", target=Target(12, "20"), result=won("Reds won", "reds"))
    await live.tick(told(*OVER, status="Innings Break", target=Target(12, "20")))
    assert CricketEventKind.RESULT in await live.kinds(end)
    await live.instance.orchestrator.finish(await live.state())
    if is_forgotten:
        await ActiveMatches(served.store(), served.clock()).delete("m")
    await live.instance.orchestrator.start(end.match)
    await live.instance.orchestrator._stop_poll("m")
    live.version = 0

    assert await live.tick(end) == []
    assert await live.kinds(told(*balls, ball(2, 6, innings=2), status="2nd Innings")) == [
        CricketEventKind.SIX,
        CricketEventKind.CORRECTION,
    ]


async def forget_cache(served: Served) -> None:
    await served.store().delete(fixture_cache.CACHE, fixture_cache.cached("m"))


EDITS = (
    "bowl",
    "wicket",
    "four",
    "amend",
    "take back",
    "insert",
    "no balls",
    "restart",
    "no cache",
    "lag",
    "reset",
    "renumber",
)


class Script:
    """Edits a list of balls as chance has it. Each batter is out once at most, so a wicket has a name."""

    def __init__(self, chance: Any) -> None:
        self._chance = chance
        self.balls: list[Ball] = []
        self._place = 0
        self._batter = 0

    def edit(self, edit: str) -> None:
        if edit in ("bowl", "wicket", "four"):
            self._place += 3
            self.balls.append(self._some(self._place, edit))
        elif edit == "amend" and self.balls:
            at = self._index()
            self.balls[at] = self._some(self.balls[at].ball_id % 100_000 // 10, self._pick("bowl", "wicket", "four"))
        elif edit == "take back" and self.balls:
            del self.balls[self._index()]
        elif edit == "renumber" and self.balls:
            first = self._index()
            self.balls[first:] = [replace(one, ball_id=one.ball_id + 1) for one in self.balls[first:]]
        elif edit == "insert" and self.balls:
            place = self.balls[self._index()].ball_id % 100_000 // 10 - 1
            if all(one.ball_id != ball(place).ball_id for one in self.balls):
                self.balls.append(self._some(place, self._pick("wicket", "four")))
                self.balls.sort(key=lambda one: one.ball_id)

    def _some(self, place: int, kind: str) -> Ball:
        if kind == "wicket":
            self._batter += 1
            return out(place, f"W{self._batter}")
        return ball(place, 4 if kind == "four" else 1)

    def _index(self) -> int:
        return int(self._chance.draw(st.integers(0, len(self.balls) - 1)))

    def _pick(self, *kinds: str) -> str:
        return str(self._chance.draw(st.sampled_from(kinds)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(EDITS), max_size=40), st.data())
def test_whatever_scorers_do_no_wicket_is_lost_and_no_event_told_twice(edits: Iterable[str], chance: Any) -> None:
    script = Script(chance)
    active = replace(initial_state(FIXTURE), version=1)
    watch = MatchWatch("m")
    said: list[CricketEvent] = []
    ever_out: set[str] = set()

    def tick(snapshot: MatchSnapshot) -> None:
        nonlocal active
        found = watch.compare(active, snapshot)
        said.extend(found.events)
        assert found.last_ball_id >= active.previous_ball_id
        version = active.version + (not found.is_empty)
        active = replace(
            active,
            live=found.live,
            version=version,
            previous_ball_id=found.last_ball_id,
            announced=found.announced,
        )

    for edit in edits:
        script.edit(edit)
        snapshot = told(*script.balls, begun=1)
        if edit == "restart":
            watch = MatchWatch("m", watch.previous)
        elif edit == "no cache" and watch.previous is not None:
            watch = MatchWatch("m", replace(watch.previous, balls=watch.previous.balls[-5:]))
        elif edit == "no balls":
            tick(replace(snapshot, balls=()))
        elif edit == "lag":
            tick(totals(snapshot, runs=0))
        elif edit == "reset":
            tick(told(status="NS"))
            tick(told(status="NS"))
        tick(snapshot)
        tick(snapshot)
        ever_out |= {wicket.player_id for one in script.balls for wicket in one.wickets}

    tick(told(*script.balls, begun=1))
    ids = [event.event_id for event in said]
    assert len(ids) == len(set(ids))
    wickets = [event.player_id for event in said if event.kind is CricketEventKind.WICKET]
    assert set(wickets) == ever_out
    assert len(wickets) == len(ever_out)
    assert active.live.innings == told(*script.balls, begun=1).match.innings
    assert all(event.ball is None or event.ball.batter_runs >= 0 for event in said)


class CutOff(Exception):
    """A process that dies."""


async def test_a_tick_cut_off_before_its_commit_is_found_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Amended balls too: also those that the state alone does not know any more."""
    balls = [ball(1), ball(2), *[ball(place) for place in range(3, 50)]]
    await live.tick(told(*balls))
    changed = told(balls[0], out(2, kind="caught"), *balls[2:], ball(50, 4))

    async def dies(*_: object) -> bool:
        raise CutOff

    with monkeypatch.context() as patch:
        patch.setattr(ActiveMatches, "commit", dies)
        with pytest.raises(CutOff):
            await live.tick(changed)

    assert await live.texts(changed) == [
        "Correction at 0.2: no run, now R1 caught",
        "WICKET! R1 caught b B11",
        "FOUR! R1 off B11",
    ]


async def test_events_of_several_versions_are_complete_when_it_is_cut_off_between_them(live: Live) -> None:
    sixes = [ball(place, 6) for place in range(1, 101)]
    end = told(*sixes, ball(1, innings=2), status="2nd Innings", target=Target(601, "20"))
    whole = MatchWatch("m").compare(initial_state(FIXTURE), end).events
    changed = live.instance.poller._on_change

    async def dies(store: Store, change: Any) -> None:
        await changed(store, change)
        raise CutOff

    live.instance.poller._on_change = dies
    deaths = 0
    while (await live.state()).previous_ball_id < end.balls[-1].ball_id:
        with pytest.raises(CutOff):
            await live.tick(end)
        deaths += 1
    live.instance.poller._on_change = changed
    await live.tick(end)

    events = [event for change in live.instance.changes for event in change.active.events]
    assert deaths > 3
    assert sorted(event.event_id for event in events) == sorted(event.event_id for event in whole)
