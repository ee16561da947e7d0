"""The arguments `order` and `consistent` of the matches: the pages in both directions, and the calls that they make."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.dynamodb.calls import Call
from datastore.matches.leagues import League, Leagues
from datastore.model.identity import Role
from tests.support.contract.matches import prepare_matches
from tests.support.fixture_steps import planned_match, put_fixtures
from tests.support.list_orders import PAGE_INFO, are_forward, assert_pages, consistency
from tests.support.live_activities import register_session
from tests.support.match_follows import put_follows
from tests.support.served import NOON, Served

ENTRIES = 5
SYNC_SEASON = """mutation ($teams: [TeamSeasonInput!]!) {
  syncTeamSeasons(seasonId: "2026", input: {teamSeasons: $teams }) { teamId }
}"""
# By list: its field with the arguments that select it, the field that holds it, and a field of its entries. All ascend
# without the argument.
LISTS = {
    "matchesByLeague": (
        'matchesByLeague(leagueCode: "IPL", from: "2026-06-25T00:00:00Z", to: "2026-06-26T00:00:00Z", %s)',
        "%s",
        "matchId",
    ),
    "League.matches": (
        'matches(from: "2026-06-25T00:00:00Z", to: "2026-06-26T00:00:00Z", %s)',
        'league(id: "L") { %s }',
        "matchId",
    ),
    "teamSeasons": ('teamSeasons(seasonId: "2026", %s)', "%s", "teamId"),
    "Match.follows": ("follows(%s)", 'match(id: "m0") { %s }', "userId"),
    "Match.liveActivities": ("liveActivities(%s)", 'match(id: "m0") { %s }', "userId"),
}
CONSISTENT = {
    "match": 'match(id: "m1", %s) { matchId }',
    "matches": 'matches(ids: ["m1", "m2"], %s) { matchId }',
    "activeMatch": 'activeMatch(id: "m1", %s) { matchId }',
    "activeMatches": "activeMatches(%s) { matchId }",
    "locks": "locks(%s) { lockKey }",
    "team": 'team(id: "10", %s) { name }',
    "league": 'league(id: "1", %s) { name }',
    "teamSeasons": 'teamSeasons(seasonId: "2026", %s) { nodes { teamId } }',
    "matchFollow": 'matchFollow(matchId: "m1", %s) { teamId }',
    "device": 'device(userId: "ada", %s) { platform }',
}

FOR_THE_SYSTEM = {"activeMatch", "activeMatches", "locks"}


async def store_ordered_lists(served: Served) -> None:
    """Store five entries of each list."""
    await put_fixtures(
        served, *[planned_match(f"m{number}", NOON + timedelta(minutes=number)) for number in range(ENTRIES)]
    )
    await Leagues(served.store(), NOON).put(League("L", "Premier League", "IPL"))
    await put_follows(served.store(), range(ENTRIES), "m0")
    for number in range(ENTRIES):
        assert (await register_session(served, user=f"u{number}", match="m0")).errors is None
    teams = [{"teamId": f"t{number}"} for number in range(ENTRIES)]
    assert (await served.ask(SYNC_SEASON, {"teams": teams}, user="job", role=Role.SYSTEM)).errors is None


async def read_ordered_list(served: Served, name: str, paging: str) -> tuple[list[str], dict[str, Any], list[Call]]:
    """Return the names of a page's entries, its `pageInfo`, and its Queries."""
    field, holder, node = LISTS[name]
    text = "{ " + holder % f"page: {field % paging} {{ nodes {{ {node} }} {PAGE_INFO} }}" + " }"
    answer = await served.ask(text, user="job", role=Role.SYSTEM)
    assert answer.errors is None, answer.errors
    (found,) = answer.data.values()
    page = found.get("page", found)
    queries = [call for call in answer.calls if call.operation == "Query"]
    return [entry[node] for entry in page["nodes"]], page["pageInfo"], queries


@pytest.mark.parametrize("name", LISTS)
async def test_each_list_of_matches_is_read_in_both_orders(served: Served, name: str) -> None:
    await store_ordered_lists(served)

    default, _, forward = await read_ordered_list(served, name, "first: 100")
    reversed_page, _, queries = await read_ordered_list(served, name, "first: 100, order: DESCENDING")

    assert len(default) == ENTRIES
    assert reversed_page == default[::-1]
    assert (are_forward(forward), are_forward(queries)) == ({True}, {False})


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("order", ["ASCENDING", "DESCENDING"])
async def test_the_pages_of_each_order_of_matches_are_the_list(served: Served, name: str, order: str) -> None:
    await store_ordered_lists(served)
    whole, _, _ = await read_ordered_list(served, name, f"first: 100, order: {order}")

    async def read(paging: str) -> tuple[list[str], dict[str, Any]]:
        names, info, _ = await read_ordered_list(served, name, paging)
        return names, info

    await assert_pages(read, whole, order=order, size=2)


@pytest.mark.parametrize("name", CONSISTENT)
async def test_consistent_reaches_each_read_of_a_field_of_matches(served: Served, name: str) -> None:
    await prepare_matches(served)
    role = Role.SYSTEM if name in FOR_THE_SYSTEM else Role.USER

    for flag in (True, False):
        argument = f"consistent: {str(flag).lower()}"
        answer = await served.ask("{ " + CONSISTENT[name] % argument + " }", user="ada", role=role)

        assert answer.errors is None, answer.errors
        assert answer.calls
        assert set(consistency(answer)) == {flag}, answer.made
