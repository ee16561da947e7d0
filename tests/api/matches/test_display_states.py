"""Display states: their content, the cost of reading them, and their lifetime."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.database import Database
from datastore.keyspace.matches import display_states as keys
from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    BowlingLine,
    Extras,
    InningsScore,
    Match,
    MatchPhase,
    Result,
    ResultKind,
    Target,
    Toss,
    Wicket,
)
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display import DisplayState, MatchNames, ball_text, display_state
from datastore.matches.display_states import CachedState, DisplayStates
from datastore.matches.live_state import ActiveMatch
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.display_states import NAMES, first, fixture_in_chase, in_chase, live, second, store_match
from tests.support.served import NOON, Served

# Matches


def named_ball(number: int, runs: int = 0, innings: int = 2, **more: Any) -> Ball:
    return Ball(number, innings, 15, number, "b1", "Sharma", "b2", "Yadav", "w1", "Jadeja", runs, **more)


def shown_state(active: ActiveMatch, team_id: str = "1", match: Match | None = None) -> DisplayState:
    return display_state(match or fixture_in_chase(), active, NAMES, team_id)


# The content of a state


def test_a_chase_fills_every_field_of_a_widget() -> None:
    out = Wicket("b3", "Kishan", "caught")
    active = replace(
        in_chase(
            batting=(
                BattingLine("b2", "Yadav", 5, 21, 14, 2, 1),
                BattingLine("b1", "Sharma", 2, 55, 38, 5, 2, on_strike=True),
                BattingLine("b3", "Kishan", 4, 4, 6, status=BatterStatus.OUT),
            ),
            bowling=(BowlingLine("w2", "Chahar", 4), BowlingLine("w1", "Jadeja", 3, 4, 0, 24, 2, bowling=True)),
            recent_balls=(
                named_ball(1, 6, innings=1),
                named_ball(1, 1),
                named_ball(2, 4),
                named_ball(3, wickets=(out,)),
                named_ball(4),
                named_ball(5, 6),
                named_ball(6, 2),
            ),
        ),
        events=(
            CricketEvent("e1", CricketEventKind.FOUR, "Four by Sharma"),
            CricketEvent("e2", CricketEventKind.FIFTY, "Fifty"),
        ),
    )

    state = shown_state(active)

    assert (state.version, state.phase, state.status) == (7, MatchPhase.LIVE, "2nd Innings")
    assert state.headline == "MUM 120/3 (15.4)"
    assert state.situation == "Mumbai need 34 from 26 balls"
    assert (state.target, state.required_runs, state.balls_left) == (154, 34, 26)
    assert (state.required_rate, state.run_rate) == (7.85, 7.66)
    assert [(batter.name, batter.figures, batter.on_strike) for batter in state.batters] == [
        ("Sharma", "55 (38)", True),
        ("Yadav", "21 (14)", False),
    ]
    assert state.bowler is not None
    assert (state.bowler.name, state.bowler.figures) == ("Jadeja", "2/24 (3.4)")
    assert state.recent == "1 4 W . 6 2"
    assert state.last_event == "Fifty"
    assert state.league == "Premier League"
    assert state.batting_team_id == "1"


def test_each_team_has_its_own_view_of_a_match() -> None:
    home, away = shown_state(in_chase(), "1"), shown_state(in_chase(), "2")

    assert (home.team.code, home.opponent.code) == ("MUM", "CHE")
    assert (away.team.code, away.opponent.code) == ("CHE", "MUM")
    assert (away.team.score, away.team.overs, away.team.batting) == ("153/6", "20", False)
    assert home.headline == away.headline


TEST_MATCH = fixture_in_chase(scheduled_overs=None, format="Test")
ENGLAND_245 = InningsScore(1, "1", 245, 10, 80)
AUSTRALIA_320 = InningsScore(2, "2", 320, 7, 101, declared=True)
ENGLAND_195 = InningsScore(3, "1", 195, 4, 60)
CHASING_80 = InningsScore(4, "2", 80, 3, 20)


@pytest.mark.parametrize(
    ("match", "score", "home", "away"),
    [
        (fixture_in_chase(), {}, "Starts on 25 Jun at 12:00 UTC", "Starts on 25 Jun at 12:00 UTC"),
        (fixture_in_chase(toss=Toss("2", "bowling")), {}, *["Chennai won the toss and chose to field"] * 2),
        (fixture_in_chase(), {"innings": (first(),)}, "Bowling first", "Batting first"),
        (
            fixture_in_chase(),
            {"innings": (first(),), "target": Target(154), "phase": MatchPhase.BREAK},
            *["Mumbai need 154 from 120 balls"] * 2,
        ),
        (
            fixture_in_chase(),
            {"innings": (first(), second()), "target": Target(130, "16.2", "D/L")},
            *["Mumbai need 10 from 4 balls (D/L)"] * 2,
        ),
        (
            fixture_in_chase(),
            {"innings": (first(), second(154)), "target": Target(154)},
            *["Mumbai have made the runs"] * 2,
        ),
        (
            fixture_in_chase(),
            {"innings": (first(), second(153, 3, 20, 0)), "target": Target(154)},
            *["Scores level"] * 2,
        ),
        (
            fixture_in_chase(),
            {"innings": (first(), second(150, 3, 20, 0)), "target": Target(154)},
            *["Mumbai are 3 short"] * 2,
        ),
        (TEST_MATCH, {"innings": (ENGLAND_245, AUSTRALIA_320)}, "Trail by 75", "Lead by 75"),
        (TEST_MATCH, {"innings": (ENGLAND_245, AUSTRALIA_320, ENGLAND_195)}, "Lead by 120", "Trail by 120"),
        (
            TEST_MATCH,
            {"innings": (ENGLAND_245, AUSTRALIA_320, ENGLAND_195, CHASING_80), "target": Target(121)},
            *["Chennai need 41 with 7 wickets left"] * 2,
        ),
        (
            fixture_in_chase(),
            {
                "innings": (
                    first(),
                    second(153, 3, 20, 0),
                    InningsScore(3, "1", 11, 1, 1, super_over=True),
                    InningsScore(4, "2", 5, 0, 0, 3, super_over=True),
                ),
                "target": Target(154),
            },
            *["Chennai need 7 from 3 balls in the super over"] * 2,
        ),
        (
            fixture_in_chase(),
            {
                "innings": (first(), second(154)),
                "phase": MatchPhase.FINISHED,
                "result": Result(ResultKind.WIN, "Mumbai won by 7 wickets"),
            },
            *["Mumbai won by 7 wickets"] * 2,
        ),
        (fixture_in_chase(), {"phase": MatchPhase.ABANDONED, "note": "Wet outfield"}, *["Wet outfield"] * 2),
        (fixture_in_chase(), {"phase": MatchPhase.CANCELLED}, *["Cancelled"] * 2),
    ],
)
def test_the_situation_is_one_line(match: Match, score: dict[str, Any], home: str, away: str) -> None:
    active = live(match, **score)

    assert [shown_state(active, team, match).situation for team in ("1", "2")] == [home, away]


@pytest.mark.parametrize(
    ("score", "headline"),
    [
        ({}, "MUM v CHE"),
        ({"innings": (ENGLAND_245, AUSTRALIA_320)}, "CHE 320/7d (101)"),
        ({"innings": (ENGLAND_245, AUSTRALIA_320, ENGLAND_195)}, "MUM 245 & 195/4 (60)"),
        ({"innings": (first(), second(154)), "phase": MatchPhase.FINISHED}, "CHE 153/6, MUM 154/3"),
        ({"innings": (first(), replace(second(), number=3, super_over=True))}, "MUM 120/3 (super over)"),
    ],
)
def test_the_headline(score: dict[str, Any], headline: str) -> None:
    assert shown_state(live(fixture_in_chase(), **score)).headline == headline


def test_no_batter_is_shown_between_innings_or_after_a_match() -> None:
    between = shown_state(live(fixture_in_chase(), innings=(first(),), phase=MatchPhase.BREAK))
    lunch = shown_state(live(TEST_MATCH, innings=(ENGLAND_195,), phase=MatchPhase.BREAK), match=TEST_MATCH)
    over = shown_state(in_chase(phase=MatchPhase.FINISHED, batting=(BattingLine("b1", "Sharma", 2),)))

    assert (between.batting_team_id, lunch.batting_team_id, over.batting_team_id) == (None, "1", None)
    assert (over.batters, over.bowler, over.required_runs) == ((), None, None)


def test_unknown_teams_and_leagues_are_shown_by_known_attributes() -> None:
    state = display_state(fixture_in_chase(), in_chase(), MatchNames(), "2")

    assert (state.team.name, state.team.code, state.league) == ("Team 2", "2", "IPL")
    assert state.headline == "1 120/3 (15.4)"


def test_the_match_overrides_an_older_live_state() -> None:
    finished = fixture_in_chase(
        version=9, phase=MatchPhase.FINISHED, status="Finished", innings=(first(), second(154)), updated_at=NOON
    )

    state = shown_state(in_chase(version=7), match=finished)

    assert (state.version, state.phase, state.headline) == (9, MatchPhase.FINISHED, "CHE 153/6, MUM 154/3")


@pytest.mark.parametrize(("status", "words"), [("NS", "Live"), ("Int.", "Live"), ("Stump Day 1", "Stump Day 1")])
def test_a_status_code_is_shown_in_words(status: str, words: str) -> None:
    assert shown_state(in_chase(status=status)).status == words


@pytest.mark.parametrize(
    ("delivery", "text"),
    [
        (named_ball(1), "."),
        (named_ball(1, 4, four=True), "4"),
        (named_ball(1, extras=Extras(wides=1), legal=False), "wd"),
        (named_ball(1, extras=Extras(wides=5), legal=False), "5wd"),
        (named_ball(1, 4, extras=Extras(no_balls=1), legal=False), "5nb"),
        (named_ball(1, extras=Extras(leg_byes=2)), "2lb"),
        (named_ball(1, extras=Extras(byes=1)), "1b"),
        (named_ball(1, 1, wickets=(Wicket("b1", "Sharma", "run out"),)), "W1"),
        (named_ball(1, wickets=(Wicket("b1", "Sharma", "retired hurt"),)), "."),
        (named_ball(1, extras=Extras(penalty=5)), "5"),
    ],
)
def test_a_ball_is_written_in_the_notation_of_scorers(delivery: Ball, text: str) -> None:
    assert ball_text(delivery) == text


# The cost of a state

STATES = """query ($team: ID!) { displayState(matchId: "m1", teamId: $team) {
  version headline situation team { code score } opponent { code } } }"""
CHASE = {
    "version": 7,
    "headline": "MUM 120/3 (15.4)",
    "situation": "Mumbai need 34 from 26 balls",
    "team": {"code": "MUM", "score": "120/3"},
    "opponent": {"code": "CHE"},
}


async def test_a_state_is_built_once_and_then_read(served: Served) -> None:
    await store_match(served.store(), fixture_in_chase(), in_chase())

    built = await served.ask(STATES, {"team": "1"})
    kept = await served.ask(STATES, {"team": "1"})

    assert built.data == kept.data == {"displayState": CHASE}
    assert built.made == [
        "BatchGetItem active-matches+cricket-fixtures",
        "BatchGetItem cricket-leagues+cricket-teams",
        "GetItem DisplayStateCache",
        "PutItem DisplayStateCache",
    ]
    assert kept.made == ["GetItem DisplayStateCache"]


async def test_a_state_is_the_same_with_any_selection_of_its_match(served: Served) -> None:
    over = fixture_in_chase(
        phase=MatchPhase.FINISHED,
        status="Finished",
        innings=(first(), second()),
        result=Result(ResultKind.WIN, "Chennai won by 33 runs", winner_team_id="2", by_runs=33),
        version=7,
    )
    await store_match(served.store(), over)
    shown = '{ %s { displayState(teamId: "1") { version headline situation } } }'

    one = await served.ask(shown % 'match(id: "m1")')
    some = await served.ask(shown % 'matches(ids: ["m1"])')
    alone = await served.ask('{ displayState(matchId: "m1", teamId: "1") { version headline situation } }')

    assert alone.data["displayState"]["situation"] == "Chennai won by 33 runs"
    assert (one.data["match"], some.data["matches"]) == (alone.data, [alone.data])


@pytest.mark.parametrize(
    ("phase", "seconds"), [(MatchPhase.LIVE, 60), (MatchPhase.UPCOMING, 600), (MatchPhase.FINISHED, 86_400)]
)
async def test_a_state_is_rebuilt_after_its_expiry_although_it_is_still_stored(
    served: Served, phase: MatchPhase, seconds: int
) -> None:
    await store_match(served.store(), fixture_in_chase(), in_chase(phase=phase))
    await served.ask(STATES, {"team": "1"})

    served.clock.forward(seconds=seconds - 1)
    before = await served.ask(STATES, {"team": "1"})
    served.clock.forward(seconds=1)
    after = await served.ask(STATES, {"team": "1"})

    assert before.made == ["GetItem DisplayStateCache"]
    assert "PutItem DisplayStateCache" in after.made
    item = await served.store().get(keys.DISPLAY_STATE, keys.display_state("m1", "1"))
    assert item is not None
    assert item["ttl"] == int(served.clock().timestamp()) + seconds


async def test_a_version_without_events_keeps_the_stored_state(served: Served) -> None:
    states = DisplayStates(served.store(), NOON)
    out = CricketEvent("m1:wicket", CricketEventKind.WICKET, "Kishan is out")
    await states.refresh(fixture_in_chase(), replace(in_chase(7), events=(out,)), names=NAMES)

    again = await states.refresh(fixture_in_chase(), in_chase(7), names=NAMES)
    kept = await DisplayStates(served.store(), NOON).cached(fixture_in_chase())
    after = await states.refresh(fixture_in_chase(), in_chase(8), names=NAMES)

    assert {team: state.last_event for team, state in again.items()} == dict.fromkeys(("1", "2"), "Kishan is out")
    assert kept == again
    assert {state.last_event for state in after.values()} == {None}


async def test_an_unknown_match_is_null_and_a_team_that_does_not_play_is_refused(served: Served) -> None:
    unknown = await served.ask(STATES, {"team": "1"})
    await store_match(served.store(), fixture_in_chase())
    stranger = await served.ask(STATES, {"team": "3"})

    assert unknown.data == {"displayState": None}
    assert stranger.codes == ["BAD_USER_INPUT"]
    assert "`teamId`" in (stranger.errors or [])[0]["message"]
    assert "PutItem DisplayStateCache" not in unknown.made + stranger.made


@pytest.mark.parametrize("bad", ["", " ", "x" * 101])
async def test_ids_have_between_1_and_100_characters(served: Served, bad: str) -> None:
    await store_match(served.store(), fixture_in_chase())
    queries = {
        "matchId": ("query($id: ID!) { displayState(matchId: $id, teamId: 1) { version } }", []),
        "teamId": ("query($id: ID!) { displayState(matchId: 1, teamId: $id) { version } }", []),
        "teamId ": (
            'query($id: ID!) { match(id: "m1") { displayState(teamId: $id) { version } } }',
            ["GetItem cricket-fixtures"],
        ),
    }
    for field, (query, made) in queries.items():
        answer = await served.ask(query, {"id": bad})

        (error,) = answer.errors or []
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": field.strip()}
        assert error["message"] == f"`{field.strip()}` must have between 1 and 100 characters."
        assert answer.made == made


async def test_a_state_is_a_node(served: Served) -> None:
    await store_match(served.store(), fixture_in_chase(), in_chase())
    id = (await served.ask('{ displayState(matchId: "m1", teamId: "2") { id } }')).data["displayState"]["id"]

    answer = await served.ask(
        "query ($id: ID!) { node(id: $id) { ... on DisplayState { teamId situation battingTeamId } } }", {"id": id}
    )

    assert answer.data == {"node": {"teamId": "2", "situation": "Mumbai need 34 from 26 balls", "battingTeamId": "1"}}
    assert answer.made == ["GetItem DisplayStateCache"]


async def test_a_list_of_matches_has_its_states_from_a_few_batches(served: Served) -> None:
    ids = [f"m{number}" for number in range(12)]
    for id in ids:
        await store_match(served.store(), fixture_in_chase(match_id=id), replace(in_chase(), match_id=id))
    query = 'query ($ids: [ID!]!) { matches(ids: $ids) { displayState(teamId: "1") { matchId headline } } }'

    built = await served.ask(query, {"ids": ids})
    kept = await served.ask(query, {"ids": ids})

    assert [match["displayState"]["matchId"] for match in built.data["matches"]] == ids
    assert built.made == [
        "BatchGetItem DisplayStateCache",
        "BatchGetItem active-matches+cricket-leagues+cricket-teams",
        "BatchGetItem cricket-fixtures",
        *["PutItem DisplayStateCache"] * 12,
    ]
    assert kept.data == built.data
    assert kept.made == ["BatchGetItem DisplayStateCache", "BatchGetItem cricket-fixtures"]


async def test_a_damaged_state_is_rebuilt(served: Served) -> None:
    await store_match(served.store(), fixture_in_chase(), in_chase())
    cached = CachedState("m1", "1", 1, NOON + timedelta(days=1), shown_state(in_chase()))
    damaged = cached.item() | {"state": '{"headline": 5}'}
    await served.store().write_all(keys.DISPLAY_STATES, puts=[damaged])

    answer = await served.ask(STATES, {"team": "1"})

    assert answer.data == {"displayState": CHASE}


# Storing a state


@pytest.fixture
def store(database: Database) -> Store:
    return Store(
        database.client, prefix=database.prefix, deadline=Deadline(30), token=lambda: "token", now=lambda: NOON
    )


def operations_of(store: Store) -> list[str]:
    return [call.operation for call in store.meter.calls]


async def test_a_change_costs_two_puts_and_no_reads(store: Store) -> None:
    states = DisplayStates(store, NOON)

    refreshed = await states.refresh(fixture_in_chase(), in_chase(), names=NAMES)

    assert operations_of(store) == ["PutItem", "PutItem"]
    assert {team: state.team.code for team, state in refreshed.items()} == {"1": "MUM", "2": "CHE"}
    assert await states.by_id("m1", "2") == refreshed["2"]


async def test_without_names_they_are_read_together(store: Store) -> None:
    await store_match(store, fixture_in_chase())
    store.meter.calls.clear()

    refreshed = await DisplayStates(store, NOON).refresh(fixture_in_chase(), in_chase())

    assert operations_of(store) == ["BatchGetItem", "PutItem", "PutItem"]
    assert refreshed["1"].league == "Premier League"


async def test_the_state_of_a_match_that_was_read_costs_one_batch(store: Store) -> None:
    await store_match(store, fixture_in_chase(), in_chase())
    store.meter.calls.clear()

    state = await DisplayStates(store, NOON).of_match(fixture_in_chase(), "1")

    assert state.headline == "MUM 120/3 (15.4)"
    assert operations_of(store) == ["GetItem", "BatchGetItem", "PutItem"]


async def test_a_state_that_is_older_than_the_match_is_rebuilt(store: Store) -> None:
    await store_match(store, fixture_in_chase())
    states = DisplayStates(store, NOON)
    await states.refresh(fixture_in_chase(), in_chase(version=7), names=NAMES)
    over = fixture_in_chase(
        version=8, phase=MatchPhase.FINISHED, result=Result(ResultKind.TIE, "Match tied"), innings=(first(),)
    )

    state = await states.of_match(over, "1")

    assert (state.version, state.situation) == (8, "Match tied")
    assert await states.by_id("m1", "1") == state


async def test_an_older_state_never_replaces_a_newer_one(store: Store) -> None:
    states = DisplayStates(store, NOON)
    await states.refresh(fixture_in_chase(), in_chase(version=8, innings=(first(), second(124))), names=NAMES)

    late = await states.refresh(fixture_in_chase(), in_chase(version=7), names=NAMES)

    kept = await states.by_id("m1", "1")
    assert kept is not None
    assert (kept.version, kept.headline) == (8, "MUM 124/3 (15.4)")
    assert late["1"] == kept


async def test_an_older_state_replaces_an_expired_one(store: Store) -> None:
    await DisplayStates(store, NOON - timedelta(seconds=60)).refresh(
        fixture_in_chase(), in_chase(version=8), names=NAMES
    )
    states = DisplayStates(store, NOON)

    await states.refresh(fixture_in_chase(), in_chase(version=7), names=NAMES)

    kept = await states.by_id("m1", "1")
    assert kept is not None
    assert kept.version == 7
