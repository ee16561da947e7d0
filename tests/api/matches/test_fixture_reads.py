"""Matches by their ids, through the API on the real engine (FIX-1, FIX-2)."""

from datetime import timedelta

import pytest

from datastore.errors import BadUserInput
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import (
    Venue,
)
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.matches.match_follows import MatchFollows
from datastore.matches.teams import Team, Teams
from resolvers.shared import validation as validate
from resolvers.shared.global_ids import global_id
from tests.support.fixture_steps import (
    MATCHES,
    MOMENT,
    asked_for,
    code_and_field,
    planned_match,
    put_fixtures,
    store_played_match,
)
from tests.support.served import NOON, Served

# FIX-1: a match


@pytest.mark.parametrize(
    ("ids", "taken"),
    [([], []), (["1", "m-2"], ["1", "m-2"]), (["1", " 2 "], ["1", "2"]), (["é", "\u00a0x"], ["é", "x"])],
)
def test_ids_are_stripped(ids: list[str], taken: list[str]) -> None:
    assert list(validate.ids("ids", ids)) == taken


async def test_only_selected_attributes_of_matches_are_read(served: Served) -> None:
    await Fixtures(served.store(), NOON).sync(
        [planned_match("m1", venue=Venue("Here")), planned_match("m2", note="Soon")]
    )

    some = await served.ask('{ matches(ids: ["m1", "m2"]) { matchId phase venue { name } } }')
    both = await served.ask('{ matches(ids: ["m1", "m2"]) { matchId } match(id: "m2") { note version } }')

    assert some.data == {
        "matches": [
            {"matchId": "m1", "phase": "UPCOMING", "venue": {"name": "Here"}},
            {"matchId": "m2", "phase": "UPCOMING", "venue": None},
        ]
    }
    assert both.data["match"] == {"note": "Soon", "version": 0}
    entries = [call.request["RequestItems"] for answer in (some, both) for call in answer.calls]
    assert [
        {"#venue", "#note"} & set(entry.get("ExpressionAttributeNames", ())) for (entry,) in map(dict.values, entries)
    ] == [
        {"#venue"},
        set(),
    ]
    assert both.made == ["BatchGetItem cricket-fixtures"]


@pytest.mark.parametrize("wrong", ["", " ", "\n", "\u200b", "x" * 101])
def test_one_bad_id_among_others_is_reported(wrong: str) -> None:
    with pytest.raises(BadUserInput, match="`ids` must have between 1 and 100"):
        validate.ids("ids", ["1", wrong])


WHOLE = """query ($id: ID!) { match(id: $id) {
  matchId leagueCode homeTeamId awayTeamId startTime status phase round format version followOnEnforced ballsPerOver
  venue { name city country } toss { elected } target { runs } result { text } updatedAt liveUpdatedAt archivedAt
  innings { number teamId runs wickets overs legalBalls runRate }
  scorecards {
    batting { name runs balls strikeRate status isOnStrike }
    bowling { name overs runs wickets isBowling }
    fallOfWickets { wicketNumber } partnership { runs }
  }
} }"""
WHOLE_MATCH = {
    "matchId": "m1",
    "leagueCode": "IPL",
    "homeTeamId": "10",
    "awayTeamId": "20",
    "startTime": MOMENT,
    "status": "1st Innings",
    "phase": "LIVE",
    "round": "Final",
    "format": "T20",
    "version": 7,
    "followOnEnforced": False,
    "ballsPerOver": 6,
    "venue": {"name": "Lantern Park", "city": "Port Alder", "country": None},
    "toss": None,
    "target": None,
    "result": None,
    "updatedAt": MOMENT,
    "liveUpdatedAt": MOMENT,
    "archivedAt": None,
    "innings": [
        {
            "number": 1,
            "teamId": "10",
            "runs": 120,
            "wickets": 3,
            "overs": "15.4",
            "legalBalls": 94,
            "runRate": 7.66,
        }
    ],
    "scorecards": [
        {
            "batting": [
                {
                    "name": "A Batter",
                    "runs": 60,
                    "balls": 40,
                    "strikeRate": 150.0,
                    "status": "BATTING",
                    "isOnStrike": True,
                }
            ],
            "bowling": [{"name": "A Bowler", "overs": "3.2", "runs": 20, "wickets": 1, "isBowling": True}],
            "fallOfWickets": [],
            "partnership": None,
        }
    ],
}


async def test_a_match_is_returned_with_all_fields_or_null(served: Served) -> None:
    await store_played_match(
        served, planned_match(venue=Venue("Lantern Park", city="Port Alder"), round="Final", format="T20")
    )

    answer = await served.ask(WHOLE, {"id": "m1"})
    unknown = await served.ask(WHOLE, {"id": "m2"})

    assert answer.made == ["GetItem cricket-fixtures"]
    assert answer.data["match"] == WHOLE_MATCH
    assert (unknown.data, unknown.errors) == ({"match": None}, None)


async def test_an_id_has_1_to_100_characters(served: Served) -> None:
    asked = "query ($id: ID!) { match(id: $id) { matchId } }"
    answers = [await served.ask(asked, {"id": id}) for id in ("", "   ", "x" * 101)]

    assert [code_and_field(answer) for answer in answers] == [("BAD_USER_INPUT", "id")] * 3


async def test_a_damaged_match_is_an_error_in_its_place(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m2"), planned_match("m3"))
    await served.store().write_all(FIXTURES, puts=[{"matchId": "m2", "leagueCode": "IPL", "startTime": "soon"}])

    answer = await served.ask(MATCHES, {"ids": ["m1", "m2", "m3"]})

    assert answer.data == {"matches": [{"matchId": "m1"}, None, {"matchId": "m3"}]}
    assert [(error["path"], error["extensions"]["code"]) for error in answer.errors or ()] == [
        (["matches", 1], "INTERNAL")
    ]


async def test_a_match_has_a_global_id(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m#2/é"))

    answer = await served.ask(
        "query ($ids: [ID!]!) { nodes(ids: $ids) { id ... on Match { matchId } } }",
        {"ids": [global_id("Match", "m1"), global_id("Match", "m#2/é"), global_id("Match", "m3")]},
    )

    assert answer.data["nodes"] == [
        {"id": global_id("Match", "m1"), "matchId": "m1"},
        {"id": global_id("Match", "m#2/é"), "matchId": "m#2/é"},
        None,
    ]
    assert answer.made == ["BatchGetItem cricket-fixtures"]


# FIX-2: matches by their ids


async def test_matches_are_returned_in_the_order_of_the_given_ids(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m2"), planned_match("m3"))

    answer = await served.ask(MATCHES, {"ids": ["m3", "none", "m1", "m3", "m2", "nor this"]})

    assert answer.data["matches"] == [{"matchId": id} if id else None for id in ("m3", None, "m1", "m3", "m2", None)]
    assert answer.made == ["BatchGetItem cricket-fixtures"]
    assert asked_for(answer, "cricket-fixtures") == ["m1", "m2", "m3", "none", "nor this"]
    assert (await served.ask(MATCHES, {"ids": []})).data == {"matches": []}


async def test_more_than_100_matches_are_refused(served: Served) -> None:
    answer = await served.ask(MATCHES, {"ids": [f"m{number}" for number in range(101)]})

    assert code_and_field(answer) == ("BAD_USER_INPUT", "ids")
    assert answer.calls == []


LEAGUES, SIDES = 4, 20


@pytest.fixture
async def season(served: Served) -> list[str]:
    """Store a hundred matches of twenty teams in four leagues. The user ada follows every third."""
    store = served.store()
    await Teams(store, NOON).put_all(Team(f"t{number}", f"Team {number}", f"T{number}") for number in range(SIDES))
    for number in range(LEAGUES):
        await Leagues(store, NOON).put(League(f"l{number}", f"League {number}", f"L{number}"))
    matches = [
        planned_match(
            f"m{number:03}",
            NOON + timedelta(minutes=number),
            league_id=f"l{number % LEAGUES}",
            league_code=f"L{number % LEAGUES}",
            home_team_id=f"t{number % SIDES}",
            away_team_id=f"t{(number + 1 + number // SIDES) % SIDES}",
        )
        for number in range(100)
    ]
    await put_fixtures(served, *matches)
    for match in matches[::3]:
        await MatchFollows(store, NOON).follow(match, "ada", match.home_team_id)
    return [match.match_id for match in matches]


JOINED = """query ($ids: [ID!]!) { matches(ids: $ids) {
  matchId homeTeam { teamId name } awayTeam { teamId name } league { name } %s
} }"""


async def test_a_hundred_matches_with_their_teams_and_leagues_are_two_reads(served: Served, season: list[str]) -> None:
    answer = await served.ask(JOINED % "innings { team { name } }", {"ids": season})

    assert answer.errors is None
    assert answer.made == ["BatchGetItem cricket-fixtures", "BatchGetItem cricket-leagues+cricket-teams"]
    assert asked_for(answer, "cricket-fixtures") == season
    assert asked_for(answer, "cricket-teams") == sorted(f"t{number}" for number in range(SIDES))
    assert asked_for(answer, "cricket-leagues") == [f"l{number}" for number in range(LEAGUES)]
    assert answer.data["matches"][21] == {
        "matchId": "m021",
        "homeTeam": {"teamId": "t1", "name": "Team 1"},
        "awayTeam": {"teamId": "t3", "name": "Team 3"},
        "league": {"name": "League 1"},
        "innings": [],
    }


async def test_follows_are_read_in_the_batch_of_the_teams(served: Served, season: list[str]) -> None:
    answer = await served.ask(JOINED % "followedByViewer", {"ids": season[:30]}, user="ada")

    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchGetItem cricket-leagues+cricket-match-follows+cricket-teams",
    ]
    assert asked_for(answer, "cricket-match-follows") == season[:30]
    assert [match["followedByViewer"] for match in answer.data["matches"]] == [number % 3 == 0 for number in range(30)]


async def test_an_anonymous_caller_sees_everything_except_follows(served: Served, season: list[str]) -> None:
    answer = await served.ask(JOINED % "followedByViewer", {"ids": season[:2]})

    assert answer.errors is None
    assert [match["homeTeam"]["name"] for match in answer.data["matches"]] == ["Team 0", "Team 1"]
    assert [match["followedByViewer"] for match in answer.data["matches"]] == [None, None]


async def test_an_unknown_team_is_null(served: Served) -> None:
    await put_fixtures(served, planned_match())

    answer = await served.ask(
        '{ match(id: "m1") { homeTeamId homeTeam { name } league { name } season { seasonId } } }'
    )

    assert (answer.data, answer.errors) == (
        {"match": {"homeTeamId": "10", "homeTeam": None, "league": None, "season": None}},
        None,
    )
