"""Leagues through the API, on the real engine (LG-1 … LG-6)."""

from typing import Any

import pytest

from datastore.keyspace.matches.leagues import LEAGUES
from datastore.matches.leagues import League, Leagues
from datastore.model.identity import Role
from tests.support.served import NOON, Answer, Served

FIELDS = "leagueId name code active currentSeasonId imageUrl countryId type updatedAt"
PUT = f"mutation ($id: ID!, $input: LeagueInput!) {{ putLeague(id: $id, input: $input) {{ {FIELDS} }} }}"
UPDATE = f"mutation ($id: ID!, $input: UpdateLeagueInput!) {{ updateLeague(id: $id, input: $input) {{ {FIELDS} }} }}"
DELETE = f"mutation ($id: ID!) {{ deleteLeague(id: $id) {{ {FIELDS} }} }}"
LEAGUE = f"query ($id: ID!) {{ league(id: $id) {{ {FIELDS} }} }}"
LISTS = """{
  all: leagues { nodes { leagueId } }
  active: leagues(active: true) { nodes { leagueId } }
  others: leagues(active: false) { nodes { leagueId } }
}"""
MOMENT = "2026-06-25T12:00:00.000Z"
IPL = {
    "leagueId": "1",
    "name": "Indian Premier League",
    "code": "IPL",
    "active": True,
    "currentSeasonId": "2026",
    "imageUrl": "https://img.example.com/ipl.png",
    "countryId": "153732",
    "type": "league",
}
BBL = {"leagueId": "5", "name": "Big Bash League", "code": "BBL", "active": False}


async def put_league_input(served: Served, league: dict[str, Any]) -> Answer:
    given = {**league}
    return await served.ask(PUT, {"id": given.pop("leagueId"), "input": given}, user="job", role=Role.SYSTEM)


async def update_league(served: Served, id: str, **changes: Any) -> Answer:
    return await served.ask(UPDATE, {"id": id, "input": changes}, user="root", role=Role.ADMIN)


async def delete_league(served: Served, id: str) -> Answer:
    return await served.ask(DELETE, {"id": id}, user="root", role=Role.ADMIN)


def league_ids_by_field(answer: Answer) -> dict[str, list[str]]:
    assert answer.errors is None
    return {name: [league["leagueId"] for league in page["nodes"]] for name, page in answer.data.items()}


# LG-1, LG-4


async def test_a_league_is_read_as_it_was_put_with_its_code_in_upper_case(served: Served) -> None:
    answer = await put_league_input(served, IPL | {"code": "ipl"})
    league = await served.ask(LEAGUE, {"id": "1"})

    assert answer.data == {"putLeague": IPL | {"updatedAt": MOMENT}}
    assert league.data == {"league": IPL | {"updatedAt": MOMENT}}
    assert (answer.made, league.made) == (["PutItem cricket-leagues"], ["GetItem cricket-leagues"])


async def test_a_put_replaces_the_whole_league_and_activates_it_by_default(served: Served) -> None:
    await put_league_input(served, IPL)

    await put_league_input(served, {"leagueId": "1", "name": "Premier League", "code": "PL"})

    unset = dict.fromkeys(("currentSeasonId", "imageUrl", "countryId", "type"))
    assert (await served.ask(LEAGUE, {"id": "1"})).data["league"] == {
        "leagueId": "1",
        "name": "Premier League",
        "code": "PL",
        "active": True,
        "updatedAt": MOMENT,
        **unset,
    }


async def test_an_unknown_league_is_null(served: Served) -> None:
    assert (await served.ask(LEAGUE, {"id": "none"})).data == {"league": None}


async def test_a_league_has_its_season_with_the_teams(served: Served) -> None:
    await put_league_input(served, IPL)
    await put_league_input(served, BBL)
    await served.ask(
        """mutation {
          syncTeams(input: [{teamId: "6", name: "Mumbai", code: "MUM"}, {teamId: "2", name: "Chennai", code: "CHE"}]) {
            teamId
          }
          syncTeamSeasons(seasonId: "2026", input: {
            teamSeasons: [{teamId: "2", points: 4}, {teamId: "6", points: 6}]
          }) { teamId }
        }""",
        user="job",
        role=Role.SYSTEM,
    )

    answer = await served.ask(
        """{ leagues { nodes {
          code currentSeason { seasonId teamSeasons(first: 2) { nodes { points team { name } } } }
        } } }"""
    )

    rows = [{"points": 4, "team": {"name": "Chennai"}}, {"points": 6, "team": {"name": "Mumbai"}}]
    assert answer.data["leagues"]["nodes"] == [
        {"code": "BBL", "currentSeason": None},
        {"code": "IPL", "currentSeason": {"seasonId": "2026", "teamSeasons": {"nodes": rows}}},
    ]
    assert answer.made == ["BatchGetItem cricket-teams", "Query cricket-team-seasons", "Scan cricket-leagues"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"leagueId": ""}, "id"),
        ({"name": "x" * 201}, "name"),
        ({"code": "x" * 21}, "code"),
        ({"code": " "}, "code"),
        ({"currentSeasonId": "x" * 101}, "currentSeasonId"),
        ({"imageUrl": "data:image/png;base64,AA"}, "imageUrl"),
        ({"type": "x" * 101}, "type"),
    ],
)
async def test_values_out_of_bounds_are_refused(served: Served, wrong: dict[str, Any], field: str) -> None:
    answer = await put_league_input(served, IPL | wrong)

    assert answer.errors is not None
    assert (answer.codes, answer.errors[0]["extensions"]["field"]) == (["BAD_USER_INPUT"], field)
    assert answer.calls == []


# LG-2, LG-3


async def test_leagues_are_sorted_by_name_and_filtered_by_activity(served: Served) -> None:
    await put_league_input(served, IPL)
    await put_league_input(served, BBL)
    await put_league_input(served, IPL | {"leagueId": "3", "name": "Caribbean Premier League"})

    answer = await served.ask(LISTS)

    assert league_ids_by_field(answer) == {"all": ["5", "3", "1"], "active": ["3", "1"], "others": ["5"]}
    assert answer.made == ["Scan cricket-leagues"] * 2
    filters = [call.request["FilterExpression"] for call in answer.calls if "FilterExpression" in call.request]
    assert filters == ["#active = :active"]
    # The scan cache must include a write just before the read.
    assert [call.request["ConsistentRead"] for call in answer.calls] == [True, True]


async def test_damaged_leagues_are_omitted_and_without_the_attribute_they_are_inactive(served: Served) -> None:
    await put_league_input(served, IPL)
    damaged = {"leagueId": "7", "active": True, "updatedAt": "never"}
    silent = {"leagueId": "8", "name": "Nameless Cup", "code": "NC"}
    await served.store().write_all(LEAGUES, puts=[damaged, silent])

    answer = await served.ask(LISTS)

    assert league_ids_by_field(answer) == {"all": ["1", "8"], "active": ["1"], "others": ["8"]}


async def test_jobs_read_the_active_leagues_without_a_cache(served: Served) -> None:
    leagues = Leagues(served.store(), NOON)
    await put_league_input(served, IPL)
    await served.ask(LISTS)

    await leagues.put(League("9", "Asia Cup", "acup"))

    assert [league.code for league in await leagues.active()] == ["ACUP", "IPL"]
    assert league_ids_by_field(await served.ask(LISTS))["active"] == ["1"]


# LG-5, LG-6


async def test_an_update_changes_the_given_fields_only(served: Served) -> None:
    await put_league_input(served, IPL)
    served.clock.forward(hours=1)

    answer = await update_league(served, "1", code="tata", active=False, currentSeasonId=None)

    expected = IPL | {"code": "TATA", "active": False, "currentSeasonId": None, "updatedAt": "2026-06-25T13:00:00.000Z"}
    assert answer.data == {"updateLeague": expected}
    assert (await served.ask(LEAGUE, {"id": "1"})).data == {"league": expected}
    assert answer.made == ["UpdateItem cricket-leagues"]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("name", "IPL"),
        ("currentSeasonId", "2027"),
        ("imageUrl", None),
        ("countryId", None),
        ("type", None),
        ("type", "phase"),
    ],
)
async def test_each_field_can_be_changed_alone(served: Served, change: str, value: Any) -> None:
    await put_league_input(served, IPL)

    answer = await update_league(served, "1", **{change: value})

    assert answer.data == {"updateLeague": IPL | {change: value, "updatedAt": MOMENT}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [({}, "input"), ({"name": None}, "name"), ({"code": None}, "code"), ({"active": None}, "active")],
)
async def test_an_update_without_fields_is_refused(served: Served, changes: dict[str, Any], field: str) -> None:
    await put_league_input(served, IPL)

    answer = await update_league(served, "1", **changes)

    assert answer.errors is not None
    assert (answer.codes, answer.errors[0]["extensions"]["field"]) == (["BAD_USER_INPUT"], field)
    assert answer.calls == []


async def test_an_update_does_not_create_a_league(served: Served) -> None:
    assert (await update_league(served, "none", name="Some")).codes == ["NOT_FOUND"]
    assert (await served.ask(LEAGUE, {"id": "none"})).data == {"league": None}


async def test_a_deletion_returns_the_league_once(served: Served) -> None:
    await put_league_input(served, IPL)

    answer = await delete_league(served, "1")
    again = await delete_league(served, "1")

    assert answer.data == {"deleteLeague": IPL | {"updatedAt": MOMENT}}
    assert answer.made == ["DeleteItem cricket-leagues"]
    assert again.data == {"deleteLeague": None}
    assert (await served.ask(LEAGUE, {"id": "1"})).data == {"league": None}
