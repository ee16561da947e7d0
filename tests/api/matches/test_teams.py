"""Teams and their seasons through the API, on the real engine (TM-1 … TM-4, TS-1, TS-2)."""

import logging
from typing import Any

import pytest

from datastore.keyspace.matches.team_seasons import TEAM_SEASONS
from datastore.keyspace.matches.teams import TEAM as TEAM_BY_ID
from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.team_seasons import TeamSeason, TeamSeasons
from datastore.matches.teams import Team, Teams
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from resolvers.shared.global_ids import global_id
from tests.support.served import NOON, Answer, Served

SYNC = """
mutation ($teams: [TeamInput!]!) {
  syncTeams(input: $teams) { teamId name code imageUrl countryId national updatedAt }
}
"""
UPDATE = """
mutation ($id: ID!, $input: UpdateTeamInput!) {
  updateTeam(id: $id, input: $input) { teamId name code imageUrl countryId national updatedAt }
}
"""
TEAM = "query ($id: ID!) { team(id: $id) { teamId name code imageUrl countryId national updatedAt } }"
ALL = "{ teams { nodes { teamId name } } }"
SYNC_SEASON = """
mutation ($id: ID!, $input: SyncTeamSeasonsInput!) {
  syncTeamSeasons(seasonId: $id, input: $input) {
    seasonId seasonName leagueId teamId position played won lost drawn noResult points netRunRate updatedAt
  }
}
"""
SEASON = """
query ($first: Int, $after: String, $last: Int, $before: String) {
  teamSeasons(seasonId: "2026", first: $first, after: $after, last: $last, before: $before) {
    nodes { teamId points team { name } }
    pageInfo { hasNextPage endCursor startCursor }
  }
}
"""
MOMENT = "2026-06-25T12:00:00.000Z"
INDIA = {
    "teamId": "10",
    "name": "India",
    "code": "IND",
    "imageUrl": "https://img.example.com/ind.png",
    "countryId": "153732",
    "national": True,
}
MUMBAI = {"teamId": "6", "name": "Mumbai", "code": "MUM"}


async def ask_to_sync_teams(served: Served, *teams: dict[str, Any]) -> Answer:
    return await served.ask(SYNC, {"teams": list(teams)}, user="job", role=Role.SYSTEM)


async def update_team(served: Served, id: str, **changes: Any) -> Answer:
    return await served.ask(UPDATE, {"id": id, "input": changes}, user="root", role=Role.ADMIN)


async def sync_season(served: Served, *teams: dict[str, Any], **season: Any) -> Answer:
    given = {"teamSeasons": list(teams), **season}
    return await served.ask(
        SYNC_SEASON, {"id": given.pop("seasonId", "2026"), "input": given}, user="job", role=Role.SYSTEM
    )


def numbered_teams(count: int) -> list[dict[str, Any]]:
    return [{"teamId": f"{number:03}", "name": f"Team {number:03}", "code": "T"} for number in range(count)]


def code_field_and_message(answer: Answer) -> tuple[str, str, str]:
    """Return the code, the field and the message of the only error."""
    assert answer.errors is not None
    (error,) = answer.errors
    return error["extensions"]["code"], error["extensions"]["field"], error["message"]


# TM-1, TM-3


async def test_a_synced_team_is_read_as_given(served: Served) -> None:
    synced = await ask_to_sync_teams(served, INDIA, MUMBAI)
    india = await served.ask(TEAM, {"id": "10"})
    mumbai = await served.ask(TEAM, {"id": "6"})

    assert synced.errors is None
    assert india.data == {"team": INDIA | {"updatedAt": MOMENT}}
    assert mumbai.data["team"] == MUMBAI | {
        "imageUrl": None,
        "countryId": None,
        "national": False,
        "updatedAt": MOMENT,
    }
    assert synced.data == {"syncTeams": [india.data["team"], mumbai.data["team"]]}
    assert india.made == ["GetItem cricket-teams"]


async def test_a_team_without_a_value_has_no_attribute_for_it(served: Served) -> None:
    await ask_to_sync_teams(served, MUMBAI | {"imageUrl": None})

    item = await served.store().get(TEAM_BY_ID, Key("6"))

    assert item is not None
    assert item.pop("version") > 0
    assert item == MUMBAI | {"national": False, "updatedAt": "2026-06-25T12:00:00.000Z"}


async def test_an_unknown_team_is_null(served: Served) -> None:
    assert (await served.ask(TEAM, {"id": "nobody"})).data == {"team": None}


async def test_a_sync_replaces_whole_teams_and_stores_the_last_of_two_with_one_id(served: Served) -> None:
    await ask_to_sync_teams(served, INDIA)

    synced = await ask_to_sync_teams(
        served, INDIA | {"name": "Hind"}, {"teamId": "10", "name": "Bharat", "code": "BHA"}
    )
    team = await served.ask(TEAM, {"id": "10"})

    assert [team["name"] for team in synced.data["syncTeams"]] == ["Bharat"]
    assert (team.data["team"]["name"], team.data["team"]["imageUrl"]) == ("Bharat", None)


async def test_a_hundred_teams_are_written_25_a_call(served: Served) -> None:
    answer = await ask_to_sync_teams(served, *numbered_teams(100))

    assert len(answer.data["syncTeams"]) == 100
    assert answer.made == ["BatchWriteItem cricket-teams"] * 4
    sizes = [len(items) for call in answer.calls for items in call.request["RequestItems"].values()]
    assert sizes == [25, 25, 25, 25]


@pytest.mark.parametrize(
    ("wrong", "field", "limit"),
    [
        ({"name": " "}, "input[1].name", "200"),
        ({"name": "x" * 201}, "input[1].name", "200"),
        ({"code": ""}, "input[1].code", "20"),
        ({"code": "x" * 21}, "input[1].code", "20"),
        ({"teamId": "x" * 101}, "input[1].teamId", "100"),
        ({"countryId": ""}, "input[1].countryId", "100"),
        ({"imageUrl": "x" * 1001}, "input[1].imageUrl", "1000"),
        ({"imageUrl": "javascript:alert(1)"}, "input[1].imageUrl", "https://"),
    ],
)
async def test_values_out_of_bounds_are_refused_by_field_and_limit(
    served: Served, wrong: dict[str, Any], field: str, limit: str
) -> None:
    answer = await ask_to_sync_teams(served, INDIA, MUMBAI | wrong)

    code, named, message = code_field_and_message(answer)
    assert (code, named) == ("BAD_USER_INPUT", field)
    assert limit in message
    assert answer.calls == []


async def test_a_sync_has_at_most_a_hundred_teams(served: Served) -> None:
    answer = await ask_to_sync_teams(served, *numbered_teams(101))

    assert code_field_and_message(answer) == ("BAD_USER_INPUT", "input", "`input` may contain at most 100, not 101.")
    assert answer.calls == []


async def test_texts_of_the_maximal_length_are_accepted_and_stripped(served: Served) -> None:
    answer = await ask_to_sync_teams(served, {"teamId": "i" * 100, "name": f"  {'n' * 200} ", "code": "c" * 20})

    assert answer.errors is None
    assert answer.data["syncTeams"][0]["name"] == "n" * 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (TEAM, "id"),
        ("query ($id: ID!) { league(id: $id) { name } }", "id"),
        ('query ($id: ID!) { matches(ids: ["m1", $id]) { matchId } }', "ids"),
        ("query ($id: ID!) { teamSeasons(seasonId: $id) { nodes { teamId } } }", "seasonId"),
    ],
)
async def test_ids_of_queries_have_bounds(served: Served, query: str, field: str) -> None:
    answer = await served.ask(query, {"id": "x" * 101})

    assert code_field_and_message(answer)[:2] == ("BAD_USER_INPUT", field)
    assert answer.calls == []


async def test_teams_and_leagues_are_nodes_read_together(served: Served) -> None:
    await ask_to_sync_teams(served, INDIA, MUMBAI)
    put = 'mutation { putLeague(id: "1", input: {name: "Premier League", code: "IPL"}) { id } }'
    league = (await served.ask(put, user="job", role=Role.SYSTEM)).data["putLeague"]["id"]
    ids = [global_id("Team", "6"), league, global_id("Team", "none"), global_id("Team", "10")]

    answer = await served.ask(
        "query ($ids: [ID!]!) { nodes(ids: $ids) { id ... on Team { name } ... on League { code } } }", {"ids": ids}
    )

    assert answer.data == {
        "nodes": [
            {"id": ids[0], "name": "Mumbai"},
            {"id": league, "code": "IPL"},
            None,
            {"id": ids[3], "name": "India"},
        ]
    }
    assert answer.made == ["BatchGetItem cricket-leagues+cricket-teams"]


# TM-2


async def test_all_teams_are_sorted_by_name(served: Served) -> None:
    await ask_to_sync_teams(served, MUMBAI, INDIA, {"teamId": "2", "name": "Chennai", "code": "CHE"})

    answer = await served.ask(ALL)

    assert [team["name"] for team in answer.data["teams"]["nodes"]] == ["Chennai", "India", "Mumbai"]
    assert answer.made == ["Scan cricket-teams"]
    # The scan cache must include a write just before the read.
    assert [call.request["ConsistentRead"] for call in answer.calls] == [True]


async def test_a_damaged_team_is_omitted_from_the_list_and_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await ask_to_sync_teams(served, INDIA)
    await served.store().write_all(TEAMS, puts=[{"teamId": "broken", "updatedAt": "never"}])

    with caplog.at_level(logging.ERROR, "datastore.dynamodb.records"):
        listed = await served.ask(ALL)
    one = await served.ask(TEAM, {"id": "broken"})

    assert listed.errors is None
    assert [team["teamId"] for team in listed.data["teams"]["nodes"]] == ["10"]
    assert "{'teamId': 'broken'}" in caplog.text
    assert one.codes == ["INTERNAL"]


# TM-4


async def test_an_update_changes_the_given_fields_only(served: Served) -> None:
    await ask_to_sync_teams(served, INDIA)
    served.clock.forward(hours=1)

    answer = await update_team(served, "10", name=" Bharat ", imageUrl=None)
    team = await served.ask(TEAM, {"id": "10"})

    expected = INDIA | {"name": "Bharat", "imageUrl": None, "updatedAt": "2026-06-25T13:00:00.000Z"}
    assert answer.data == {"updateTeam": expected}
    assert team.data == {"team": expected}
    assert answer.made == ["UpdateItem cricket-teams"]


@pytest.mark.parametrize(
    ("change", "value"),
    [("code", "BHA"), ("countryId", "1"), ("countryId", None), ("national", False), ("imageUrl", "http://a/b")],
)
async def test_each_field_can_be_changed_alone(served: Served, change: str, value: Any) -> None:
    await ask_to_sync_teams(served, INDIA)

    answer = await update_team(served, "10", **{change: value})

    assert answer.data == {"updateTeam": INDIA | {change: value, "updatedAt": MOMENT}}


async def test_a_sync_continues_from_the_version_that_a_refused_update_found(served: Served) -> None:
    later = 2_000_000_000
    await served.store().write_all(TEAMS, puts=[Team("10", "India", "IND", version=later).item()])

    refused = await update_team(served, "10", name="Bharat", expectedVersion=0)
    await ask_to_sync_teams(served, INDIA)

    assert refused.codes == ["CONFLICT"]
    stored = await Teams(served.store(), NOON).by_id("10")
    assert stored is not None
    assert stored.version > later


async def test_an_update_does_not_create_a_team(served: Served) -> None:
    answer = await update_team(served, "nobody", name="Somebody")

    assert answer.codes == ["NOT_FOUND"]
    assert (await served.ask(TEAM, {"id": "nobody"})).data == {"team": None}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "input"),
        ({"name": None}, "name"),
        ({"code": None}, "code"),
        ({"national": None}, "national"),
        ({"name": "x" * 201}, "name"),
        ({"imageUrl": "ftp://a/b"}, "imageUrl"),
    ],
)
async def test_an_update_without_fields_or_beyond_the_limits_is_refused(
    served: Served, changes: dict[str, Any], field: str
) -> None:
    await ask_to_sync_teams(served, INDIA)

    answer = await update_team(served, "10", **changes)

    assert code_field_and_message(answer)[:2] == ("BAD_USER_INPUT", field)
    assert answer.calls == []


# TS-1, TS-2


async def test_a_row_of_a_season_is_read_as_given(served: Served) -> None:
    row = {
        "teamId": "10",
        "position": 1,
        "played": 14,
        "won": 9,
        "lost": 3,
        "drawn": 1,
        "noResult": 1,
        "points": 20.5,
        "netRunRate": -0.123457,
    }

    answer = await sync_season(served, row | {"netRunRate": -0.1234567}, seasonName="2026", leagueId="1")
    listed = await served.ask(
        """{ teamSeasons(seasonId: "2026") { nodes {
          seasonId seasonName leagueId teamId position played won lost drawn noResult points netRunRate updatedAt
        } } }"""
    )

    expected = row | {"seasonId": "2026", "seasonName": "2026", "leagueId": "1", "updatedAt": MOMENT}
    assert answer.data == {"syncTeamSeasons": [expected]}
    assert listed.data == {"teamSeasons": {"nodes": [expected]}}


async def test_the_teams_of_a_hundred_rows_are_one_batch(served: Served) -> None:
    await ask_to_sync_teams(served, *numbered_teams(100))
    await sync_season(served, *[{"teamId": team["teamId"]} for team in numbered_teams(100)])

    answer = await served.ask(SEASON, {"first": 100})

    names = [row["team"]["name"] for row in answer.data["teamSeasons"]["nodes"]]
    assert names == [team["name"] for team in numbered_teams(100)]
    assert answer.made == ["BatchGetItem cricket-teams", "Query cricket-team-seasons"]


async def test_a_season_is_paged_in_both_directions(served: Served) -> None:
    await sync_season(served, *[{"teamId": str(number)} for number in range(5)])

    first = await served.ask(SEASON, {"first": 3})
    second = await served.ask(SEASON, {"first": 3, "after": first.data["teamSeasons"]["pageInfo"]["endCursor"]})
    back = await served.ask(SEASON, {"last": 2, "before": second.data["teamSeasons"]["pageInfo"]["startCursor"]})

    pages = [[row["teamId"] for row in page.data["teamSeasons"]["nodes"]] for page in (first, second, back)]
    assert pages == [["0", "1", "2"], ["3", "4"], ["1", "2"]]
    assert second.data["teamSeasons"]["pageInfo"]["hasNextPage"] is False
    assert first.data["teamSeasons"]["nodes"][0]["team"] is None


async def test_a_cursor_is_valid_for_its_season_only(served: Served) -> None:
    await sync_season(served, {"teamId": "1"}, {"teamId": "2"})
    cursor = (await served.ask(SEASON, {"first": 1})).data["teamSeasons"]["pageInfo"]["endCursor"]

    answer = await served.ask(
        'query ($after: String) { teamSeasons(seasonId: "2025", after: $after) { nodes { teamId } } }',
        {"after": cursor},
    )

    assert answer.codes == ["BAD_CURSOR"]


async def test_a_damaged_row_is_an_error_in_its_place(served: Served) -> None:
    await sync_season(served, {"teamId": "1"}, {"teamId": "3"})
    await served.store().write_all(TEAM_SEASONS, puts=[{"seasonId": "2026", "teamId": "2", "points": "many"}])

    answer = await served.ask(SEASON)

    assert [row and row["teamId"] for row in answer.data["teamSeasons"]["nodes"]] == ["1", None, "3"]
    assert answer.codes == ["INTERNAL"]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"played": -1}, "teamSeasons[0].played"),
        ({"won": 10_001}, "teamSeasons[0].won"),
        ({"position": 0}, "teamSeasons[0].position"),
        ({"points": 100_001}, "teamSeasons[0].points"),
        ({"netRunRate": -100_001}, "teamSeasons[0].netRunRate"),
    ],
)
async def test_figures_have_bounds(served: Served, row: dict[str, Any], field: str) -> None:
    answer = await sync_season(served, {"teamId": "1", **row})

    assert code_field_and_message(answer)[:2] == ("BAD_USER_INPUT", field)
    assert answer.calls == []


async def test_a_number_that_is_too_small_for_the_store_is_zero(served: Served) -> None:
    answer = await sync_season(served, {"teamId": "1", "netRunRate": 1e-200})

    assert answer.errors is None
    assert answer.data["syncTeamSeasons"][0]["netRunRate"] == 0


async def test_a_sync_of_a_season_has_at_most_a_hundred_teams(served: Served) -> None:
    answer = await sync_season(served, *[{"teamId": str(number)} for number in range(101)])

    assert code_field_and_message(answer)[:2] == ("BAD_USER_INPUT", "teamSeasons")
    assert answer.calls == []


# Jobs


async def test_jobs_put_any_number_of_records(served: Served) -> None:
    store = served.store()
    teams = [Team(str(number), f"Team {number}", "T") for number in range(130)]
    rows = [TeamSeason("2026", team.team_id, points=2) for team in teams]

    put = await Teams(store, NOON).put_all(teams)
    await TeamSeasons(store, NOON).put_all(rows)

    assert {team.updated_at for team in put} == {NOON}
    assert len(await Teams(store, NOON).all()) == 130
    answer = await served.ask(SEASON, {"first": 100})
    assert answer.data["teamSeasons"]["pageInfo"]["hasNextPage"] is True
