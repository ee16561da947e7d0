"""The connections `teams` and `leagues`: pages of lists that the gateway reads as a whole and caches."""

from typing import Any

import pytest

from datastore.model.identity import Role
from tests.support.list_orders import PAGE_INFO, assert_pages
from tests.support.served import Answer, Served

# Two teams and two leagues have the same name: their ids decide.
NAMES = {"3": "Asgard", "1": "Bexhill", "9": "Bexhill", "2": "Corby", "4": "Dover"}
IDS = list(NAMES)
KEYS = {"teams": "teamId", "leagues": "leagueId"}


async def store_reference_data(served: Served) -> None:
    teams = [{"teamId": id, "name": name, "code": id} for id, name in NAMES.items()]
    sync = "mutation ($teams: [TeamInput!]!) { syncTeams(input: $teams) { teamId } }"
    assert (await served.ask(sync, {"teams": teams}, user="job", role=Role.SYSTEM)).errors is None
    put = "mutation ($id: ID!, $league: LeagueInput!) { putLeague(id: $id, input: $league) { leagueId } }"
    for id, name in NAMES.items():
        league = {"name": name, "code": id, "active": id != "1"}
        assert (await served.ask(put, {"id": id, "league": league}, user="job", role=Role.SYSTEM)).errors is None


async def reference_page(served: Served, field: str, arguments: str) -> tuple[list[str], dict[str, Any], Answer]:
    answer = await served.ask(
        f"{{ page: {field}({arguments}) {{ nodes {{ {KEYS[field]} }} lastEvaluatedKey {PAGE_INFO} }} }}"
    )
    assert answer.errors is None, answer.errors
    page = answer.data["page"]
    assert page["lastEvaluatedKey"] == (page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None)
    return [node[KEYS[field]] for node in page["nodes"]], page["pageInfo"], answer


@pytest.mark.parametrize("field", KEYS)
@pytest.mark.parametrize(("order", "expected"), [("ASCENDING", IDS), ("DESCENDING", IDS[::-1])])
async def test_teams_and_leagues_are_paged_by_name_in_both_orders(
    served: Served, field: str, order: str, expected: list[str]
) -> None:
    await store_reference_data(served)

    async def read(paging: str) -> tuple[list[str], dict[str, Any]]:
        ids, info, _ = await reference_page(served, field, paging)
        return ids, info

    await assert_pages(read, expected, order=order, size=2)


@pytest.mark.parametrize("field", KEYS)
async def test_all_pages_of_reference_data_take_one_scan(served: Served, field: str) -> None:
    await store_reference_data(served)

    _, info, first = await reference_page(served, field, "first: 2")
    _, _, second = await reference_page(served, field, f'first: 2, after: "{info["endCursor"]}"')

    assert (first.made, second.made) == ([f"Scan cricket-{field}"], [])


async def test_a_team_between_two_pages_neither_repeats_nor_hides_another(served: Served) -> None:
    await store_reference_data(served)
    _, info, _ = await reference_page(served, "teams", "first: 2")
    added = 'mutation { syncTeams(input: [{teamId: "0", name: "Aaa", code: "A"}]) { teamId } }'
    await served.ask(added, user="job", role=Role.SYSTEM)
    removed = {"teamId": "1", "name": "Zennor", "code": "1"}  # the team of the cursor moves to the end
    sync = "mutation ($teams: [TeamInput!]!) { syncTeams(input: $teams) { teamId } }"
    await served.ask(sync, {"teams": [removed]}, user="job", role=Role.SYSTEM)

    ids, _, _ = await reference_page(served, "teams", f'after: "{info["endCursor"]}"')

    assert ids == ["9", "2", "4", "1"]


async def test_a_cursor_of_leagues_is_valid_for_its_arguments_only(served: Served) -> None:
    await store_reference_data(served)
    ids, info, _ = await reference_page(served, "leagues", "active: true, first: 2")
    cursor = info["endCursor"]

    own, _, _ = await reference_page(served, "leagues", f'active: true, after: "{cursor}"')
    others = [
        await served.ask(f'{{ leagues({given}, after: "{cursor}") {{ nodes {{ leagueId }} }} }}')
        for given in ("active: false", "active: null", "active: true, order: DESCENDING")
    ]

    assert (ids, own) == (["3", "9"], ["2", "4"])
    assert [answer.codes for answer in others] == [["BAD_CURSOR"]] * 3


@pytest.mark.parametrize(("size", "field"), [("first: 0", "first"), ("last: 101", "last")])
async def test_a_page_of_teams_of_a_wrong_size_reads_nothing(served: Served, size: str, field: str) -> None:
    answer = await served.ask(f"{{ teams({size}) {{ nodes {{ teamId }} }} }}")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["field"] == field
    assert answer.made == []
