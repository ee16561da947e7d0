"""`expectedVersion` through the API, on the real engine: concurrent changes of an item lose no update."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.devices import DEVICES
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.keyspace.matches.teams import TEAMS
from datastore.keyspace.photos.table import SPARKS
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.model.versioning import REVISION, VERSION
from tests.support.photo_items import ADA, EVE, person, put_library_items, user_id
from tests.support.served import NOON, Answer, Served
from tests.support.versioned_items import BY_NAME, KINDS, interleave, put_anew, race, world

__all__ = ["world"]

TOKENS = ("b2" * 32, "c3" * 32, "d4" * 32, "e5" * 32)

ROTATE = """mutation ($value: String!, $expected: Int) {
  it: updateLiveActivity(matchId: "m", deviceId: "d", input: {updateToken: $value, expectedVersion: $expected}) {
    value: updateToken version
  }
}"""


@pytest.mark.proof
async def test_updates_and_puts_in_any_order_agree_with_a_model(world: Served) -> None:
    for seed in range(3):
        await asyncio.gather(*[interleave(kind, world, seed) for kind in KINDS])


async def test_one_of_concurrent_updates_at_a_version_succeeds_also_during_a_sync(world: Served) -> None:
    for _ in range(3):
        await asyncio.gather(*[race(kind, world) for kind in KINDS])


@pytest.mark.parametrize("name", list(BY_NAME))
async def test_a_conflict_costs_no_further_call_and_shows_the_current_item(world: Served, name: str) -> None:
    kind = BY_NAME[name]
    await kind.change(world, kind.values[1])
    _, version = await kind.now(world)

    refused = await kind.change(world, kind.values[0], version + 1)

    assert refused.made == sorted(kind.made)
    assert refused.errors is not None
    details = refused.errors[0]["extensions"]
    assert (details["code"], details["expectedVersion"], details["currentVersion"]) == (
        "CONFLICT",
        version + 1,
        version,
    )
    assert set(details) == {"code", "expectedVersion", "currentVersion", "current"}
    assert details["current"]["revision" if name == "Match" else "version"] == version
    # A query of the same fields shows this caller the same item.
    shown = await kind.ask(world, kind.read.replace("value:", f"{selection(details['current'])} value:"))
    assert shown.errors is None
    expected = {name: value for name, value in shown.data["it"].items() if name not in ("value", "version")}
    assert unsigned({**details["current"], "version": None}) == unsigned({**expected, "version": None})


async def make_null(served: Served) -> None:
    """Set every version to null, as other programs write a missing attribute."""
    store = served.store()
    for table in (FEED, SPARKS, TEAMS, LEAGUES, FIXTURES, MATCH_FOLLOWS, DEVICES, LIVE_ACTIVITIES):
        everything = AccessPattern("ALL", "Everything", table, ("Scan",), Who.INTERNAL, consistent=True)
        version = REVISION if table is FIXTURES else VERSION
        await store.write_all(table, puts=[{**item, version: None} for item in await store.scan(everything)])


async def test_a_version_that_another_program_wrote_as_null_is_0(world: Served) -> None:
    for expected in (0, None):
        await make_null(world)
        assert [(await kind.now(world))[1] for kind in KINDS] == [0] * len(KINDS)
        answers = [await kind.change(world, kind.values[1], expected) for kind in KINDS]
        rotated = await world.ask(ROTATE, {"value": TOKENS[0], "expected": expected}, user="ada")
        assert [answer.errors for answer in (*answers, rotated)] == [None] * (len(KINDS) + 1)
        assert [(await kind.now(world))[1] for kind in KINDS] == [1] * len(KINDS)
        assert rotated.data["it"]["version"] == 1
        await make_null(world)
        conflicts = [await kind.change(world, kind.values[0], 1) for kind in KINDS]
        assert [answer.codes for answer in conflicts] == [["CONFLICT"]] * len(KINDS)
        # Restore the first value, so that the next round changes it again.
        for kind in KINDS:
            assert (await kind.change(world, kind.values[0], 0)).errors is None

    await make_null(world)
    await put_anew(world)
    ended = 'mutation { endLiveActivity(matchId: "m", deviceId: "d", input: {reason: "over"}) { version } }'
    assert (await world.ask(ended, user="ada")).errors is None
    for kind in KINDS:
        if kind.put:
            assert (await kind.ask(world, kind.put, value="put")).errors is None
            assert (await kind.now(world))[1] > 0


def selection(value: dict[str, Any]) -> str:
    """Return a GraphQL selection of the fields of a value."""
    names = [name for name in value if name != "version"]
    parts = {name: next(iter(value[name]), None) if isinstance(value[name], list) else value[name] for name in names}
    return " ".join(
        f"{name} {{ {selection(part)} }}" if isinstance(part, dict) else name for name, part in parts.items()
    )


def unsigned(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item without the signatures of its URLs, which differ from response to response."""
    return {
        name: str(value).partition("?")[0] if name.endswith("Url") else value for name, value in sorted(item.items())
    }


async def test_a_version_that_never_existed_is_reported_as_such(world: Served) -> None:
    answer = await BY_NAME["User"].change(world, "Ada", 99)

    (error,) = answer.errors or []
    assert error["message"] == "`expectedVersion` is 99, but the item is at version 0."


async def test_a_conflict_has_all_its_details(world: Served) -> None:
    await BY_NAME["User"].change(world, "Countess")

    answer = await BY_NAME["User"].change(world, "Ada", 0)

    assert answer.data is None
    assert answer.errors == [
        {
            "message": "`expectedVersion` is 0, but the item was changed meanwhile: it is at version 1.",
            "locations": [{"line": 2, "column": 7}],
            "path": ["it"],
            "extensions": {
                "code": "CONFLICT",
                "expectedVersion": 0,
                "currentVersion": 1,
                "current": {
                    "id": "WyJVc2VyIiwiYWRhIl0",
                    "userId": "ada",
                    "name": "Countess",
                    "bio": None,
                    "avatarRef": None,
                    "createdAt": "2026-06-25T12:00:00.000Z",
                    "version": 1,
                    "postCount": 0,
                    "followerCount": 0,
                    "followingCount": 0,
                },
            },
        }
    ]


@pytest.mark.parametrize("expected", [-1, -(2**31)])
async def test_an_impossible_version_is_bad_input(served: Served, expected: int) -> None:
    answer = await BY_NAME["User"].change(served, "Ada", expected)

    assert (answer.codes, answer.made) == (["BAD_USER_INPUT"], [])
    assert answer.errors is not None
    assert answer.errors[0]["message"] == "`expectedVersion` must be between 0 and 2147483647."
    assert answer.errors[0]["extensions"]["field"] == "expectedVersion"


async def test_a_version_that_is_no_int_is_bad_input(served: Served) -> None:
    answer = await BY_NAME["User"].change(served, "Ada", 2**31)

    assert (answer.codes, answer.made) == (["BAD_USER_INPUT"], [])


@pytest.mark.parametrize("expected", [0, 7])
async def test_a_missing_item_is_not_found_at_any_version(served: Served, expected: int) -> None:
    for kind in KINDS:
        assert (await kind.change(served, kind.values[0], expected)).codes == ["NOT_FOUND"], kind.name


async def test_only_changes_of_updatable_fields_change_the_version(world: Served) -> None:
    """Tags and counts leave the version unchanged: an update with `expectedVersion` cannot overwrite them."""
    tagged = await world.ask(
        """mutation { tagFace(imageId: "i", input: {personId: "p",
          boundingBox: {left: 0.1, top: 0.1, width: 0.2, height: 0.2}}) { faceId } }""",
        user="ada",
        email=ADA,
    )

    assert tagged.errors is None
    assert [(await BY_NAME[name].now(world))[1] for name in ("Photo", "Person")] == [0, 0]
    assert (await BY_NAME["Person"].change(world, "Grace", 0)).errors is None
    seen = await world.ask('{ person(id: "p", consistent: true) { name faceCount version } }')
    assert seen.data["person"] == {"name": "Grace", "faceCount": 1, "version": 1}


async def test_other_callers_learn_nothing_of_items_that_are_not_theirs(world: Served) -> None:
    ada_id = user_id(world, ADA)
    updates = {
        "updatePhoto": 'updatePhoto(id: "i", input: {tags: [], expectedVersion: 7}) { version }',
        "at its moment": """updatePhoto(id: "i", takenAt: "2023-01-01T00:00:00Z",
          input: {tags: [], expectedVersion: 7}) { version }""",
        "user": f'updatePhotoUser(id: "{ada_id}", input: {{displayName: "E", expectedVersion: 7}}) {{ version }}',
        "person": 'updatePerson(id: "p", input: {name: "E", expectedVersion: 7}) { version }',
    }
    for text in updates.values():
        answer = await world.ask(f"mutation {{ {text} }}", user="eve", email=EVE)
        assert answer.errors is not None
        assert [error["extensions"] for error in answer.errors] == [{"code": "FORBIDDEN"}], text


async def test_an_owner_learns_no_more_of_a_photo_than_the_api_shows(world: Served) -> None:
    answer = await BY_NAME["Photo"].change(world, "new", 7)

    assert answer.errors is not None
    current = answer.errors[0]["extensions"]["current"]
    assert set(current) == {
        *("id", "imageId", "takenAt", "createdAt", "version", "description", "tags", "contentType", "size"),
        *("width", "height", "camera", "originalUrl", "thumbnailUrl", "userId", "email", "personIds"),
    }
    assert current["email"] == ADA


async def test_lists_hold_the_versions(world: Served) -> None:
    for name in ("Photo", "Person", "Livestream", "PhotoUser", "Team", "League"):
        assert (await BY_NAME[name].change(world, "one")).errors is None

    answer = await world.ask(
        f"""{{
          photos {{ nodes {{ version }} }}
          photosByUser(email: "{ADA}") {{ nodes {{ version }} }}
          persons {{ nodes {{ name version }} }}
          livestreams {{ nodes {{ version }} }}
          photoUsers {{ nodes {{ version }} }}
          latestLivestream {{ version }}
          teams {{ nodes {{ version }} }}
          matchesByLeague(leagueCode: "IPL", to: "2026-08-01T00:00:00Z") {{ nodes {{ matchId revision }} }}
          matches(ids: ["m", "far"]) {{ matchId revision }}
        }}""",
        user="root",
        role=Role.ADMIN,
    )

    assert answer.errors is None
    first = {
        name: found["nodes"] for name, found in answer.data.items() if isinstance(found, dict) and "nodes" in found
    }
    assert first == {
        "photos": [{"version": 1}],
        "photosByUser": [{"version": 1}],
        "persons": [{"name": "one", "version": 1}],
        "livestreams": [{"version": 1}],
        "photoUsers": [{"version": 1}],
        "teams": [{"version": 1}],
        "matchesByLeague": answer.data["matches"],
    }
    assert answer.data["latestLivestream"] == {"version": 1}


async def test_a_list_shows_whole_names(world: Served) -> None:
    await put_library_items(world, person("q", "A#B"))
    assert (await BY_NAME["Person"].change(world, "50 % #1")).errors is None

    answer = await world.ask("{ persons { nodes { personId name } } }")

    assert answer.data["persons"]["nodes"] == [
        {"personId": "p", "name": "50 % #1"},
        {"personId": "q", "name": "A#B"},
    ]


async def test_a_live_update_of_a_match_is_a_conflict(world: Served) -> None:
    kind = BY_NAME["Match"]
    await kind.change(world, "Final")
    _, version = await kind.now(world)
    fixtures = Fixtures(world.store(), NOON)
    match = await fixtures.latest("far")
    assert match is not None

    assert await fixtures.write_live(structs.replace(match, note="Rain", version=1))
    refused = await kind.change(world, "Semi-final", version)

    assert refused.errors is not None
    current = refused.errors[0]["extensions"]["current"]
    assert (current["note"], current["round"], current["version"]) == ("Rain", "Final", 1)
    assert current["revision"] == version + 1
    assert f"it is at revision {version + 1}." in refused.errors[0]["message"]


async def test_a_session_has_a_version_until_it_has_ended(world: Served) -> None:
    async def rotate(value: str, expected: int | None) -> Answer:
        return await world.ask(ROTATE, {"value": value, "expected": expected}, user="ada")

    first = (await rotate(TOKENS[0], None)).data["it"]["version"]
    second = await rotate(TOKENS[1], first)
    stale = await rotate(TOKENS[2], first)
    suspended = await world.ask(
        'mutation { suspendLiveActivity(matchId: "m", userId: "ada", deviceId: "d") { version } }',
        user="job",
        role=Role.SYSTEM,
    )
    since = await rotate(TOKENS[2], second.data["it"]["version"])
    await world.ask('mutation { endLiveActivity(matchId: "m", deviceId: "d") { status } }', user="ada")
    ended = await rotate(TOKENS[3], first)

    assert second.data["it"] == {"value": TOKENS[1], "version": first + 1}
    assert (stale.codes, stale.made) == (["CONFLICT"], ["UpdateItem live-activities"])
    assert stale.errors is not None
    assert stale.errors[0]["extensions"]["current"]["updateToken"] == TOKENS[1]  # the caller owns it
    assert stale.errors[0]["extensions"]["current"]["status"] == "ACTIVE"
    assert suspended.data["suspendLiveActivity"]["version"] == first + 2
    assert since.codes == ["CONFLICT"]
    assert ended.codes == ["NOT_FOUND"]


async def test_an_item_created_again_never_has_an_earlier_version(world: Served) -> None:
    """A follow is removed and created again, and a league is deleted and put again."""
    follow, league = BY_NAME["MatchFollow"], BY_NAME["League"]
    await follow.change(world, "20")
    await league.change(world, "one")
    before = (await follow.now(world))[1], (await league.now(world))[1]

    await world.ask('mutation { unfollowMatch(matchId: "m") { teamId } }', user="ada")
    await world.ask('mutation { followMatch(matchId: "m", input: {teamId: "10"}) { teamId } }', user="ada")
    await world.ask('mutation { deleteLeague(id: "1") { name } }', user="root", role=Role.ADMIN)
    await league.ask(world, str(league.put), value="two")

    after = (await follow.now(world))[1], (await league.now(world))[1]
    assert [new > old for new, old in zip(after, before, strict=True)] == [True, True]


async def test_ending_a_livestream_checks_the_expected_version(world: Served) -> None:
    end = """mutation ($expected: Int) {
      endLivestream(id: "l", input: {expectedVersion: $expected}) { endTime version }
    }"""

    async def ended(expected: int | None) -> Answer:
        return await world.ask(end, {"expected": expected}, user="root", role=Role.ADMIN)

    stale, done = await ended(3), await ended(0)

    assert stale.codes == ["CONFLICT"]
    assert done.data["endLivestream"] == {"endTime": "2026-06-25T12:00:00.000Z", "version": 1}
    assert ((await ended(0)).codes, (await ended(1)).data) == (["CONFLICT"], done.data)
