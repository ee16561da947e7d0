"""Builders of matches and the requests that the tests of fixtures share."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import decode_item
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import fixture
from datastore.matches.cricket import (
    BattingLine,
    BowlingLine,
    InningsScore,
    Match,
    MatchPhase,
    Scorecard,
)
from datastore.matches.fixtures import Fixtures
from datastore.model.identity import Role
from tests.support.served import NOON, Answer, Served

SYNC = """mutation ($fixtures: [FixtureInput!]!) {
  syncFixtures(input: $fixtures) {
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
MOMENT = "2026-06-25T12:00:00.000Z"
CARD = Scorecard(
    1,
    batting=(BattingLine("p1", "A Batter", 1, runs=60, balls=40, on_strike=True),),
    bowling=(BowlingLine("p2", "A Bowler", completed_overs=3, balls=2, runs=20, wickets=1, bowling=True),),
)


def planned_match(match_id: str = "m1", start: datetime = NOON, **more: Any) -> Match:
    facts = {"league_id": "L", "league_code": "IPL", "home_team_id": "10", "away_team_id": "20"}
    return Match(match_id, start_time=start, **(facts | more))


def given(match_id: str = "m1", **more: Any) -> dict[str, Any]:
    """Return a fixture as an input of the API."""
    facts = {
        "matchId": match_id,
        "leagueId": "L",
        "leagueCode": "IPL",
        "homeTeamId": "10",
        "awayTeamId": "20",
        "startTime": "2026-06-25T14:00:00Z",
    }
    return facts | more


async def put_fixtures(served: Served, *matches: Match) -> None:
    await Fixtures(served.store(), NOON).sync(matches)


async def store_played_match(served: Served, match: Match, **more: Any) -> Match:
    """Store a match and write its live state, as its poller does."""
    await put_fixtures(served, match)
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


async def ask_system(served: Served, query: str, variables: dict[str, Any] | None = None) -> Answer:
    return await served.ask(query, variables, user="job", role=Role.SYSTEM)


async def sync_fixtures(served: Served, *fixtures: dict[str, Any]) -> Answer:
    return await ask_system(served, SYNC, {"fixtures": list(fixtures)})


async def update_fixture(served: Served, match_id: str = "m1", **changes: Any) -> Answer:
    return await ask_system(served, UPDATE, {"id": match_id, "input": changes})


async def stored_fixture(served: Served, match_id: str = "m1") -> dict[str, Any] | None:
    return await served.store().get(keys.SYNC_FIXTURES, fixture(match_id))


def code_and_field(answer: Answer) -> tuple[str, str]:
    """Return the code and the field of the only error."""
    assert answer.errors is not None
    (error,) = answer.errors
    return error["extensions"]["code"], error["extensions"]["field"]


def asked_for(answer: Answer, table: str) -> list[str]:
    """Return the ids that BatchGetItem calls requested from a table."""
    return sorted(
        next(iter(decode_item(key).values()))
        for call in answer.calls
        if call.operation == "BatchGetItem"
        for name, entry in call.request["RequestItems"].items()
        if name.endswith(f"__{table}")
        for key in entry["Keys"]
    )


async def league_pages(
    served: Served, size: int, arguments: dict[str, Any], *, backward: bool = False
) -> list[list[str]]:
    """Return all pages of a league's list in the order in which they were read, and check the cursors of each."""
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
