"""Matches through the API, on the real engine (FIX-1 … FIX-6, FXC-1)."""

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from conftest import NOON, Answer, Served
from msgspec.structs import replace

from datastore.attributes import decode_item
from datastore.errors import BadUserInput
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import FIXTURES, fixture
from datastore.matches.cricket import (
    BattingLine,
    BowlingLine,
    InningsScore,
    LineupPlayer,
    Match,
    MatchPhase,
    MatchSnapshot,
    Scorecard,
    Venue,
)
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.matches.match_follows import MatchFollows
from datastore.matches.teams import Team, Teams
from resolvers import bounds
from resolvers.access import Role
from resolvers.nodes import global_id

SYNC = """mutation ($fixtures: [FixtureInput!]!) {
  syncFixtures(fixtures: $fixtures) {
    matchId status phase startTime round version venue { name } homeTeamId updatedAt innings { runs }
  }
}"""
UPDATE = """mutation ($id: ID!, $input: UpdateFixtureInput!) {
  updateFixture(id: $id, input: $input) {
    matchId status phase startTime round format note scheduledOvers venue { name city } version updatedAt
  }
}"""
ARCHIVE = 'mutation { archiveFixture(id: "m1") { matchId archivedAt liveUpdatedAt version } }'
MATCHES = "query ($ids: [ID!]!) { matches(ids: $ids) { matchId } }"
BY_LEAGUE = """
query ($code: String!, $from: DateTime, $to: DateTime, $first: Int, $after: String, $last: Int, $before: String) {
  matchesByLeague(
    leagueCode: $code, from: $from, to: $to, first: $first, after: $after, last: $last, before: $before
  ) {
    edges { cursor node { matchId } }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    lastEvaluatedKey
  }
}
"""
LATER = "2026-06-28T14:00:00Z"
MOMENT = "2026-06-25T12:00:00+00:00"
CARD = Scorecard(
    1,
    batting=(BattingLine("p1", "A Batter", 1, runs=60, balls=40, on_strike=True),),
    bowling=(BowlingLine("p2", "A Bowler", completed_overs=3, balls=2, runs=20, wickets=1, bowling=True),),
)


def one(match_id: str = "m1", start: datetime = NOON, **more: Any) -> Match:
    facts = {"league_id": "L", "league_code": "IPL", "home_team_id": "10", "away_team_id": "20"}
    return Match(match_id, start_time=start, **(facts | more))


def given(match_id: str = "m1", **more: Any) -> dict[str, Any]:
    """A fixture as an input."""
    facts = {
        "matchId": match_id,
        "leagueId": "L",
        "leagueCode": "IPL",
        "homeTeamId": "10",
        "awayTeamId": "20",
        "startTime": "2026-06-25T14:00:00Z",
    }
    return facts | more


async def put(served: Served, *matches: Match) -> None:
    await Fixtures(served.store(), NOON).sync(matches)


async def play(served: Served, match: Match, **more: Any) -> Match:
    """Store a match and write how it stands, as its poller does."""
    await put(served, match)
    played = {
        "status": "1st Innings",
        "phase": MatchPhase.LIVE,
        "innings": (InningsScore(1, "10", runs=120, wickets=3, completed_overs=15, balls=4, legal_balls=94),),
        "scorecards": (CARD,),
        "version": 7,
        "fence": 2,
    }
    live = replace(match, **(played | more))
    assert await Fixtures(served.store(), NOON).write_live(live)
    return live


async def system(served: Served, query: str, variables: dict[str, Any] | None = None) -> Answer:
    return await served.ask(query, variables, user="job", role=Role.SYSTEM)


async def sync(served: Served, *fixtures: dict[str, Any]) -> Answer:
    return await system(served, SYNC, {"fixtures": list(fixtures)})


async def update(served: Served, match_id: str = "m1", **changes: Any) -> Answer:
    return await system(served, UPDATE, {"id": match_id, "input": changes})


async def stored(served: Served, match_id: str = "m1") -> dict[str, Any] | None:
    return await served.store().get(keys.SYNC_FIXTURES, fixture(match_id))


def refusal(answer: Answer) -> tuple[str, str]:
    """Code and field of the one error."""
    assert answer.errors is not None
    (error,) = answer.errors
    return error["extensions"]["code"], error["extensions"]["field"]


def asked_for(answer: Answer, table: str) -> list[str]:
    """The ids that BatchGetItems asked a table for."""
    return sorted(
        next(iter(decode_item(key).values()))
        for call in answer.calls
        if call.operation == "BatchGetItem"
        for name, entry in call.request["RequestItems"].items()
        if name.endswith(f"__{table}")
        for key in entry["Keys"]
    )


# FIX-1: a match


@pytest.mark.parametrize(
    ("ids", "taken"),
    [([], []), (["1", "m-2"], ["1", "m-2"]), (["1", " 2 "], ["1", "2"]), (["é", "\u00a0x"], ["é", "x"])],
)
def test_ids_are_taken_without_the_space_around_them(ids: list[str], taken: list[str]) -> None:
    assert list(bounds.ids("ids", ids)) == taken


async def test_no_more_of_matches_is_read_than_is_shown(served: Served) -> None:
    await Fixtures(served.store(), NOON).sync([one("m1", venue=Venue("Here")), one("m2", note="Soon")])

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
def test_one_wrong_id_among_others_is_told(wrong: str) -> None:
    with pytest.raises(BadUserInput, match="`ids` must have between 1 and 100"):
        bounds.ids("ids", ["1", wrong])


async def test_a_match_is_answered_whole_or_null(served: Served) -> None:
    await play(served, one(venue=Venue("Lantern Park", city="Port Alder"), round="Final", format="T20"))
    whole = """query ($id: ID!) { match(id: $id) {
      matchId leagueCode homeTeamId awayTeamId startTime status phase round format version followOn ballsPerOver
      venue { name city country } toss { elected } target { runs } result { text } updatedAt liveUpdatedAt archivedAt
      innings { number teamId runs wickets overs legalBalls runRate }
      scorecards {
        batting { name runs balls strikeRate status onStrike }
        bowling { name overs runs wickets bowling }
        fallOfWickets { wicket } partnership { runs }
      }
    } }"""

    answer = await served.ask(whole, {"id": "m1"})
    unknown = await served.ask(whole, {"id": "m2"})

    assert answer.made == ["GetItem cricket-fixtures"]
    assert answer.data["match"] == {
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
        "followOn": False,
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
                        "onStrike": True,
                    }
                ],
                "bowling": [{"name": "A Bowler", "overs": "3.2", "runs": 20, "wickets": 1, "bowling": True}],
                "fallOfWickets": [],
                "partnership": None,
            }
        ],
    }
    assert (unknown.data, unknown.errors) == ({"match": None}, None)


async def test_an_id_has_1_to_100_characters(served: Served) -> None:
    asked = "query ($id: ID!) { match(id: $id) { matchId } }"
    answers = [await served.ask(asked, {"id": id}) for id in ("", "   ", "x" * 101)]

    assert [refusal(answer) for answer in answers] == [("BAD_USER_INPUT", "id")] * 3


async def test_a_damaged_match_is_an_error_in_its_place_alone(served: Served) -> None:
    await put(served, one("m1"), one("m2"), one("m3"))
    await served.store().write_all(FIXTURES, puts=[{"matchId": "m2", "leagueCode": "IPL", "startTime": "soon"}])

    answer = await served.ask(MATCHES, {"ids": ["m1", "m2", "m3"]})

    assert answer.data == {"matches": [{"matchId": "m1"}, None, {"matchId": "m3"}]}
    assert [(error["path"], error["extensions"]["code"]) for error in answer.errors or ()] == [
        (["matches", 1], "INTERNAL")
    ]


async def test_a_match_has_a_global_id(served: Served) -> None:
    await put(served, one("m1"), one("m#2/é"))

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


async def test_matches_come_in_the_order_of_their_ids(served: Served) -> None:
    await put(served, one("m1"), one("m2"), one("m3"))

    answer = await served.ask(MATCHES, {"ids": ["m3", "none", "m1", "m3", "m2", "nor this"]})

    assert answer.data["matches"] == [{"matchId": id} if id else None for id in ("m3", None, "m1", "m3", "m2", None)]
    assert answer.made == ["BatchGetItem cricket-fixtures"]
    assert asked_for(answer, "cricket-fixtures") == ["m1", "m2", "m3", "none", "nor this"]
    assert (await served.ask(MATCHES, {"ids": []})).data == {"matches": []}


async def test_more_than_100_matches_are_refused(served: Served) -> None:
    answer = await served.ask(MATCHES, {"ids": [f"m{number}" for number in range(101)]})

    assert refusal(answer) == ("BAD_USER_INPUT", "ids")
    assert answer.calls == []


LEAGUES, SIDES = 4, 20


@pytest.fixture
async def season(served: Served) -> list[str]:
    """A hundred matches of twenty teams in four leagues; the user ada follows every third."""
    store = served.store()
    await Teams(store, NOON).put_all(Team(f"t{number}", f"Team {number}", f"T{number}") for number in range(SIDES))
    for number in range(LEAGUES):
        await Leagues(store, NOON).put(League(f"l{number}", f"League {number}", f"L{number}"))
    matches = [
        one(
            f"m{number:03}",
            NOON + timedelta(minutes=number),
            league_id=f"l{number % LEAGUES}",
            league_code=f"L{number % LEAGUES}",
            home_team_id=f"t{number % SIDES}",
            away_team_id=f"t{(number + 1 + number // SIDES) % SIDES}",
        )
        for number in range(100)
    ]
    await put(served, *matches)
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


async def test_whether_they_are_followed_is_read_along_with_the_teams(served: Served, season: list[str]) -> None:
    answer = await served.ask(JOINED % "isFollowed", {"ids": season[:30]}, user="ada")

    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchGetItem cricket-leagues+cricket-match-follows+cricket-teams",
    ]
    assert asked_for(answer, "cricket-match-follows") == season[:30]
    assert [match["isFollowed"] for match in answer.data["matches"]] == [number % 3 == 0 for number in range(30)]


async def test_nobody_signed_in_learns_all_but_whether_they_follow(served: Served, season: list[str]) -> None:
    answer = await served.ask(JOINED % "isFollowed", {"ids": season[:2]})

    assert answer.codes == ["UNAUTHENTICATED"] * 2
    assert [match["homeTeam"]["name"] for match in answer.data["matches"]] == ["Team 0", "Team 1"]
    assert [match["isFollowed"] for match in answer.data["matches"]] == [None, None]


async def test_a_team_that_nobody_knows_is_null(served: Served) -> None:
    await put(served, one())

    answer = await served.ask(
        '{ match(id: "m1") { homeTeamId homeTeam { name } league { name } season { seasonId } } }'
    )

    assert (answer.data, answer.errors) == (
        {"match": {"homeTeamId": "10", "homeTeam": None, "league": None, "season": None}},
        None,
    )


# FIX-3: the matches of a league


def within(matches: Sequence[Match], code: str, start: datetime, end: datetime) -> list[str]:
    """The list as plain code makes it."""
    found = [match for match in matches if match.league_code == code and start <= match.start_time <= end]
    return [match.match_id for match in sorted(found, key=lambda match: (match.start_time, match.match_id))]


async def pages(served: Served, size: int, arguments: dict[str, Any], *, backward: bool = False) -> list[list[str]]:
    """All pages of a list in the order they were read, and each has what the next one begins after."""
    count, place, more = ("last", "before", "hasPreviousPage") if backward else ("first", "after", "hasNextPage")
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        answer = await served.ask(BY_LEAGUE, {count: size, place: cursor, **arguments})
        assert answer.errors is None, answer.errors
        assert set(answer.made) - {"Scan cricket-leagues"} == {"Query cricket-fixtures.leagueCode-startTime-index"}
        page = answer.data["matchesByLeague"]
        found.append([edge["node"]["matchId"] for edge in page["edges"]])
        assert page["pageInfo"]["hasPreviousPage" if not backward else "hasNextPage"] is (cursor is not None)
        if not page["pageInfo"][more]:
            return found
        edge = page["edges"][0 if backward else -1]
        cursor = page["pageInfo"]["startCursor" if backward else "endCursor"]
        assert edge["cursor"] == cursor


@pytest.fixture
async def sixty(served: Served) -> list[Match]:
    """Sixty matches in three leagues over forty days, some of them at the very same time."""
    chance = random.Random(60)
    matches = [
        one(
            f"m{number:02}",
            NOON + timedelta(days=chance.randint(-20, 20), hours=chance.choice((0, 4))),
            league_code=chance.choice(("IPL", "BBL", "PSL")),
        )
        for number in range(60)
    ]
    await put(served, *matches)
    for code in ("IPL", "BBL", "PSL"):
        await Leagues(served.store(), NOON).put(League(code, code, code))
    return matches


async def test_pages_of_a_league_are_the_list_both_ways(served: Served, sixty: list[Match]) -> None:
    chance = random.Random(3)
    for _ in range(12):
        code, size = chance.choice(("IPL", "BBL", "PSL")), chance.randint(1, 12)
        start = NOON + timedelta(days=chance.randint(-22, 10))
        end = start + timedelta(days=chance.randint(0, 30))
        arguments = {"code": code, "from": start.isoformat(), "to": end.isoformat()}
        # Those of one moment have an order of the index's own, the same in both directions.
        whole = [id for page in await pages(served, 100, arguments) for id in page]

        forward = await pages(served, size, arguments)
        back = await pages(served, size, arguments, backward=True)

        starts = {match.match_id: match.start_time for match in sixty}
        assert sorted(whole) == sorted(within(sixty, code, start, end))
        assert [starts[id] for id in whole] == sorted(starts[id] for id in whole)
        assert [id for page in forward for id in page] == whole
        assert [id for page in reversed(back) for id in page] == whole
        assert [len(page) for page in forward[:-1]] == [size] * (len(forward) - 1)
        assert [len(page) for page in back[:-1]] == [size] * (len(back) - 1)


async def test_a_league_that_does_not_exist_is_an_error_and_one_without_matches_an_empty_list(
    served: Served, sixty: list[Match]
) -> None:
    later = {"from": "2027-01-01", "to": "2027-02-01"}
    known, unknown = [await served.ask(BY_LEAGUE, {"code": code, **later}) for code in ("PSL", "NOPE")]

    assert (known.errors, known.data["matchesByLeague"]["edges"]) == (None, [])
    assert unknown.codes == ["NOT_FOUND"]
    assert unknown.errors is not None
    assert unknown.errors[0]["message"] == "There is no league with the code 'NOPE'."
    # The leagues were read once, and are kept for 30 seconds.
    assert unknown.made == ["Query cricket-fixtures.leagueCode-startTime-index"]


async def test_both_ends_of_a_window_are_in_it(served: Served) -> None:
    instant = timedelta(milliseconds=1)
    await put(
        served,
        one("before", NOON - instant),
        one("first", NOON),
        one("last", NOON + timedelta(hours=1)),
        one("after", NOON + timedelta(hours=1) + instant),
    )

    # The same moments, in another zone.
    found = await pages(served, 10, {"code": "IPL", "from": "2026-06-25T17:30:00+05:30", "to": "2026-06-25T13:00:00Z"})

    assert found == [["first", "last"]]


DEFAULT_WINDOWS: list[tuple[dict[str, str], list[int]]] = [
    ({}, [-7, 0, 30]),
    ({"from": "2026-06-25T12:00:00Z"}, [0, 30]),
    ({"to": "2026-06-25T12:00:00Z"}, [-7, 0]),
    # A start to come: thirty days from it. An end long ago: the week before it.
    ({"from": "2026-07-20T12:00:00Z"}, [30, 31, 50]),
    ({"to": "2026-06-17T12:00:00Z"}, [-12, -8]),
]


async def test_a_window_without_ends_is_from_a_week_ago_for_a_month(served: Served) -> None:
    await put(served, *[one(f"{day}", NOON + timedelta(days=day)) for day in (-16, -12, -8, -7, 0, 30, 31, 50, 56)])

    found = [await pages(served, 10, {"code": "IPL", **arguments}) for arguments, _ in DEFAULT_WINDOWS]

    assert found == [[[str(day) for day in days]] for _, days in DEFAULT_WINDOWS]


WRONG_WINDOWS = [
    ("2026-06-25T12:00:00Z", "2026-06-25T11:59:59Z", "to"),
    ("2016-06-25T12:00:00Z", "2026-07-25T12:00:00Z", "to"),
    ("2010-01-01T00:00:00Z", None, "to"),
    ("2026-06-25T12:00:00Z", "9999-12-31T23:59:59Z", "to"),
    ("9999-12-31T23:59:59Z", None, "from"),
    (None, "0001-01-01T00:00:00Z", "to"),
    ("0001-01-01T00:00:00+14:00", None, "from"),
]


async def test_a_window_that_is_wrong_or_too_long_is_refused(served: Served) -> None:
    answers = [
        await served.ask(BY_LEAGUE, {"code": "IPL", "from": start, "to": end}) for start, end, _ in WRONG_WINDOWS
    ]

    assert [refusal(answer) for answer in answers] == [("BAD_USER_INPUT", field) for *_, field in WRONG_WINDOWS]
    assert [answer.calls for answer in answers] == [[]] * len(answers)


async def test_a_code_that_no_league_has_is_refused(served: Served) -> None:
    answers = [await served.ask(BY_LEAGUE, {"code": code}) for code in ("", " ", "x" * 21)]

    assert [refusal(answer) for answer in answers] == [("BAD_USER_INPUT", "leagueCode")] * 3
    assert [answer.calls for answer in answers] == [[]] * 3


async def test_a_cursor_is_good_for_its_list_only(served: Served, sixty: list[Match]) -> None:
    window = {"from": "2026-06-01T00:00:00Z", "to": "2026-07-31T00:00:00Z"}
    page = (await served.ask(BY_LEAGUE, {"code": "IPL", "first": 2, **window})).data["matchesByLeague"]
    cursor = page["pageInfo"]["endCursor"]

    others: list[dict[str, Any]] = [
        {"code": "BBL", **window},
        {"code": "IPL", "from": window["from"]},
        {"code": "IPL", **window, "from": "2026-06-02T00:00:00Z"},
        {"code": "IPL"},
    ]

    assert page["lastEvaluatedKey"] == cursor
    assert [(await served.ask(BY_LEAGUE, {"after": cursor, **other})).codes for other in others] == [
        ["BAD_CURSOR"]
    ] * len(others)
    assert (await served.ask(BY_LEAGUE, {"code": "IPL", "after": cursor[:-2] + "AA", **window})).codes == ["BAD_CURSOR"]
    followers = 'query ($after: String) { match(id: "m01") { followers(after: $after) { nodes { userId } } } }'
    assert (await system(served, followers, {"after": cursor})).codes == ["BAD_CURSOR"]


async def test_a_cursor_lives_on_while_the_default_window_moves(served: Served, sixty: list[Match]) -> None:
    first = (await served.ask(BY_LEAGUE, {"code": "IPL", "first": 3})).data["matchesByLeague"]
    served.clock.forward(minutes=5)

    second = await served.ask(BY_LEAGUE, {"code": "IPL", "first": 3, "after": first["pageInfo"]["endCursor"]})

    at_once = await pages(served, 6, {"code": "IPL"})
    assert [
        edge["node"]["matchId"] for page in (first, second.data["matchesByLeague"]) for edge in page["edges"]
    ] == at_once[0]


@pytest.mark.parametrize("selected", [True, False])
async def test_the_scorecards_of_a_list_are_read_together_when_they_are_selected(
    served: Served, selected: bool
) -> None:
    for number in range(5):
        await play(served, one(f"m{number}", NOON + timedelta(hours=number)))
    fields = "innings { runs } " + ("scorecards { batting { name runs } }" if selected else "")

    answer = await served.ask(f'{{ matchesByLeague(leagueCode: "IPL") {{ nodes {{ matchId version {fields} }} }} }}')

    expected: dict[str, Any] = {"version": 7, "innings": [{"runs": 120}]}
    if selected:
        expected["scorecards"] = [{"batting": [{"name": "A Batter", "runs": 60}]}]
    assert answer.data["matchesByLeague"]["nodes"] == [{"matchId": f"m{number}", **expected} for number in range(5)]
    reads = ["BatchGetItem cricket-fixtures"] if selected else []
    assert answer.made == [*reads, "Query cricket-fixtures.leagueCode-startTime-index"]


async def test_matches_read_by_their_ids_have_their_scorecards_with_them(served: Served) -> None:
    for number in range(3):
        await play(served, one(f"m{number}"))

    answer = await served.ask('{ matches(ids: ["m0", "m1", "m2"]) { scorecards { batting { runs } } } }')

    assert answer.made == ["BatchGetItem cricket-fixtures"]
    assert answer.data["matches"] == [{"scorecards": [{"batting": [{"runs": 60}]}]}] * 3


TOLD = "matchId status phase followOn innings { number teamId superOver }"


async def test_a_list_tells_of_a_match_what_the_match_alone_tells(served: Served) -> None:
    """The index has neither the phase nor the follow-on: they are read from the status and the scores."""
    sides = {
        "follow-on": ("10", "20", "20"),
        "no-follow-on": ("10", "20", "10"),
        "super-over": ("10", "20", "20", "10"),
    }
    # Stored when its word was not known yet.
    await play(served, one("new"), status="Int.", phase=MatchPhase.UNKNOWN)
    for id, teams in sides.items():
        innings = tuple(
            InningsScore(at, team, super_over=id == "super-over" and at > 2) for at, team in enumerate(teams, 1)
        )
        await play(served, one(id), innings=innings, follow_on=id == "follow-on")
    words = {"NS": "UPCOMING", "Stump Day 2": "STUMPS", "Int.": "INTERRUPTED", "Aban.": "ABANDONED", "Odd": "UNKNOWN"}
    await sync(served, *[given(word, status=word, startTime=LATER) for word in words])

    listed = await served.ask(f'{{ matchesByLeague(leagueCode: "IPL") {{ nodes {{ {TOLD} }} }} }}')
    alone = await served.ask(
        f"query ($ids: [ID!]!) {{ matches(ids: $ids) {{ {TOLD} }} }}", {"ids": ["new", *sides, *words]}
    )

    nodes = {node["matchId"]: node for node in listed.data["matchesByLeague"]["nodes"]}
    assert list(nodes.values()) == sorted(alone.data["matches"], key=lambda node: list(nodes).index(node["matchId"]))
    assert listed.made == ["Query cricket-fixtures.leagueCode-startTime-index"]
    assert {id: nodes[id]["followOn"] for id in sides} == {id: id == "follow-on" for id in sides}
    assert {word: nodes[word]["phase"] for word in words} == words
    assert nodes["new"]["phase"] == "INTERRUPTED"


async def test_a_damaged_match_does_not_end_its_page(served: Served) -> None:
    await put(served, one("m1"), one("m3", NOON + timedelta(hours=2)))
    await served.store().write_all(
        FIXTURES,
        puts=[{"matchId": "m2", "leagueCode": "IPL", "startTime": "2026-06-25T13:00:00.000Z", "venue": "no JSON"}],
    )

    answer = await served.ask(BY_LEAGUE, {"code": "IPL"})

    assert [edge["node"] for edge in answer.data["matchesByLeague"]["edges"]] == [
        {"matchId": "m1"},
        None,
        {"matchId": "m3"},
    ]
    assert answer.codes == ["INTERNAL"]


# What only the system sees, and lineups


SECRETS = {
    "active": "active { fence }",
    "followers": "followers { nodes { userId } }",
    "liveActivities": "liveActivities { nodes { userId } }",
}


@pytest.mark.parametrize(
    ("user", "role", "code"),
    [(None, Role.USER, "UNAUTHENTICATED"), ("ada", Role.USER, "FORBIDDEN"), ("root", Role.ADMIN, "FORBIDDEN")],
)
async def test_what_is_the_systems_is_refused_in_its_field_alone(
    served: Served, user: str | None, role: Role, code: str
) -> None:
    await put(served, one())

    for name, field in SECRETS.items():
        answer = await served.ask(f'{{ match(id: "m1") {{ matchId {field} }} }}', user=user, role=role)

        assert answer.data == {"match": {"matchId": "m1", name: None}}
        assert [(error["path"], error["extensions"]["code"]) for error in answer.errors or ()] == [
            (["match", name], code)
        ]
        assert answer.made == ["GetItem cricket-fixtures"]


async def test_the_system_sees_all_of_a_match(served: Served) -> None:
    match = one()
    await put(served, match)
    await MatchFollows(served.store(), NOON).follow(match, "ada", "10")

    answer = await system(served, f'{{ match(id: "m1") {{ {" ".join(SECRETS.values())} }} }}')

    assert answer.errors is None
    assert answer.data["match"] == {
        "active": None,
        "followers": {"nodes": [{"userId": "ada"}]},
        "liveActivities": {"nodes": []},
    }
    assert answer.made == [
        "GetItem active-matches",
        "GetItem cricket-fixtures",
        "Query cricket-match-follows",
        "Query live-activities",
    ]


async def test_lineups_are_those_that_the_source_told_last(served: Served) -> None:
    captain = LineupPlayer("p1", "A Batter", "10", captain=True)
    for number in range(3):
        await put(served, one(f"m{number}"))
    await FixtureCache(served.store(), NOON).put(MatchSnapshot(one("m0"), lineups=(captain,)))
    lineups = """{ matches(ids: ["m0", "m1", "m2"]) {
      lineups { playerId name teamId captain wicketkeeper substitute }
    } }"""

    answer = await served.ask(lineups)
    served.clock.forward(hours=12)
    later = await served.ask(lineups)

    assert answer.data["matches"] == [
        {
            "lineups": [
                {
                    "playerId": "p1",
                    "name": "A Batter",
                    "teamId": "10",
                    "captain": True,
                    "wicketkeeper": False,
                    "substitute": False,
                }
            ]
        },
        {"lineups": []},
        {"lineups": []},
    ]
    assert answer.made == ["BatchGetItem cricket-fixture-cache", "BatchGetItem cricket-fixtures"]
    assert later.data["matches"] == [{"lineups": []}] * 3


# FIX-4: sync


async def test_fixtures_are_stored_25_at_a_time(served: Served) -> None:
    answer = await sync(served, *[given(f"m{number:02}", startTime=LATER) for number in range(60)])

    assert answer.errors is None
    assert answer.made == ["BatchGetItem cricket-fixtures", *["BatchWriteItem cricket-fixtures"] * 3]
    sizes = [
        len(requests)
        for call in answer.calls
        if call.operation == "BatchWriteItem"
        for requests in call.request["RequestItems"].values()
    ]
    assert sorted(sizes) == [10, 25, 25]
    assert [match["matchId"] for match in answer.data["syncFixtures"]] == [f"m{number:02}" for number in range(60)]
    assert answer.data["syncFixtures"][0] == {
        "matchId": "m00",
        "status": "NS",
        "phase": "UPCOMING",
        "startTime": "2026-06-28T14:00:00+00:00",
        "round": None,
        "version": 0,
        "venue": None,
        "homeTeamId": "10",
        "updatedAt": MOMENT,
        "innings": [],
    }
    ids = [f"m{number:02}" for number in range(60)]
    assert (await served.ask(MATCHES, {"ids": ids})).data["matches"] == [{"matchId": id} for id in ids]


async def test_a_fixture_takes_the_place_of_the_one_with_its_id(served: Served) -> None:
    await sync(served, given(round="Final", venue={"name": "Lantern Park"}))

    answer = await sync(served, given(startTime="2026-06-26T14:00:00+02:00", status="Postp."))

    (match,) = answer.data["syncFixtures"]
    assert (match["round"], match["venue"], match["status"], match["phase"]) == (None, None, "Postp.", "POSTPONED")
    assert match["startTime"] == "2026-06-26T12:00:00+00:00"
    assert (await stored(served) or {}).keys() & {"round", "venue"} == set()


async def test_of_two_fixtures_with_one_id_the_last_counts(served: Served) -> None:
    answer = await sync(served, given(round="first"), given("m2"), given(round="last"))

    assert [(match["matchId"], match["round"]) for match in answer.data["syncFixtures"]] == [
        ("m1", "last"),
        ("m2", None),
    ]
    assert (await stored(served) or {})["round"] == "last"


async def test_what_was_played_stays_when_its_fixture_is_synced(served: Served) -> None:
    live = await play(served, one("m1", round="Match 1"))

    changed = given("m1", status="NS", round="Final", startTime="2026-06-25T12:30:00Z")
    answer = await sync(served, changed, given("m2", startTime=LATER))

    played, new = answer.data["syncFixtures"]
    assert (played["status"], played["phase"], played["version"]) == ("1st Innings", "LIVE", 7)
    assert (played["round"], played["startTime"]) == ("Final", "2026-06-25T12:30:00+00:00")
    assert played["innings"] == [{"runs": 120}]
    assert (new["matchId"], new["version"]) == ("m2", 0)
    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchWriteItem cricket-fixtures",
        "UpdateItem cricket-fixtures",
    ]
    after = await Fixtures(served.store(), NOON).latest("m1")
    assert after is not None
    assert (after.scorecards, after.fence, after.innings) == (live.scorecards, 2, live.innings)


async def test_fixtures_that_may_be_played_soon_are_stored_one_by_one(served: Served) -> None:
    starts = ["2026-06-24T11:59:00Z", "2026-06-24T12:00:00Z", "2026-06-26T12:00:00Z", "2026-06-26T12:01:00Z"]

    answer = await sync(served, *[given(f"m{number}", startTime=start) for number, start in enumerate(starts)])

    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchWriteItem cricket-fixtures",
        *["UpdateItem cricket-fixtures"] * 2,
    ]
    assert [match["version"] for match in answer.data["syncFixtures"]] == [0] * 4
    # One that was to begin soon may be in play before the news that it is put off arrives.
    later = await sync(served, given("m2", startTime=LATER))
    assert later.made == ["GetItem cricket-fixtures", "UpdateItem cricket-fixtures"]


@pytest.mark.parametrize("version", [0, 7])
async def test_what_is_played_while_it_is_synced_is_not_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    before = await play(served, one(), version=version) if version else one()
    if not version:
        await put(served, before)
    read = Fixtures.latest
    live = replace(
        before, status="2nd Innings", phase=MatchPhase.LIVE, version=version + 1, fence=3, scorecards=(CARD,)
    )

    async def read_just_before_a_tick(self: Fixtures, match_id: str) -> Match | None:
        found = await read(self, match_id)
        assert await Fixtures(served.store(), NOON).write_live(live)
        return found

    monkeypatch.setattr(Fixtures, "latest", read_just_before_a_tick)
    told = one(round="Final", status="Finished", phase=MatchPhase.FINISHED)
    [answered] = await Fixtures(served.store(), NOON).sync([told], polled=())
    monkeypatch.undo()

    after = await Fixtures(served.store(), NOON).latest("m1")
    assert after == answered
    assert after is not None
    assert (after.round, after.status, after.version, after.fence) == ("Final", "2nd Innings", version + 1, 3)
    assert after.scorecards == (CARD,)


async def test_a_match_that_nobody_has_written_of_late_takes_what_its_source_says(served: Served) -> None:
    await play(served, one(), status="Postp.", phase=MatchPhase.POSTPONED, innings=(), scorecards=())
    await system(served, ARCHIVE)

    [match] = (await sync(served, given(startTime=LATER))).data["syncFixtures"]

    assert (match["status"], match["phase"], match["version"]) == ("NS", "UPCOMING", 8)
    item = await stored(served) or {}
    assert item["fence"] == 2
    assert "archivedAt" not in item


async def test_a_source_that_lags_takes_nothing_back(served: Served) -> None:
    live = await play(served, one(), status="Finished", phase=MatchPhase.FINISHED)
    await system(served, ARCHIVE)

    [match] = (await sync(served, given(startTime="2026-06-25T11:00:00Z"))).data["syncFixtures"]

    assert (match["status"], match["version"], match["innings"]) == ("Finished", live.version, [{"runs": 120}])


BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"matchId": " "}, "matchId"),
    ({"matchId": "x" * 101}, "matchId"),
    ({"leagueId": ""}, "leagueId"),
    ({"leagueCode": "x" * 21}, "leagueCode"),
    ({"homeTeamId": ""}, "homeTeamId"),
    ({"awayTeamId": "10"}, "awayTeamId"),
    ({"status": "x" * 101}, "status"),
    ({"round": "x" * 201}, "round"),
    ({"format": "x" * 101}, "format"),
    ({"note": "x" * 1001}, "note"),
    ({"seasonId": "x" * 101}, "seasonId"),
    ({"venue": {"name": ""}}, "venue.name"),
    ({"venue": {"name": "Here", "city": "x" * 201}}, "venue.city"),
    ({"scheduledOvers": 0}, "scheduledOvers"),
    ({"scheduledOvers": 101}, "scheduledOvers"),
    ({"ballsPerOver": 3}, "ballsPerOver"),
    ({"ballsPerOver": 9}, "ballsPerOver"),
    ({"startTime": "0999-12-31"}, "startTime"),
    ({"startTime": "0001-01-01T00:00:00+14:00"}, "startTime"),
    ({"startTime": "9999-12-31T23:59:59-14:00"}, "startTime"),
]


async def test_a_fixture_beyond_the_limits_is_refused_and_none_is_stored(served: Served) -> None:
    answers = [await sync(served, given("fine"), given("other") | changes) for changes, _ in BEYOND]

    assert [refusal(answer) for answer in answers] == [
        ("BAD_USER_INPUT", f"fixtures[1].{field}") for _, field in BEYOND
    ]
    assert [answer.calls for answer in answers] == [[]] * len(BEYOND)


async def test_more_than_100_fixtures_are_refused(served: Served) -> None:
    answer = await sync(served, *[given(f"m{number}") for number in range(101)])

    assert refusal(answer) == ("BAD_USER_INPUT", "fixtures")
    assert answer.calls == []
    assert (await sync(served)).data == {"syncFixtures": []}


# FIX-5: update


async def test_an_update_changes_what_it_names_and_nothing_else(served: Served) -> None:
    await play(served, one(round="Match 1", venue=Venue("Here", city="Port Alder"), note="Rain about", format="T20"))
    served.clock.forward(minutes=1)

    answer = await update(served, note=None, round="Final", startTime="2026-06-25T15:00:00Z")

    assert answer.made == ["UpdateItem cricket-fixtures"]
    assert answer.data["updateFixture"] == {
        "matchId": "m1",
        "status": "1st Innings",
        "phase": "LIVE",
        "startTime": "2026-06-25T15:00:00+00:00",
        "round": "Final",
        "format": "T20",
        "note": None,
        "scheduledOvers": None,
        "venue": {"name": "Here", "city": "Port Alder"},
        "version": 7,
        "updatedAt": "2026-06-25T12:01:00+00:00",
    }
    after = await served.ask('{ match(id: "m1") { round note startTime scorecards { batting { runs } } } }')
    assert after.data["match"] == {
        "round": "Final",
        "note": None,
        "startTime": "2026-06-25T15:00:00+00:00",
        "scorecards": [{"batting": [{"runs": 60}]}],
    }


async def test_null_takes_away_what_can_be_missing(served: Served) -> None:
    await put(served, one(round="1", venue=Venue("Here"), note="x", format="T20", scheduled_overs=20))

    answer = await update(served, round=None, venue=None, note=None, format=None, scheduledOvers=None)

    assert {answer.data["updateFixture"][name] for name in ("round", "venue", "note", "format", "scheduledOvers")} == {
        None
    }
    gone = {"round", "venue", "note", "format", "scheduledOvers"}
    assert (await stored(served) or {}).keys() & gone == set()


async def test_a_status_brings_its_phase(served: Served) -> None:
    await put(served, one())
    phases = {"Finished": "FINISHED", "Stump Day 1": "STUMPS", "a new word": "UNKNOWN"}

    answers = [await update(served, status=status) for status in phases]

    found = [answer.data["updateFixture"] for answer in answers]
    assert {match["status"]: match["phase"] for match in found} == phases


async def test_a_match_moves_within_its_league_when_its_start_changes(served: Served) -> None:
    await put(served, one("m1"), one("m2", NOON + timedelta(hours=1)))

    await update(served, startTime="2026-06-25T14:00:00Z")

    assert await pages(served, 10, {"code": "IPL"}) == [["m2", "m1"]]


WRONG_UPDATES: list[tuple[dict[str, Any], str]] = [
    ({}, "input"),
    ({"startTime": None}, "startTime"),
    ({"status": None}, "status"),
    ({"status": " "}, "status"),
    ({"scheduledOvers": 101}, "scheduledOvers"),
    ({"venue": {"name": " "}}, "venue.name"),
]


async def test_an_update_that_is_wrong_changes_nothing(served: Served) -> None:
    await put(served, one())

    answers = [await update(served, **changes) for changes, _ in WRONG_UPDATES]

    assert [refusal(answer) for answer in answers] == [("BAD_USER_INPUT", field) for _, field in WRONG_UPDATES]
    assert [answer.calls for answer in answers] == [[]] * len(WRONG_UPDATES)


async def test_a_match_that_is_not_there_is_neither_changed_nor_made(served: Served) -> None:
    assert (await update(served, round="Final")).codes == ["NOT_FOUND"]
    assert (await system(served, ARCHIVE)).codes == ["NOT_FOUND"]
    assert await stored(served) is None


async def test_updates_of_different_fields_at_once_are_all_kept(served: Served) -> None:
    await put(served, one())

    await asyncio.gather(update(served, round="Final"), update(served, note="Dry"), update(served, format="ODI"))

    item = await stored(served) or {}
    assert (item["round"], item["note"], item["format"]) == ("Final", "Dry", "ODI")


# FIX-6: archive


async def test_an_archived_match_says_when_and_is_live_no_more(served: Served) -> None:
    await play(served, one())
    served.clock.forward(hours=1)

    answer = await system(served, ARCHIVE)

    assert answer.made == ["UpdateItem cricket-fixtures"]
    assert answer.data["archiveFixture"] == {
        "matchId": "m1",
        "archivedAt": "2026-06-25T13:00:00+00:00",
        "liveUpdatedAt": None,
        "version": 7,
    }
    listed = await served.ask('{ matchesByLeague(leagueCode: "IPL") { nodes { archivedAt liveUpdatedAt } } }')
    assert listed.data["matchesByLeague"]["nodes"] == [
        {"archivedAt": "2026-06-25T13:00:00+00:00", "liveUpdatedAt": None}
    ]


async def test_a_match_that_is_played_again_is_archived_no_more(served: Served) -> None:
    live = await play(served, one())
    await system(served, ARCHIVE)

    await Fixtures(served.store(), NOON).write_live(replace(live, version=8))

    answer = await served.ask('{ match(id: "m1") { archivedAt liveUpdatedAt version } }')
    assert answer.data["match"] == {"archivedAt": None, "liveUpdatedAt": MOMENT, "version": 8}
