"""Faces of other programs on photos that do not list them, and the cost of finding them (SPARKS-N3)."""

from typing import Any

import pytest

from datastore.photos import lookups
from tests.support.photo_items import BOX, EVE, face, person, photo, put_library_items, tagged
from tests.support.served import Answer, Served

FACES = """query ($id: ID!, $person: ID) { photo(id: $id) {
  faces(personId: $person) { faceId personId confidence boundingBox { left top width height } photo { imageId } }
} }"""
BY_PERSON = "Query sparks.personId-PK-index"


def faces_of(answer: Answer) -> Any:
    assert answer.errors is None, answer.errors
    return answer.data["photo"]["faces"]


def face_ids(faces: Any) -> list[str]:
    return [face["faceId"] for face in faces]


async def test_a_documented_face_is_shown_on_its_photo(served: Served) -> None:
    await put_library_items(served, photo("a", persons=["p1"]), person("p1"), face("f1", "a", "p1", at=None))

    there = await served.ask('{ photosByPerson(personId: "p1") { edges { faces { faceId } } nodes { imageId } } }')
    answer = await served.ask(FACES, {"id": "a"})

    assert there.data["photosByPerson"] == {
        "edges": [{"faces": [{"faceId": "f1"}]}],
        "nodes": [{"imageId": "a"}],
    }
    assert faces_of(answer) == [
        {"faceId": "f1", "personId": "p1", "confidence": 0.98, "boundingBox": BOX, "photo": {"imageId": "a"}}
    ]
    assert answer.made == ["Query sparks", BY_PERSON]


async def test_a_face_with_an_unescaped_sign_in_its_key_is_shown_on_its_photo(served: Served) -> None:
    await put_library_items(served, photo("a", persons=["p1"]), person("p1"), face("f#1", "a", "p1"))

    answer = await served.ask('{ photosByPerson(personId: "p1") { edges { faces { faceId } } nodes { imageId } } }')

    assert (answer.codes, answer.data["photosByPerson"]) == (
        [],
        {"edges": [{"faces": [{"faceId": "f"}]}], "nodes": [{"imageId": "a"}]},
    )


async def test_only_the_faces_on_that_photo_are_shown(served: Served) -> None:
    elsewhere = [face(f"e{number}", "b", "p1", at=None) for number in range(5)]
    here = [face("f1", "a", "p1", at=None), face("f2", "a", "p2", at=None), face("f3", "a", "p1", at=None)]
    await put_library_items(
        served, photo("a", persons=["p1", "p2", "p3"]), photo("b", persons=["p1"]), *here, *elsewhere
    )

    everybody, one, nobody = [
        await served.ask(FACES, {"id": "a", "person": person}) for person in (None, "p1", "not on it")
    ]

    assert face_ids(faces_of(everybody)) == ["f1", "f3", "f2"]
    assert face_ids(faces_of(one)) == ["f1", "f3"]
    assert face_ids(faces_of(nobody)) == []
    assert one.made == ["Query sparks", BY_PERSON]
    assert nobody.made == ["Query sparks"]


async def test_the_faces_of_each_person_are_queried_once_for_a_page_of_photos(served: Served) -> None:
    photos = [photo(f"i{number:02}", persons=["p1", "p2"]) for number in range(25)]
    faces = [face(f"f{number:02}-{who}", f"i{number:02}", who, at=None) for number in range(25) for who in ("p1", "p2")]
    await put_library_items(served, *photos, *faces)

    answer = await served.ask("{ photos { nodes { imageId faces { faceId } } } }")

    assert answer.errors is None
    assert {node["imageId"]: face_ids(node["faces"]) for node in answer.data["photos"]["nodes"]} == {
        f"i{number:02}": [f"f{number:02}-p1", f"f{number:02}-p2"] for number in range(25)
    }
    assert answer.made == ["Query sparks.entityType-PK-index", BY_PERSON, BY_PERSON]


async def test_photos_that_list_their_faces_cost_no_further_calls(served: Served) -> None:
    faces = [face("f1", "a", "p1"), face("f2", "a", "p2")]
    await put_library_items(served, tagged(photo("a", EVE), faces, person("p1"), person("p2")), *faces)

    answer = await served.ask(FACES, {"id": "a"})

    assert face_ids(faces_of(answer)) == ["f1", "f2"]
    assert answer.made == ["BatchGetItem sparks", "Query sparks"]


async def test_a_photo_may_list_some_of_its_faces(served: Served) -> None:
    ours = face("f1", "a", "p1")
    item = tagged(photo("a"), [ours], person("p1"))
    await put_library_items(served, item | {"persons": ["p1", "p2"]}, ours, face("f2", "a", "p2", at=None))

    answer = await served.ask(FACES, {"id": "a"})

    assert face_ids(faces_of(answer)) == ["f1", "f2"]
    assert sorted(answer.made) == ["GetItem sparks", "Query sparks", BY_PERSON]


async def test_a_damaged_face_is_an_error_in_its_place(served: Served) -> None:
    damaged = face("f2", "a", "p1", at=None)
    del damaged["boundingBox"]
    await put_library_items(served, photo("a", persons=["p1"]), face("f1", "a", "p1", at=None), damaged)

    answer = await served.ask('{ photo(id: "a") { faces { faceId } } }')

    assert answer.data["photo"]["faces"] == [{"faceId": "f1"}, None]
    assert [error["path"] for error in answer.errors or ()] == [["photo", "faces", 1]]


async def test_the_number_of_faces_read_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MAX_ITEMS", 10)
    await put_library_items(
        served, photo("a", persons=["p1"]), *[face(f"f{number:02}", "b", "p1", at=None) for number in range(30)]
    )
    await put_library_items(served, face("f31", "a", "p1", at=None))

    answer = await served.ask(FACES, {"id": "a"})

    assert face_ids(faces_of(answer)) == ["f31"]
    assert [call.request["Limit"] for call in answer.calls if call.index] == [10]


async def test_the_number_of_persons_searched_is_bounded(served: Served) -> None:
    await put_library_items(served, photo("a", persons=[f"p{number}" for number in range(300)]))

    answer = await served.ask(FACES, {"id": "a"})

    assert faces_of(answer) == []
    assert answer.made.count(BY_PERSON) == 45
