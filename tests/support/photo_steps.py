"""Steps that write persons, faces and photos, and the check of the table."""

from collections import Counter
from typing import Any

from datastore.dynamodb.codec import decode_item
from datastore.keyspace.photos.table import SPARKS
from datastore.model.identity import Role
from tests.support.photo_items import ADA, ask_as
from tests.support.served import Served

BOX = {"left": 0.1, "top": 0.2, "width": 0.3, "height": 0.4}
TAG = """mutation ($image: ID!, $input: TagFaceInput!, $at: DateTime) {
  tagFace(imageId: $image, takenAt: $at, input: $input) {
    faceId imageId personId confidence boundingBox { left top width height } createdAt
  }
}"""
UNTAG = "mutation ($face: ID!, $image: ID!) { untagFace(faceId: $face, imageId: $image) { faceId personId } }"
CREATE = """mutation ($input: CreatePersonInput!) { createPerson(input: $input) {
  personId name faceCount thumbnailUrl createdAt
} }"""
RENAME = """mutation ($id: ID!, $input: UpdatePersonInput!) { updatePerson(id: $id, input: $input) {
  personId name faceCount thumbnailUrl
} }"""
MERGE = "mutation ($one: ID!, $into: ID!) { mergePersons(fromId: $one, intoId: $into) { personId name faceCount } }"
UPDATE = """mutation ($id: ID!, $input: UpdatePhotoInput!, $at: DateTime) {
  updatePhoto(id: $id, takenAt: $at, input: $input) { imageId description tags }
}"""
DELETE = "mutation ($id: ID!, $at: DateTime) { deletePhoto(id: $id, takenAt: $at) { imageId description } }"


async def ask_library(
    served: Served, query: str, email: str | None = ADA, role: Role = Role.USER, **variables: Any
) -> Any:
    """Return the value of the only field of an operation, which must succeed."""
    answer = await ask_as(served, query, email, role, **variables)
    assert answer.errors is None, answer.errors
    (received,) = answer.data.values()
    return received


async def tag_person(served: Served, image: str, person: str, email: str = ADA, **more: Any) -> Any:
    given = {"personId": person, "boundingBox": BOX} | more
    return await ask_library(served, TAG, email, image=image, input=given)


async def library_items(served: Served, kind: str = "") -> list[dict[str, Any]]:
    """Return all items of the library, or those of one kind, ordered by key."""
    store = served.store()
    answer = await store._call(SPARKS, "Scan", {"TableName": store.prefix + SPARKS.name, "ConsistentRead": True})
    assert "LastEvaluatedKey" not in answer
    items = [decode_item(item) for item in answer["Items"]]
    return sorted(
        [item for item in items if kind in ("", item["entityType"])], key=lambda item: (item["PK"], item["SK"])
    )


async def library_item(served: Served, key: str) -> dict[str, Any] | None:
    """Return the only item of a partition, or None."""
    found = [item for item in await library_items(served) if item["PK"] == key]
    assert len(found) <= 1
    return found[0] if found else None


async def assert_consistent(served: Served) -> None:
    """Check that counts match the counted items, and that each photo lists exactly its faces.

    Persons and photos of other programs may have no counts and list no faces.
    """
    items = await library_items(served)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        kinds.setdefault(item["entityType"], []).append(item)
    faces = kinds.get("FACE", [])
    counted = Counter(face["personId"] for face in faces)
    persons = {person["personId"]: person for person in kinds.get("PERSON", [])}
    assert [
        (id, person["faceCount"], counted[id])
        for id, person in persons.items()
        if "faceCount" in person and person["faceCount"] != counted[id]
    ] == []
    assert set(counted) <= persons.keys()
    assert [person for person in persons.values() if {"mergedInto", "receives"} & person.keys()] == []
    photos = {photo["imageId"]: photo for photo in kinds.get("IMAGE", [])}
    assert {face["imageId"] for face in faces} <= photos.keys()
    for image_id, photo in photos.items():
        on_it = {(face["PK"].removeprefix("FACE#"), face["personId"]) for face in faces if face["imageId"] == image_id}
        received = [(face["faceId"], face["personId"]) for face in photo.get("faces", ())]
        assert sorted(received) == sorted(on_it) or "faces" not in photo
        assert sorted(photo["persons"]) == sorted({person for _, person in on_it})
        assert photo.get("personNames", {}).keys() <= set(photo["persons"])
    uploads = Counter(photo["email"] for photo in photos.values())
    assert {user["email"]: user["uploadCount"] for user in kinds.get("USER", [])} == {
        user["email"]: uploads[user["email"]] for user in kinds.get("USER", [])
    }
    assert "REMOVAL" not in kinds
