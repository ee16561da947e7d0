"""Fields of matches: scorecards, lineups, and fields for the system only, through the API on the real engine."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import (
    InningsScore,
    LineupPlayer,
    MatchPhase,
    MatchSnapshot,
)
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.match_follows import MatchFollows
from datastore.model.identity import Role
from tests.support.fixture_steps import (
    BY_LEAGUE,
    LATER,
    ask_system,
    given,
    planned_match,
    put_fixtures,
    store_played_match,
    sync_fixtures,
)
from tests.support.served import NOON, Served


async def test_a_list_shows_the_revision_and_the_fields_of_operators_as_the_match_does(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m2", NOON + timedelta(hours=1)))
    change = 'mutation { updateFixture(id: "m2", input: {note: "Late", round: "Final"}) { revision operatorFields } }'
    changed = (await ask_system(served, change)).data["updateFixture"]
    fields = "revision operatorFields scorecards { inningsNumber }"

    listed = await served.ask(f'{{ matchesByLeague(leagueCode: "IPL") {{ nodes {{ {fields} }} }} }}')
    alone = await served.ask(f'{{ matches(ids: ["m1", "m2"]) {{ {fields} }} }}')

    assert listed.data["matchesByLeague"]["nodes"] == alone.data["matches"]
    assert {"scorecards": [], **changed} == alone.data["matches"][1]
    assert changed["operatorFields"] == ["ROUND", "NOTE"]
    # All three fields share one read for each match.
    assert listed.made == ["BatchGetItem cricket-fixtures", "Query cricket-fixtures.leagueCode-startTime-index"]
    stale = await ask_system(
        served,
        'mutation { updateFixture(id: "m2", input: {note: "Later", expectedVersion: 0}) { matchId } }',
    )
    assert stale.errors is not None
    assert stale.errors[0]["extensions"]["current"].items() >= changed.items()


@pytest.mark.parametrize("selected", [True, False])
async def test_the_scorecards_of_a_list_are_read_together_when_they_are_selected(
    served: Served, selected: bool
) -> None:
    for number in range(5):
        await store_played_match(served, planned_match(f"m{number}", NOON + timedelta(hours=number)))
    fields = "innings { runs } " + ("scorecards { batting { name runs } }" if selected else "")

    answer = await served.ask(f'{{ matchesByLeague(leagueCode: "IPL") {{ nodes {{ matchId version {fields} }} }} }}')

    expected: dict[str, Any] = {"version": 7, "innings": [{"runs": 120}]}
    if selected:
        expected["scorecards"] = [{"batting": [{"name": "A Batter", "runs": 60}]}]
    assert answer.data["matchesByLeague"]["nodes"] == [{"matchId": f"m{number}", **expected} for number in range(5)]
    reads = ["BatchGetItem cricket-fixtures"] if selected else []
    assert answer.made == [*reads, "Query cricket-fixtures.leagueCode-startTime-index"]


async def test_matches_by_ids_include_their_scorecards(served: Served) -> None:
    for number in range(3):
        await store_played_match(served, planned_match(f"m{number}"))

    answer = await served.ask('{ matches(ids: ["m0", "m1", "m2"]) { scorecards { batting { runs } } } }')

    assert answer.made == ["BatchGetItem cricket-fixtures"]
    assert answer.data["matches"] == [{"scorecards": [{"batting": [{"runs": 60}]}]}] * 3


FIELDS = "matchId status phase followOnEnforced innings { number teamId isSuperOver }"


async def test_a_list_tells_of_a_match_what_the_match_alone_tells(served: Served) -> None:
    """The index has neither the phase nor the follow-on: they are read from the status and the scores."""
    sides = {
        "follow-on": ("10", "20", "20"),
        "no-follow-on": ("10", "20", "10"),
        "super-over": ("10", "20", "20", "10"),
    }
    # stored when the gateway did not yet know its status
    await store_played_match(served, planned_match("new"), status="Int.", phase=MatchPhase.UNKNOWN)
    for id, teams in sides.items():
        innings = tuple(
            InningsScore(at, team, super_over=id == "super-over" and at > 2) for at, team in enumerate(teams, 1)
        )
        await store_played_match(served, planned_match(id), innings=innings, follow_on=id == "follow-on")
    words = {"NS": "UPCOMING", "Stump Day 2": "STUMPS", "Int.": "INTERRUPTED", "Aban.": "ABANDONED", "Odd": "UNKNOWN"}
    await sync_fixtures(served, *[given(word, status=word, startTime=LATER) for word in words])

    listed = await served.ask(f'{{ matchesByLeague(leagueCode: "IPL") {{ nodes {{ {FIELDS} }} }} }}')
    alone = await served.ask(
        f"query ($ids: [ID!]!) {{ matches(ids: $ids) {{ {FIELDS} }} }}", {"ids": ["new", *sides, *words]}
    )

    nodes = {node["matchId"]: node for node in listed.data["matchesByLeague"]["nodes"]}
    assert list(nodes.values()) == sorted(alone.data["matches"], key=lambda node: list(nodes).index(node["matchId"]))
    assert listed.made == ["Query cricket-fixtures.leagueCode-startTime-index"]
    assert {id: nodes[id]["followOnEnforced"] for id in sides} == {id: id == "follow-on" for id in sides}
    assert {word: nodes[word]["phase"] for word in words} == words
    assert nodes["new"]["phase"] == "INTERRUPTED"


async def test_a_damaged_match_does_not_end_its_page(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m3", NOON + timedelta(hours=2)))
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


# Fields for the system only, and lineups


SYSTEM_FIELDS = {
    "activeMatch": "activeMatch { fence }",
    "follows": "follows { nodes { userId } }",
    "liveActivities": "liveActivities { nodes { userId } }",
}


@pytest.mark.parametrize(
    ("user", "role", "code"),
    [(None, Role.USER, "UNAUTHENTICATED"), ("ada", Role.USER, "FORBIDDEN"), ("root", Role.ADMIN, "FORBIDDEN")],
)
async def test_a_field_for_the_system_is_refused_alone(served: Served, user: str | None, role: Role, code: str) -> None:
    await put_fixtures(served, planned_match())

    for name, field in SYSTEM_FIELDS.items():
        answer = await served.ask(f'{{ match(id: "m1") {{ matchId {field} }} }}', user=user, role=role)

        assert answer.data == {"match": {"matchId": "m1", name: None}}
        assert [(error["path"], error["extensions"]["code"]) for error in answer.errors or ()] == [
            (["match", name], code)
        ]
        assert answer.made == ["GetItem cricket-fixtures"]


async def test_the_system_sees_all_of_a_match(served: Served) -> None:
    match = planned_match()
    await put_fixtures(served, match)
    await MatchFollows(served.store(), NOON).follow(match, "ada", "10")

    answer = await ask_system(served, f'{{ match(id: "m1") {{ {" ".join(SYSTEM_FIELDS.values())} }} }}')

    assert answer.errors is None
    assert answer.data["match"] == {
        "activeMatch": None,
        "follows": {"nodes": [{"userId": "ada"}]},
        "liveActivities": {"nodes": []},
    }
    assert answer.made == [
        "GetItem active-matches",
        "GetItem cricket-fixtures",
        "Query cricket-match-follows",
        "Query live-activities",
    ]


async def test_lineups_are_the_latest_ones_of_the_source(served: Served) -> None:
    captain = LineupPlayer("p1", "A Batter", "10", captain=True)
    for number in range(3):
        await put_fixtures(served, planned_match(f"m{number}"))
    await FixtureCache(served.store(), NOON).put(MatchSnapshot(planned_match("m0"), lineups=(captain,)))
    lineups = """{ matches(ids: ["m0", "m1", "m2"]) {
      lineups { playerId name teamId isCaptain isWicketkeeper isSubstitute }
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
                    "isCaptain": True,
                    "isWicketkeeper": False,
                    "isSubstitute": False,
                }
            ]
        },
        {"lineups": []},
        {"lineups": []},
    ]
    assert answer.made == ["BatchGetItem cricket-fixture-cache", "BatchGetItem cricket-fixtures"]
    assert later.data["matches"] == [{"lineups": []}] * 3
