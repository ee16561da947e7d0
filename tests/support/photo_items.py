"""Items of the photo library in the form of its document, and in the form of this gateway."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from datastore.keyspace.photos.table import SPARKS
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from tests.support.served import NOON, Served

ADA, EVE = "ada@example.com", "eve@example.com"
BOX = {"left": 0.1, "top": 0.1, "width": 0.2, "height": 0.2}
WRITTEN = "2023-01-01T00:00:00Z"
# The same moment in a third format.
OTHERWISE = "2023-01-01T00:00:00.000Z"


async def put_library_items(served: Served, *items: Mapping[str, Any]) -> None:
    await served.store().write_all(SPARKS, puts=items)


def photo_user(email: str = ADA, **more: Any) -> dict[str, Any]:
    key = f"USER#{email}"
    item = {"PK": key, "SK": key, "entityType": "USER", "email": email, "displayName": email.partition("@")[0]}
    return item | {"uploadLimit": 100, "createdAt": WRITTEN} | more


def photo(image_id: str, email: str = ADA, at: str = WRITTEN, **more: Any) -> dict[str, Any]:
    """Return a photo in the form of the document: with the persons, without their keys."""
    return {
        "PK": f"IMAGE#{image_id}",
        "SK": f"IMAGE#{at}",
        "entityType": "IMAGE",
        "email": email,
        "imageId": image_id,
        "originalKey": f"originals/{email}/{image_id}.jpg",
        "thumbnailKey": f"thumbnails/{email}/{image_id}.jpg",
        "description": f"Photo {image_id}",
        "tags": ["tag1", "tag2"],
        "persons": [],
        "createdAt": WRITTEN,
    } | more


def person(person_id: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    name = name or person_id.title()
    return {
        "PK": f"PERSON#{person_id}",
        "SK": f"PERSON#{name}",
        "entityType": "PERSON",
        "personId": person_id,
        "name": name,
        "faceCount": 0,
        "thumbnailUrl": "https://example.com/thumbnail.jpg",
        "createdAt": WRITTEN,
    } | more


def face(face_id: str, image_id: str, person_id: str, at: str | None = WRITTEN, **more: Any) -> dict[str, Any]:
    """Return a face. `at` is the time of its photo; None is an old face without it."""
    item = {
        "PK": f"FACE#{face_id}",
        "SK": f"IMAGE#{image_id}",
        "entityType": "FACE",
        "personId": person_id,
        "imageId": image_id,
        "confidence": 0.98,
        "boundingBox": BOX,
        "createdAt": WRITTEN,
    }
    return item | ({} if at is None else {"photoSK": f"IMAGE#{at}"}) | more


def tagged(item: Mapping[str, Any], faces: Sequence[Mapping[str, Any]], *persons: Mapping[str, Any]) -> dict[str, Any]:
    """Return a photo with its faces and the keys of its persons, as this gateway writes it."""
    return {
        **item,
        "persons": [person["personId"] for person in persons],
        "personNames": {person["personId"]: person["name"] for person in persons},
        "faces": [{"faceId": face["PK"].removeprefix("FACE#"), "personId": face["personId"]} for face in faces],
    }


def livestream(livestream_id: str, start: datetime = NOON, end: datetime | None = None, **more: Any) -> dict[str, Any]:
    item = {
        "PK": f"LIVESTREAM#{livestream_id}",
        "SK": f"LIVESTREAM#{WRITTEN}",
        "entityType": "LIVESTREAM",
        "streamUrl": "https://example.com/stream",
        "title": f"Livestream {livestream_id}",
        "description": "Live",
        "startTime": iso(start),
        "createdAt": WRITTEN,
    }
    return item | ({} if end is None else {"endTime": iso(end)}) | more


async def ask_as(served: Served, query: str, email: str | None = ADA, role: Role = Role.USER, **variables: Any) -> Any:
    """Execute an operation of a caller whose token has a verified email."""
    return await served.ask(
        query, variables or None, user=(email or "nobody").partition("@")[0], role=role, email=email
    )


def user_id(served: Served, email: str) -> str:
    """Return the encrypted id of an email."""
    services = served.gateway.services
    assert services is not None
    return services.user_ids.encrypt(email)
