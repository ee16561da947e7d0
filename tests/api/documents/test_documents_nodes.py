"""Items as the five documents list them, read by their global ids: alone, and mixed with items of this gateway."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.model.identity import Role
from resolvers.shared.global_ids import global_id
from schema import NODES
from tests.support import documents_earthquakes as earthquakes
from tests.support import documents_feed as feed
from tests.support import documents_photos as photos
from tests.support import documents_sightings as sightings
from tests.support import match_documents as matches
from tests.support.answers import data_of
from tests.support.earthquake_samples import put_item, quake, store
from tests.support.feed_documents import notification
from tests.support.feed_documents import write_feed_items as write_feed
from tests.support.feed_steps import create_profiles
from tests.support.moments import whole_seconds
from tests.support.photo_items import ask_as, user_id
from tests.support.photo_steps import CREATE, ask_library
from tests.support.served import NOON, Answer, Served

NODE = "query ($id: ID!) { node(id: $id) { __typename id ... on %s { %s } } }"
MOMENT = whole_seconds(NOON)


@dataclass(frozen=True)
class Case:
    """A documented item: its pattern, the parts of its global id, some fields of the answer, a caller with access."""

    pattern: str
    parts: tuple[str, ...]
    shown: Mapping[str, Any]
    caller: str | None = None
    role: Role = Role.USER


CASES = {
    "Sighting": Case(
        "BLIP-N1", ("Downtown", whole_seconds(NOON - timedelta(seconds=1)), "abc1"), {"sightingId": "abc1"}
    ),
    "UserProfile": Case("BLIP-2", ("u_abc123",), {"userId": "u_abc123", "trustTier": "BRONZE"}),
    "Watch": Case("BLIP-N2", ("u_abc123", "Downtown", "Sneakers", "w1"), {"watchId": "w1"}, "u_abc123"),
    "User": Case("FEED-001", ("u001",), {"userId": "u001", "name": "U001"}),
    "Post": Case("FEED-004", ("abc123",), {"postId": "abc123", "text": ""}),
    "Comment": Case("FEED-N2", ("abc123", "c001"), {"commentId": "c001", "textLength": 42}),
    "Notification": Case("FEED-N4", ("u001", f"{MOMENT}#n1"), {"kind": None, "actorCount": 0}, "u001"),
    "Earthquake": Case("QUAKE-5", ("ci1",), {"eventId": "ci1", "magnitude": 4.5}),
    "Match": Case("FIX-1", ("m1",), {"matchId": "m1", "leagueCode": "IPL"}),
    "ActiveMatch": Case("AM-1", ("m1",), {"matchId": "m1", "instanceId": "i-0abc"}, "ops", Role.SYSTEM),
    "Team": Case("TM-1", ("10",), {"teamId": "10"}),
    "League": Case("LG-1", ("L",), {"leagueId": "L", "active": True}),
    "TeamSeason": Case("TS-N1", ("s1", "10"), {"seasonId": "s1", "teamId": "10", "points": None}),
    "Device": Case("DEV-1", ("ada",), {"userId": "ada", "platform": "IOS"}, "ada"),
    "LiveActivity": Case("LA-N1", ("m1", "ada", "phone"), {"deviceId": "phone", "status": "ACTIVE"}, "ada"),
    "MatchFollow": Case("FOL-1", ("m1", "ada"), {"teamId": "10"}, "ada"),
    "DisplayState": Case("DSC-1", ("m1", "10"), {"matchId": "m1", "teamId": "10"}),
    "Photo": Case("SPARKS-2", (photos.PHOTO, photos.AT), {"imageId": photos.PHOTO, "description": "Photo description"}),
    "Person": Case("SPARKS-N1", (photos.PERSON,), {"name": "Person Name", "faceCount": 1}),
    "Face": Case("SPARKS-N2", (photos.FACE, photos.PHOTO), {"faceId": photos.FACE, "confidence": 0.98}),
    "Livestream": Case("SPARKS-N3", (photos.STREAM,), {"title": "Live Stream Title"}),
    "PhotoUser": Case("SPARKS-1", ("",), {"displayName": "User Name"}),
}


@pytest.fixture(params=["alone", "mixed"])
async def written(request: pytest.FixtureRequest, served: Served) -> None:
    sightings.write_blip_items(served, *sightings.DOCUMENT)
    write_feed(served, *feed.DOCUMENT, notification("u001", "n1"))
    for item in earthquakes.DOCUMENT:
        await put_item(served, item)
    sides = {"homeTeamId": "10", "awayTeamId": "20"}
    matches.write_match_items(served, *matches.DOCUMENT, (FIXTURES, matches.FIXTURE | sides))
    photos.write_library_items(served, *photos.DOCUMENT)
    if request.param == "mixed":
        data_of(await served.ask(sightings.REPORT, user="u_abc123"))
        await create_profiles(served, "u009")
        await store(served, quake("us1"))
        await ask_library(served, CREATE, role=Role.ADMIN, input={"name": "Ours"})


async def node(served: Served, kind: str, fields: str) -> Answer:
    case = CASES[kind]
    parts = case.parts if kind != "PhotoUser" else (user_id(served, photos.EMAIL),)
    id = global_id(kind, *parts)
    query = NODE % (kind, fields)
    if kind in ("Photo", "Person", "Face", "PhotoUser"):
        answer: Answer = await ask_as(served, query, photos.EMAIL, id=id)
        return answer
    return await served.ask(query, {"id": id}, user=case.caller, role=case.role)


def test_every_type_of_node_has_a_case() -> None:
    assert CASES.keys() == {kind.declaration.name for kind in NODES}


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("kind", CASES)
async def test_a_documented_item_is_read_by_its_global_id(served: Served, kind: str) -> None:
    case = CASES[kind]

    answer = await node(served, kind, " ".join(case.shown))
    found = data_of(answer)["node"]

    assert case.pattern in {id for call in answer.calls for id in call.patterns}
    assert found is not None
    assert found["__typename"] == kind
    assert {name: found[name] for name in case.shown} == case.shown
