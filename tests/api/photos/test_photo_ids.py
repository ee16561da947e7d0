"""Global ids in place of local ids, in all arguments and input fields of the photo library that name an object."""

from typing import Any

import pytest

from datastore.model.identity import Role
from resolvers.shared.global_ids import global_id
from tests.support.answers import codes_and_fields
from tests.support.photo_items import (
    ADA,
    WRITTEN,
    ask_as,
    face,
    livestream,
    person,
    photo,
    photo_user,
    put_library_items,
    tagged,
    user_id,
)
from tests.support.served import Served

BOX = "boundingBox: {left: 0, top: 0, width: 1, height: 1}"
PHOTO, PERSON, FACE, LIVESTREAM = ("Photo", "i", WRITTEN), ("Person", "p"), ("Face", "f", "i"), ("Livestream", "l")
USER = ("PhotoUser",)

# The operation with the variable `$id`, the path of the error, the global id, and the value.
CASES: dict[str, tuple[str, str, tuple[str, ...], Any]] = {
    "photo": ("{ photo(id: $id) { imageId } }", "id", PHOTO, {"imageId": "i"}),
    "updatePhoto": ("mutation { updatePhoto(id: $id, input: {tags: []}) { tags } }", "id", PHOTO, {"tags": []}),
    "deletePhoto": ("mutation { deletePhoto(id: $id) { imageId } }", "id", PHOTO, {"imageId": "i"}),
    "tagFace": (
        f'mutation {{ tagFace(imageId: $id, input: {{personId: "p", {BOX}}}) {{ imageId }} }}',
        "imageId",
        PHOTO,
        {"imageId": "i"},
    ),
    "tagFace personId": (
        f'mutation {{ tagFace(imageId: "i", input: {{personId: $id, {BOX}}}) {{ personId }} }}',
        "personId",
        PERSON,
        {"personId": "p"},
    ),
    "untagFace": ('mutation { untagFace(faceId: "f", imageId: $id) { faceId } }', "imageId", PHOTO, {"faceId": "f"}),
    "untagFace faceId": (
        'mutation { untagFace(faceId: $id, imageId: "i") { faceId } }',
        "faceId",
        FACE,
        {"faceId": "f"},
    ),
    "Photo.faces": (
        '{ photo(id: "i") { faces(personId: $id) { faceId } } }',
        "personId",
        PERSON,
        {"faces": [{"faceId": "f"}]},
    ),
    "person": ("{ person(id: $id) { name } }", "id", PERSON, {"name": "Grace"}),
    "photosByPerson": (
        "{ photosByPerson(personId: $id) { nodes { imageId } } }",
        "personId",
        PERSON,
        {"nodes": [{"imageId": "i"}]},
    ),
    "updatePerson": (
        'mutation { updatePerson(id: $id, input: {name: "Ann"}) { name } }',
        "id",
        PERSON,
        {"name": "Ann"},
    ),
    "mergePersons fromId": (
        'mutation { mergePersons(fromId: $id, intoId: "q") { personId } }',
        "fromId",
        PERSON,
        {"personId": "q"},
    ),
    "mergePersons intoId": (
        'mutation { mergePersons(fromId: "q", intoId: $id) { personId } }',
        "intoId",
        PERSON,
        {"personId": "p"},
    ),
    "livestream": ("{ livestream(id: $id) { livestreamId } }", "id", LIVESTREAM, {"livestreamId": "l"}),
    "updateLivestream": (
        'mutation { updateLivestream(id: $id, input: {title: "New"}) { title } }',
        "id",
        LIVESTREAM,
        {"title": "New"},
    ),
    "endLivestream": ("mutation { endLivestream(id: $id) { livestreamId } }", "id", LIVESTREAM, {"livestreamId": "l"}),
    "photoUser": ("{ photoUser(id: $id) { email } }", "id", USER, {"email": ADA}),
    "photosByUser": (
        "{ photosByUser(userId: $id) { nodes { imageId } } }",
        "userId",
        USER,
        {"nodes": [{"imageId": "i"}]},
    ),
    "updatePhotoUser": (
        "mutation { updatePhotoUser(id: $id, input: {uploadLimit: 3}) { uploadLimit } }",
        "id",
        USER,
        {"uploadLimit": 3},
    ),
}


def with_id_variable(operation: str) -> str:
    kind = "" if operation.startswith("mutation") else "query "
    return kind + operation.replace("{", "($id: ID!) {", 1)


@pytest.fixture
async def library(served: Served) -> Served:
    on_photo, grace = face("f", "i", "p"), person("p", "Grace", faceCount=1)
    await put_library_items(
        served,
        *(photo_user(uploadCount=1), tagged(photo("i"), [on_photo], grace), on_photo, grace),
        *(person("q", "Q", faceCount=0), livestream("l")),
    )
    return served


@pytest.mark.parametrize("case", CASES)
async def test_a_global_id_is_accepted_and_that_of_another_type_is_not(library: Served, case: str) -> None:
    operation, field, parts, expected = CASES[case]
    id = global_id(*parts) if parts != USER else global_id(*USER, user_id(library, ADA))

    refused = await ask_as(library, with_id_variable(operation), ADA, Role.ADMIN, id=global_id("Post", "i"))
    answer = await ask_as(library, with_id_variable(operation), ADA, Role.ADMIN, id=id)

    assert codes_and_fields(refused) == [("BAD_USER_INPUT", field)]
    assert answer.errors is None
    assert [*answer.data.values()] == [expected]


async def test_the_global_id_of_a_photo_saves_the_query_of_its_time(library: Served) -> None:
    id = global_id(*PHOTO)

    shown = await library.ask("query ($id: ID!) { photo(id: $id) { tags } }", {"id": id})
    changed = await ask_as(library, with_id_variable(CASES["updatePhoto"][0]), id=id)
    other_time = await library.ask(
        "query ($id: ID!, $at: DateTime) { photo(id: $id, takenAt: $at) { tags } }",
        {"id": id, "at": "2024-01-01T00:00:00Z"},
    )

    assert (shown.made, changed.made) == (["GetItem sparks"], ["UpdateItem sparks"])
    assert other_time.data == {"photo": None}


@pytest.mark.parametrize("parts", [("i",), ("i", WRITTEN, "x"), ("", WRITTEN)], ids=str)
async def test_a_malformed_global_id_of_a_photo_is_bad_input(served: Served, parts: tuple[str, ...]) -> None:
    answer = await served.ask("query ($id: ID!) { photo(id: $id) { tags } }", {"id": global_id("Photo", *parts)})

    assert (codes_and_fields(answer), answer.calls) == ([("BAD_USER_INPUT", "id")], [])


async def test_a_photo_is_found_by_a_global_id_without_a_readable_time(library: Served) -> None:
    answer = await library.ask("query ($id: ID!) { photo(id: $id) { imageId } }", {"id": global_id("Photo", "i", "x")})

    assert answer.data == {"photo": {"imageId": "i"}}


async def test_the_global_id_of_a_face_must_fit_the_photo(library: Served) -> None:
    operation = with_id_variable(CASES["untagFace faceId"][0])

    answer = await ask_as(library, operation, id=global_id("Face", "f", "j"))

    assert codes_and_fields(answer) == [("BAD_USER_INPUT", "faceId")]


async def test_an_upload_is_completed_and_cancelled_by_its_global_id(library: Served) -> None:
    reserved = await ask_as(library, 'mutation { createPhoto(input: {contentType: "image/jpeg"}) { id } }')
    id = reserved.data["createPhoto"]["id"]

    completed = await ask_as(library, "mutation ($id: ID!) { completePhoto(id: $id) { id } }", id=id)
    refused = await ask_as(library, "mutation ($id: ID!) { cancelPhotoUpload(id: $id) }", id=global_id(*PHOTO))
    cancelled = await ask_as(library, "mutation ($id: ID!) { cancelPhotoUpload(id: $id) }", id=id)

    assert (completed.errors or [])[0]["extensions"]["reason"] == "NOT_UPLOADED"
    assert codes_and_fields(refused) == [("BAD_USER_INPUT", "id")]
    assert cancelled.data == {"cancelPhotoUpload": True}
