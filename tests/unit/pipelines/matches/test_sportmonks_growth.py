"""A small match, served ball by ball as by SportMonks; the provider returns growing snapshots."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp
import msgspec
import pytest

from datastore.database import Database
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import BatterStatus, MatchPhase, MatchSnapshot, ResultKind, Target
from datastore.matches.cricket_events import CricketEventKind
from datastore.matches.fixtures import Fixtures
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.live.poller import LiveChange, ScorePoller, TickOutcome
from pipelines.matches.providers.sportmonks.fixtures import snapshot_of
from pipelines.matches.providers.sportmonks.http import SportMonksHttp
from pipelines.matches.providers.sportmonks.provider import SportMonks
from pipelines.matches.providers.sportmonks.values import UnreadableRow
from tests.support.served import NOON
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    TOKEN,
    Json,
    ProviderTime,
    Service,
    ball_row,
    batting_row,
    bowling_row,
    extra,
    fixture_row,
    lineup,
    player_id,
    runs_row,
    score,
    serve_sportmonks,
    total,
)

OVERS = 2
# By name: the batter's runs, wides, no-balls, byes and leg byes.
COUNTS = {
    "No Run": (0, 0, 0, 0, 0),
    "1 Run": (1, 0, 0, 0, 0),
    "2 Runs": (2, 0, 0, 0, 0),
    "FOUR": (4, 0, 0, 0, 0),
    "SIX": (6, 0, 0, 0, 0),
    "1 Wide": (0, 1, 0, 0, 0),
    "5 Wides": (0, 5, 0, 0, 0),
    "1 No Ball + 1 Run": (1, 0, 1, 0, 0),
    "1 No Ball + 1 Bye": (0, 0, 1, 1, 0),
    "4 Byes": (0, 0, 0, 4, 0),
    "2 Leg Byes": (0, 0, 0, 0, 2),
    "Clean Bowled": (0, 0, 0, 0, 0),
    "Catch Out": (0, 0, 0, 0, 0),
    "Run Out + 1": (1, 0, 0, 0, 0),
}
ILLEGAL = {"1 Wide", "5 Wides", "1 No Ball + 1 Run", "1 No Ball + 1 Bye"}
OUT = {"Clean Bowled", "Catch Out", "Run Out + 1"}
FIRST = (
    "1 Run", "FOUR", "1 Wide", "No Run", "Clean Bowled", "1 No Ball + 1 Run", "2 Leg Byes", "SIX",
    "4 Byes", "1 Run", "Catch Out", "5 Wides", "2 Runs", "1 No Ball + 1 Bye", "No Run", "Run Out + 1",
)  # fmt: skip
SECOND = ("SIX", "SIX", "1 Wide", "FOUR", "1 Run", "No Run", "Clean Bowled", "SIX", "FOUR", "4 Byes")


@dataclass
class Innings:
    """An innings as a scorer counts it."""

    number: int
    side: int
    other: int
    balls: list[Json] = field(default_factory=list)
    runs: Counter[int] = field(default_factory=Counter)
    faced: Counter[int] = field(default_factory=Counter)
    conceded: Counter[int] = field(default_factory=Counter)
    extras: Counter[str] = field(default_factory=Counter)
    fallen: list[tuple[int, str, int, float]] = field(default_factory=list)
    total: int = 0
    legal: int = 0
    crease: list[int] = field(default_factory=lambda: [1, 2])

    @property
    def board(self) -> str:
        return f"S{self.number}"

    def bowl(self, name: str) -> None:
        bat, wides, no_balls, byes, leg_byes = COUNTS[name]
        striker, over, legal = self.crease[0], self.legal // 6, name not in ILLEGAL
        place = over + (self.legal % 6 + 1) / 10
        out = player_id(self.side, striker) if name in OUT else None
        by = {"Catch Out": {"catchstump_id": player_id(self.other, 4)}}.get(name, {})
        by = {"runout_by_id": player_id(self.other, 5)} if name.startswith("Run Out") else by
        self.balls.append(
            ball_row(
                self.number * 1000 + len(self.balls) + 1,
                round(place, 1),
                name,
                team_id=self.side,
                scoreboard=self.board,
                batsman_one_on_creeze_id=player_id(self.side, self.crease[0]),
                batsman_two_on_creeze_id=player_id(self.side, self.crease[1]),
                batsman_id=player_id(self.side, striker),
                bowler_id=player_id(self.other, 10 + over % 2),
                batsmanout_id=out,
                **by,
            )
        )
        self.runs[striker] += bat
        self.faced[striker] += wides == 0
        self.conceded[10 + over % 2] += bat + wides + no_balls
        self.extras += Counter(wide=wides, noball_runs=no_balls, bye=byes, leg_bye=leg_byes)
        self.total += bat + wides + no_balls + byes + leg_byes
        self.legal += legal
        if out:
            self.fallen.append((striker, name, self.total, round(place, 1)))
            self.crease[0] = len(self.fallen) + 2
        elif (bat + byes + leg_byes) % 2:
            self.crease.reverse()
        if legal and self.legal % 6 == 0:
            self.crease.reverse()

    @property
    def overs(self) -> float:
        return self.legal // 6 + self.legal % 6 / 10

    def batting(self, closed: bool) -> list[Json]:
        fallen = {number: (name, at, place) for number, name, at, place in self.fallen}
        rows = []
        for number in range(1, len(self.fallen) + 3):
            fields: Json = {"active": number in self.crease and not closed}
            if number in fallen:
                name, at, place = fallen[number]
                fields = {"result": score(name), "fow_score": at, "fow_balls": place}
                fields["bowling_player_id"] = player_id(self.other, 10 + int(place) % 2)
                fields["catch_stump_player_id"] = player_id(self.other, 4) if name == "Catch Out" else None
            row = batting_row(number, score=self.runs[number], ball=self.faced[number], **fields)
            rows.append(row | {"scoreboard": self.board, "player_id": player_id(self.side, number)})
        return rows

    def bowling(self) -> list[Json]:
        """Return the bowlers: the tenth player bowls the first over, the eleventh the second."""
        first = min(self.legal, 6)
        overs = {10: first // 6 + first % 6 / 10, 11: (self.legal - first) // 6 + (self.legal - first) % 6 / 10}
        rows = [bowling_row(number, overs=overs[number], runs=self.conceded[number]) for number in (10, 11)]
        return [row | {"scoreboard": self.board, "player_id": player_id(self.other, row["id"] - 8000)} for row in rows]


def story() -> Iterator[tuple[str, Json]]:
    """Yield the status and the payload after each step of the match."""
    yield "NS", _told("NS", [])
    toss = {"toss_won_team_id": OWLS, "elected": "bowling", "lineup": lineup()}
    first, second = Innings(1, KITES, OWLS), Innings(2, OWLS, KITES)
    for name in FIRST:
        first.bowl(name)
        yield "1st Innings", _told("1st Innings", [first], **toss)
    yield "Int.", _told("Int.", [first], **toss)
    yield "Innings Break", _told("Innings Break", [first], **toss)
    for name in SECOND:
        second.bowl(name)
        yield "2nd Innings", _told("2nd Innings", [first, second], **toss)
    note = "Owls won by 9 wickets (with 3 balls remaining)"
    end: Json = {"winner_team_id": OWLS, "note": note, "man_of_match_id": player_id(OWLS, 1), "live": False}
    yield "Finished", _told("Finished", [first, second], **toss, **end)


def _told(status: str, innings: list[Innings], **changes: Json) -> Json:
    def closed(number: int) -> bool:
        return number < len(innings) or status in ("Innings Break", "Finished")

    return fixture_row(
        status=status,
        total_overs_played=OVERS,
        balls=[delivery for each in innings for delivery in each.balls],
        batting=[row for each in innings for row in each.batting(closed(each.number))],
        bowling=[row for each in innings for row in each.bowling()],
        runs=[runs_row(each.number, each.side, each.total, len(each.fallen), each.overs) for each in reversed(innings)],
        scoreboards=[
            row
            for each in innings
            for row in (
                total(each.board, each.side, each.total, len(each.fallen), each.overs),
                extra(each.board, each.side, **each.extras),
            )
        ],
        **changes,
    )


@pytest.fixture
async def snapshots() -> list[MatchSnapshot]:
    """Return the snapshots of the provider, poll after poll."""
    time, found = ProviderTime(), []
    async with serve_sportmonks() as service, aiohttp.ClientSession() as session:
        provider = SportMonks(
            SportMonksHttp(session, TOKEN, base_url=service.url, now=time, sleep=time.sleep), now=time
        )
        for status, payload in story():
            service.responses["livescores"] = [payload]
            snapshot = await provider.match("501")
            assert snapshot is not None
            assert snapshot.match.status == status
            found.append(snapshot)
            time.forward(2)
        assert service.paths() == ["livescores"] * len(found)
    return found


async def test_each_snapshot_adds_one_ball_and_keeps_the_others(snapshots: list[MatchSnapshot]) -> None:
    assert [len(snapshot.balls) for snapshot in snapshots] == [0, *range(1, 17), 16, 16, *range(17, 27), 26]
    for before, after in pairwise(snapshots):
        assert after.balls[: len(before.balls)] == before.balls
        ids = [delivery.ball_id for delivery in after.balls]
        assert ids == sorted(set(ids))


async def test_at_every_ball_totals_figures_and_balls_agree(snapshots: list[MatchSnapshot]) -> None:
    for snapshot in snapshots:
        cards = {card.number: card for card in snapshot.match.scorecards or ()}
        for innings in snapshot.match.innings:
            balls = [delivery for delivery in snapshot.balls if delivery.innings == innings.number]
            assert innings.runs == sum(delivery.runs for delivery in balls)
            assert innings.wickets == sum(len(delivery.wickets) for delivery in balls)
            assert innings.legal_balls == sum(delivery.legal for delivery in balls)
            assert innings.extras.total == sum(delivery.extras.total for delivery in balls)
            card = cards[innings.number]
            assert sum(line.runs for line in card.batting) + innings.extras.total == innings.runs
            assert sum(line.completed_overs * 6 + line.balls for line in card.bowling) == innings.legal_balls
            by_bowler = innings.runs - innings.extras.byes - innings.extras.leg_byes
            assert sum(line.runs for line in card.bowling) == by_bowler
            assert [fall.wicket for fall in card.fall_of_wickets] == list(range(1, innings.wickets + 1))


async def test_the_batter_on_strike_faces_the_next_ball(snapshots: list[MatchSnapshot]) -> None:
    checked = 0
    for before, after in pairwise(snapshots):
        if len(after.balls) == len(before.balls) or not before.balls:
            continue
        cards = before.match.scorecards or ()
        striker = [line.player_id for card in cards for line in card.batting if line.on_strike]
        if striker:
            assert striker == [after.balls[-1].batter_id]
            checked += 1
    assert checked > 15


async def test_the_phases_the_targets_and_the_result(snapshots: list[MatchSnapshot]) -> None:
    phases = list(dict.fromkeys(snapshot.match.phase for snapshot in snapshots))
    assert phases == [
        MatchPhase.UPCOMING,
        MatchPhase.LIVE,
        MatchPhase.INTERRUPTED,
        MatchPhase.BREAK,
        MatchPhase.FINISHED,
    ]
    last = snapshots[-1].match
    assert [(score.team_id, score.runs, score.wickets, score.overs) for score in last.innings] == [
        ("11", 31, 3, "2"),
        ("12", 32, 1, "1.3"),
    ]
    assert {snapshot.match.target for snapshot in snapshots} == {None, Target(32, "2")}
    assert [snapshot.match.result for snapshot in snapshots[:-1]] == [None] * (len(snapshots) - 1)
    assert last.result is not None
    assert (last.result.kind, last.result.winner_team_id, last.result.by_wickets) == (ResultKind.WIN, "12", 9)
    assert last.player_of_match == "Olly Adams"
    assert [len(snapshot.lineups) for snapshot in snapshots] == [0] + [22] * (len(snapshots) - 1)
    (first, second) = last.scorecards or ()
    assert [(line.name, line.runs, line.balls, line.dismissal) for line in first.batting][:2] == [
        ("Kit Adams", 7, 4, "c Olly Dixon b Olly Kelly"),
        ("Kit Baker", 4, 3, "b Olly Jones"),
    ]
    assert {line.status for line in second.batting} == {BatterStatus.OUT, BatterStatus.NOT_OUT}


async def test_a_corrected_ball_keeps_its_position() -> None:
    service, time = Service(), ProviderTime()
    *_, (_, before) = (step for step in story() if step[0] == "1st Innings")
    async with serve_sportmonks(service), aiohttp.ClientSession() as session:
        provider = SportMonks(
            SportMonksHttp(session, TOKEN, base_url=service.url, now=time, sleep=time.sleep), now=time
        )
        service.responses["livescores"] = [before]
        first = await provider.match("501")
        # A four becomes five wides, and a ball is removed.
        balls = before["balls"]
        amended = [balls[0], balls[1] | {"score": score("5 Wides")}, *balls[2:-1]]
        service.responses["livescores"] = [before | {"balls": amended}]
        time.forward(2)
        second = await provider.match("501")
    assert first is not None
    assert second is not None
    assert [delivery.ball_id for delivery in second.balls] == [delivery.ball_id for delivery in first.balls[:-1]]
    changed = [(a.ball_id, b.runs) for a, b in zip(first.balls, second.balls, strict=False) if a != b]
    assert changed == [(1002, 5)]


async def test_the_poller_reports_the_events_of_the_match(database: Database) -> None:
    service, time, changes = Service(), ProviderTime(), list[LiveChange]()

    def open_store() -> Store:
        return Store(
            database.client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "token", now=lambda: NOON
        )

    async def on_change(_store: Store, change: LiveChange) -> None:
        changes.append(change)

    async with serve_sportmonks(service), aiohttp.ClientSession() as session:
        provider = SportMonks(
            SportMonksHttp(session, TOKEN, base_url=service.url, now=time, sleep=time.sleep), now=time
        )
        poller = ScorePoller(provider, open_store, "i1", time, on_change)
        for _, payload in story():
            service.responses["livescores"] = [payload]
            if service.requests == []:
                (upcoming,) = await provider.live()
                await Fixtures(open_store(), time()).sync([upcoming])
                await ActiveMatches(open_store(), time()).register(upcoming, instance_id="i1")
            assert await poller.tick("501") in (TickOutcome.CHANGED, TickOutcome.UNCHANGED)
            time.forward(2)
        final = await provider.match("501")

    versions = [change.active.version for change in changes]
    assert versions == list(range(versions[0], versions[0] + len(changes)))
    counts = Counter(event.kind for change in changes for event in change.active.events)
    scored = Counter([*FIRST, *SECOND])
    assert counts[CricketEventKind.WICKET] == sum(scored[name] for name in OUT) == 4
    assert (counts[CricketEventKind.SIX], counts[CricketEventKind.FOUR]) == (scored["SIX"], scored["FOUR"]) == (4, 3)
    assert (
        counts[CricketEventKind.RESULT],
        counts[CricketEventKind.INNINGS_BREAK],
        counts[CricketEventKind.CORRECTION],
    ) == (
        1,
        1,
        0,
    )
    stored = await Fixtures(open_store(), time()).by_id("501")
    assert final is not None
    assert stored is not None
    assert (stored.innings, stored.scorecards, stored.result) == (
        final.match.innings,
        final.match.scorecards,
        final.match.result,
    )


JUNK: tuple[Json, ...] = (
    None, True, 0, -1, 10**30, 1e300, 0.1, float("nan"), float("inf"), "", " ", "x", "0.10", "9" * 500, [], [1], [[]],
    {}, {"data": None}, {"data": [5]}, "٣", "S1", [None], [{}],
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_randomly_damaged_fixtures_are_read_in_part_or_rejected(seed: int) -> None:
    rng, read = random.Random(seed), 0
    payloads = [json.dumps(payload) for _, payload in story()]
    for _ in range(60):
        payload = json.loads(rng.choice(payloads))
        for _ in range(rng.choice((1, 3, 10))):
            _damage(payload, rng)
        with suppress(UnreadableRow):
            msgspec.json.encode(snapshot_of(payload, {}, {}))
            read += 1
    assert read > 15


def _damage(value: Json, rng: random.Random) -> None:
    """Replace a random value by an invalid one."""
    while True:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], dict | list) or not value[key] or rng.random() < 0.2:
            value[key] = rng.choice(JUNK)
            return
        value = value[key]
