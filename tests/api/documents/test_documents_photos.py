"""Documented items of the table `sparks`, written by another program: each pattern, on them alone and mixed with ours.

The items are the document's examples with their attributes and no others.
"""

from typing import Any

import pytest

from datastore.keyspace.photos.table import SPARKS
from datastore.model.identity import Role
from tests.support.answers import data_of
from tests.support.documents_photos import (
    AT,
    DOCUMENT,
    EMAIL,
    FACE,
    OTHER,
    PERSON,
    PHOTO,
    STREAM,
    THEIR_BOX,
    write_library_items,
)
from tests.support.pattern_coverage import covers
from tests.support.photo_items import ask_as, user_id
from tests.support.photo_steps import BOX, CREATE, DELETE, RENAME, TAG, UNTAG, UPDATE, ask_library
from tests.support.served import Served

SHOWN = "2023-01-01T00:00:00.000Z"

PHOTO_FIELDS = """imageId takenAt createdAt description tags personIds originalUrl
  user { displayName } persons { name } faces { faceId personId confidence boundingBox { left top width height }
  person { name } photo { imageId } }"""


@pytest.fixture(params=[False, True], ids=["alone", "mixed"])
async def mixed(request: pytest.FixtureRequest, served: Served) -> bool:
    """Store the document's items. Return whether items of this gateway are stored, too."""
    write_library_items(served, *DOCUMENT)
    if request.param:
        await ask_library(served, CREATE, role=Role.ADMIN, input={"name": "Ours"})
        await ask_library(served, 'mutation { createPhotoUser(input: {displayName: "Ada"}) { displayName } }')
    return bool(request.param)


async def listed_nodes(served: Served, field: str, fields: str, role: Role = Role.USER) -> list[Any]:
    found: list[Any] = data_of(await ask_as(served, f"{{ {field} {{ nodes {{ {fields} }} }} }}", role=role))[
        field.partition("(")[0]
    ]["nodes"]
    return found


def photo_shown(photo: dict[str, Any]) -> None:
    face = {
        "faceId": FACE,
        "personId": PERSON,
        "confidence": 0.98,
        "boundingBox": THEIR_BOX,
        "person": {"name": "Person Name"},
        "photo": {"imageId": PHOTO},
    }
    assert photo | {"originalUrl": None} == {
        "imageId": PHOTO,
        "takenAt": SHOWN,
        "createdAt": SHOWN,
        "description": "Photo description",
        "tags": ["tag1", "tag2"],
        "personIds": [PERSON, OTHER],
        "originalUrl": None,
        "user": {"displayName": "User Name"},
        "persons": [{"name": "Person Name"}, {"name": "Other Name"}],
        "faces": [face],
    }


@covers("SPARKS-1", "SPARKS-4")
async def test_documented_users_are_read(served: Served, mixed: bool) -> None:
    """SPARKS-1, SPARKS-4."""
    fields = "displayName uploadLimit uploadCount createdAt"
    theirs = {"displayName": "User Name", "uploadLimit": 100, "uploadCount": None, "createdAt": SHOWN}

    mine = data_of(await ask_as(served, f'{{ photoUser(email: "{EMAIL}") {{ {fields} }} }}', EMAIL))
    by_id = data_of(await served.ask(f'{{ photoUser(id: "{user_id(served, EMAIL)}") {{ {fields} }} }}'))
    everybody = await listed_nodes(served, "photoUsers", fields, Role.ADMIN)

    assert mine == by_id == {"photoUser": theirs}
    assert theirs in everybody
    assert len(everybody) == 1 + mixed


@covers("SPARKS-2", "SPARKS-3", "SPARKS-5", "SPARKS-N1", "SPARKS-N3")
async def test_documented_photos_are_read(served: Served, mixed: bool) -> None:
    """SPARKS-2, SPARKS-3, SPARKS-5, SPARKS-7."""
    ask = [f'photo(id: "{PHOTO}"', f'photo(id: "{PHOTO}", takenAt: "{AT}"', f'photo(id: "{PHOTO}", consistent: true']
    lists = ["photos", f'photosByUser(email: "{EMAIL}")', f'photosByPerson(personId: "{PERSON}")']

    for one in ask:
        photo_shown(data_of(await served.ask(f"{{ {one}) {{ {PHOTO_FIELDS} }} }}"))["photo"])
    for each in lists:
        (photo,) = await listed_nodes(served, each, PHOTO_FIELDS)
        photo_shown(photo)
    assert await listed_nodes(served, f'photosByPerson(personId: "{OTHER}")', "imageId") == []


@covers("SPARKS-7")
async def test_the_faces_of_a_documented_person_are_listed_with_each_photo(served: Served, mixed: bool) -> None:
    """SPARKS-7."""
    answer = await served.ask(
        f'{{ photosByPerson(personId: "{PERSON}") {{ edges {{ faces {{ faceId }} node {{ imageId }} }} }} }}'
    )

    assert data_of(answer)["photosByPerson"]["edges"] == [{"faces": [{"faceId": FACE}], "node": {"imageId": PHOTO}}]


@covers("SPARKS-6")
async def test_documented_persons_are_listed(served: Served, mixed: bool) -> None:
    """SPARKS-6."""
    persons = await listed_nodes(served, "persons", "personId name faceCount thumbnailUrl createdAt")

    assert {
        "personId": PERSON,
        "name": "Person Name",
        "faceCount": 1,
        "thumbnailUrl": "https://example.com/thumbnail.jpg",
        "createdAt": SHOWN,
    } in persons
    assert len(persons) == 2 + mixed


@covers("SPARKS-8")
async def test_the_latest_documented_livestream_is_found(served: Served, mixed: bool) -> None:
    """SPARKS-8."""
    fields = "livestreamId title description streamUrl startTime endTime createdAt"
    answer = await served.ask(f"{{ latestLivestream {{ {fields} }} }}")

    assert data_of(answer)["latestLivestream"] == {
        "livestreamId": STREAM,
        "title": "Live Stream Title",
        "description": "Live Stream Description",
        "streamUrl": "https://example.com/stream",
        "startTime": SHOWN,
        "endTime": "2023-01-01T01:00:00.000Z",
        "createdAt": SHOWN,
    }


@covers("SPARKS-P1", "SPARKS-W1")
async def test_a_documented_photo_is_changed_and_deleted_with_its_faces(served: Served, mixed: bool) -> None:
    """SPARKS-W1."""
    changed = await ask_library(served, UPDATE, EMAIL, id=PHOTO, input={"description": "Changed"})
    photo = data_of(await served.ask(f'{{ photo(id: "{PHOTO}") {{ description tags faces {{ faceId }} }} }}'))["photo"]
    await ask_library(served, DELETE, EMAIL, id=PHOTO)

    assert changed == {"imageId": PHOTO, "description": "Changed", "tags": ["tag1", "tag2"]}
    assert photo == {"description": "Changed", "tags": ["tag1", "tag2"], "faces": [{"faceId": FACE}]}
    assert await listed_nodes(served, f'photosByPerson(personId: "{PERSON}")', "imageId") == []
    assert {"name": "Person Name", "faceCount": 0} in await listed_nodes(served, "persons", "name faceCount")


@covers("SPARKS-N2", "SPARKS-P2")
async def test_faces_on_a_documented_photo_are_tagged_and_untagged(served: Served, mixed: bool) -> None:
    """SPARKS-W1: a documented face and one of ours are listed together, and each is counted once."""
    ask = f'{{ photo(id: "{PHOTO}") {{ faces {{ faceId personId }} personIds }} }}'
    theirs = {"faceId": FACE, "personId": PERSON}

    tagged = await ask_library(served, TAG, EMAIL, image=PHOTO, input={"personId": OTHER, "boundingBox": BOX})
    both = data_of(await served.ask(ask))["photo"]
    counted = await listed_nodes(served, "persons", "name faceCount")
    await ask_library(served, UNTAG, EMAIL, face=FACE, image=PHOTO)
    left = data_of(await served.ask(ask))["photo"]

    ours = {"faceId": tagged["faceId"], "personId": OTHER}
    assert sorted(both["faces"], key=str) == sorted([theirs, ours], key=str)
    assert {"name": "Other Name", "faceCount": 1} in counted
    assert left == {"faces": [ours], "personIds": [OTHER]}
    assert {"name": "Person Name", "faceCount": 0} in await listed_nodes(served, "persons", "name faceCount")


async def test_a_documented_person_is_renamed(served: Served, mixed: bool) -> None:
    """SPARKS-W1."""
    await ask_library(served, RENAME, role=Role.ADMIN, id=PERSON, input={"name": "Grace"})

    photo = data_of(
        await served.ask(f'{{ photo(id: "{PHOTO}") {{ faces {{ person {{ name }} }} persons {{ name }} }} }}')
    )
    assert photo["photo"] == {
        "faces": [{"person": {"name": "Grace"}}],
        "persons": [{"name": "Grace"}, {"name": "Other Name"}],
    }


async def test_a_documented_user_is_changed_and_events_are_logged(served: Served, mixed: bool) -> None:
    """SPARKS-W1."""
    rename = 'mutation { updatePhotoUser(input: {displayName: "New"}) { displayName uploadLimit } }'
    log = 'mutation { logEvent(input: [{eventType: "PHOTO_VIEW", eventData: {imageId: "x"}}]) { eventType eventData } }'

    assert await ask_library(served, rename, EMAIL) == {"displayName": "New", "uploadLimit": 100}
    assert await ask_library(served, log, EMAIL) == [{"eventType": "PHOTO_VIEW", "eventData": {"imageId": "x"}}]


async def test_livestreams_are_listed_among_documented_ones_by_id(served: Served, mixed: bool) -> None:
    """SPARKS-8, SPARKS-W1: documented ids, which do not sort by time, are listed in the order of the ids."""
    create = """mutation { createLivestream(input: {title: "Ours", streamUrl: "https://example.com/ours",
      startTime: "2026-06-25T13:00:00Z"}) { livestreamId } }"""

    made = await ask_library(served, create, role=Role.ADMIN)
    latest = data_of(await served.ask("{ latestLivestream { livestreamId } }"))["latestLivestream"]

    assert latest["livestreamId"] == max(STREAM, made["livestreamId"])


@covers("SPARKS-S1")
async def test_subscribers_receive_documented_livestreams(served: Served, mixed: bool) -> None:
    """SPARKS-S1."""
    listener = await served.listen("subscription { livestreamChanged { livestreamId title } }")
    await served.settle(SPARKS, 1)
    stream = next(item for item in DOCUMENT if item["entityType"] == "LIVESTREAM")
    write_library_items(served, stream | {"title": "Changed"})
    changed = await listener.event()
    write_library_items(served, stream | {"PK": "LIVESTREAM#another", "title": "Announced"})
    announced = await listener.event()

    assert changed["livestreamChanged"] == {"livestreamId": STREAM, "title": "Changed"}
    assert announced["livestreamChanged"] == {"livestreamId": "another", "title": "Announced"}
