"""The items whose mutations take `expectedVersion`, and concurrent updates of them."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.cricket import InningsScore, Match, Result, ResultKind, Target, Toss, Venue
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.model.identity import Role
from tests.support.photo_items import ADA, livestream, person, photo, photo_user, put_library_items
from tests.support.served import NOON, Answer, Served

PHONE = "a1" * 32


@dataclass(frozen=True)
class Kind:
    """An entity with a version. `read` and `write` alias the entity `it`, its version `version` and the changed field
    `value`.

    `put` replaces the whole entity, as syncs do. `values` are possible values.
    """

    name: str
    read: str
    write: str
    values: Sequence[str] = ("one", "two", "three", "four")
    put: str | None = None
    role: Role = Role.USER
    made: tuple[str, ...] = ()

    async def ask(self, served: Served, text: str, **variables: Any) -> Answer:
        role = Role.SYSTEM if text is self.put else self.role
        return await served.ask(text, variables, user="ada", role=role, email=ADA)

    async def now(self, served: Served) -> tuple[str, int]:
        answer = await self.ask(served, self.read)
        assert answer.errors is None, (self.name, answer.errors)
        return answer.data["it"]["value"], answer.data["it"]["version"]

    async def change(self, served: Served, value: str, expected: int | None = None) -> Answer:
        return await self.ask(served, self.write, value=value, expected=expected)


def by_input(field: str, of: str, value: str) -> str:
    """Return a mutation whose input has the expected version."""
    return f"""mutation ($value: String!, $expected: Int) {{
      it: {field}({of} input: {{{value}: $value, expectedVersion: $expected}}) {{ value: {value} version }}
    }}"""


KINDS = [
    Kind(
        "User",
        '{ it: user(id: "ada") { value: name version } }',
        by_input("updateUser", "", "name"),
        made=("UpdateItem feed",),
    ),
    Kind(
        "PhotoUser",
        f'{{ it: photoUser(email: "{ADA}", consistent: true) {{ value: displayName version }} }}',
        by_input("updatePhotoUser", "", "displayName"),
        made=("UpdateItem sparks",),
    ),
    Kind(
        "Photo",
        '{ it: photo(id: "i", consistent: true) { value: description version } }',
        by_input("updatePhoto", 'id: "i", takenAt: "2023-01-01T00:00:00Z"', "description"),
        made=("UpdateItem sparks",),
    ),
    Kind(
        "Person",
        '{ it: person(id: "p", consistent: true) { value: name version } }',
        by_input("updatePerson", 'id: "p"', "name"),
        role=Role.ADMIN,
        made=("Query sparks",),
    ),
    Kind(
        "Livestream",
        '{ it: livestream(id: "l", consistent: true) { value: title version } }',
        by_input("updateLivestream", 'id: "l"', "title"),
        role=Role.ADMIN,
        made=("Query sparks",),
    ),
    Kind(
        "Team",
        '{ it: team(id: "1") { value: name version } }',
        by_input("updateTeam", 'id: "1"', "name"),
        put='mutation ($value: String!) { it: syncTeams(input: [{teamId: "1", name: $value, code: "A"}]) { version } }',
        role=Role.ADMIN,
        made=("UpdateItem cricket-teams",),
    ),
    Kind(
        "League",
        '{ it: league(id: "1") { value: name version } }',
        by_input("updateLeague", 'id: "1"', "name"),
        put='mutation ($value: String!) { it: putLeague(id: "1", input: {name: $value, code: "A"}) { version } }',
        role=Role.ADMIN,
        made=("UpdateItem cricket-leagues",),
    ),
    Kind(
        "Match",
        '{ it: match(id: "far") { value: round version: revision } }',
        by_input("updateFixture", 'id: "far"', "round").replace(" version }", " version: revision }"),
        # There is no put: a sync keeps the fields that an update set.
        role=Role.SYSTEM,
        made=("UpdateItem cricket-fixtures",),
    ),
    Kind(
        "MatchFollow",
        '{ it: matchFollow(matchId: "m") { value: teamId version } }',
        """mutation ($value: ID!, $expected: Int) {
          it: updateMatchFollow(matchId: "m", input: {teamId: $value, expectedVersion: $expected}) {
            value: teamId version
          }
        }""",
        values=("10", "20"),
        made=("UpdateItem cricket-match-follows",),
    ),
    Kind(
        "Device",
        '{ it: device(userId: "ada") { value: pushToStartToken version } }',
        f"""mutation ($value: String!, $expected: Int) {{
          it: updateDevice(
            deviceToken: "{PHONE}", input: {{pushToStartToken: $value, expectedVersion: $expected}}
          ) {{
            value: pushToStartToken version
          }}
        }}""",
        values=("b2" * 32, "c3" * 32, "d4" * 32, "e5" * 32),
        made=("GetItem cricket-devices",),
    ),
]

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture
async def world(served: Served) -> Served:
    """Store one item of each kind, some in the form of other programs: without a version."""
    fixtures = Fixtures(served.store(), NOON)
    whole: dict[str, Any] = {
        "venue": Venue("Lord's"),
        "toss": Toss("10"),
        "target": Target(100),
        "result": Result(ResultKind.WIN, "Won"),
        "innings": (InningsScore(1, "10", 99),),
        "season_id": "2026",
    }
    far = Match("far", "L", "IPL", "10", "20", NOON + timedelta(days=30), round="zero", **whole)
    await fixtures.sync([Match("m", "L", "IPL", "10", "20", NOON), far])
    await put_library_items(served, photo_user(), photo("i"), person("p"), livestream("l"))
    await served.store().write_all(TEAMS, puts=[{"teamId": "1", "name": "zero", "code": "A"}])
    await Leagues(served.store(), NOON).put(League("1", "zero", "A", current_season_id="2026"))
    await put_anew(served)
    return served


async def put_anew(served: Served) -> None:
    """Create the items that users create, or create them again."""
    made = await served.ask(
        f"""mutation {{
          createUser(input: {{name: "zero"}}) {{ version }}
          followMatch(matchId: "m", input: {{teamId: "10"}}) {{ version }}
          registerDevice(deviceToken: "{PHONE}", input: {{platform: IOS, osVersion: "1", appVersion: "1"}}) {{
            version
          }}
          registerLiveActivity(matchId: "m", deviceId: "d", input: {{updateToken: "{PHONE}"}}) {{ version }}
        }}""",
        user="ada",
        email=ADA,
    )
    assert made.errors is None


async def interleave(kind: Kind, served: Served, seed: int) -> None:
    """Execute random updates with a version, updates without one, and puts: the item equals a model of it."""
    rng = random.Random(seed)
    value, version = await kind.now(served)
    seen = [version]
    for step in range(10):
        wanted = kind.values[step % len(kind.values)]
        what = rng.choice(["any", "expected", "expected", "put"])
        expected = rng.choice([*seen[-2:], version]) if what == "expected" else None
        if what == "put" and kind.put:
            answer = await kind.ask(served, kind.put, value=wanted)
        else:
            answer = await kind.change(served, wanted, expected)
        received = (kind.name, seed, step, what, expected, answer.errors)
        if expected in (None, version):
            assert answer.errors is None, received
            value, before = wanted, version
            now, version = await kind.now(served)
            assert (now, version > before) == (value, True), (received, before, version)
            seen.append(version)
        else:
            assert answer.codes == ["CONFLICT"], received
            assert answer.errors is not None
            assert answer.errors[0]["extensions"]["currentVersion"] == version, received
            assert await kind.now(served) == (value, version), received


async def race(kind: Kind, served: Served) -> None:
    """Execute three concurrent updates of one version, with a put if there is one: at most one succeeds and says so."""
    value, version = await kind.now(served)
    others = [other for other in kind.values if other != value][:3] * (3 if len(kind.values) == 2 else 1)
    puts = [kind.ask(served, kind.put, value="put")] if kind.put else []
    answers = await asyncio.gather(*[kind.change(served, value, version) for value in others], *puts)
    changes = answers[: len(others)]
    done = [value for value, answer in zip(others, changes, strict=True) if answer.errors is None]
    refused = [answer.errors[0]["extensions"] for answer in changes if answer.errors]
    assert len(done) <= 1 if kind.put else len(done) == 1, (kind.name, changes)
    assert {extensions["code"] for extensions in refused} == {"CONFLICT"}
    assert all(extensions["currentVersion"] > version for extensions in refused)
    value, after = await kind.now(served)
    assert value in [*done, "put"]
    assert after > version
