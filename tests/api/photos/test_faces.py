"""Tagging and untagging faces (SPARKS-W1): the face, the photo and the person's count change in one transaction."""

import asyncio
from typing import Any

import pytest

from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.photos import face_tags as tagging
from datastore.photos import optimistic_update as current
from tests.support.photo_items import (
    ADA,
    EVE,
    WRITTEN,
    ask_as,
    face,
    person,
    photo,
    photo_user,
    put_library_items,
    tagged,
)
from tests.support.photo_steps import (
    BOX,
    TAG,
    UNTAG,
    ask_library,
    assert_consistent,
    library_item,
    library_items,
    tag_person,
)
from tests.support.served import NOON, Served

OWN = uuid7(NOON, "own")


async def place_photo(served: Served, *more: Any) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p", "Grace"), *more)


async def test_a_face_is_returned_as_it_is_stored_and_listed_on_its_photo(served: Served) -> None:
    await place_photo(served)
    given = {"personId": "p", "boundingBox": BOX, "confidence": 0.5, "faceId": OWN}

    answer = await ask_as(served, TAG, image="i", input=given, at=WRITTEN)

    assert answer.data["tagFace"] == {
        "faceId": OWN,
        "imageId": "i",
        "personId": "p",
        "confidence": 0.5,
        "boundingBox": BOX,
        "createdAt": "2026-06-25T12:00:00.000Z",
    }
    # The person exists, and no face with this id.
    assert answer.made == ["GetItem sparks", *["Query sparks"] * 2, "TransactWriteItems sparks"]
    assert await library_item(served, f"FACE#{OWN}") == {
        "PK": f"FACE#{OWN}",
        "SK": "IMAGE#i",
        "entityType": "FACE",
        "personId": "p",
        "imageId": "i",
        "photoSK": f"IMAGE#{WRITTEN}",
        "confidence": 0.5,
        "boundingBox": BOX,
        "createdAt": "2026-06-25T12:00:00.000Z",
    }
    assert await library_item(served, "IMAGE#i") == photo(
        "i", persons=["p"], personNames={"p": "Grace"}, faces=[{"faceId": OWN, "personId": "p"}], revision=1
    )
    assert await library_item(served, "PERSON#p") == person("p", "Grace", faceCount=1)


async def test_the_time_of_the_photo_saves_a_query(served: Served) -> None:
    at = "2026-06-25T10:00:00.250Z"
    await put_library_items(served, photo("i", at=at), person("p"))
    given = {"personId": "p", "boundingBox": BOX}

    known = await ask_as(served, TAG, image="i", input=given, at=at)
    wrong = await ask_as(served, TAG, image="i", input=given, at="2026-06-25T11:00:00Z")

    assert known.made == ["GetItem sparks", "Query sparks", "TransactWriteItems sparks"]
    assert wrong.codes == ["NOT_FOUND"]
    assert wrong.errors[0]["message"] == "There is no such photo taken at that moment."
    assert [item["faceCount"] for item in await library_items(served, "PERSON")] == [1]


async def test_the_response_shows_the_photo_with_the_face(served: Served) -> None:
    await place_photo(served)
    query = """mutation ($input: TagFaceInput!) { tagFace(imageId: "i", input: $input) {
      photo { personIds persons { name } faces { personId } } person { name faceCount }
    } }"""

    answer = await ask_library(served, query, input={"personId": "p", "boundingBox": BOX})

    assert answer == {
        "photo": {"personIds": ["p"], "persons": [{"name": "Grace"}], "faces": [{"personId": "p"}]},
        "person": {"name": "Grace", "faceCount": 1},
    }


async def test_tagging_a_face_again_stores_it_once(served: Served) -> None:
    await place_photo(served)

    received = await asyncio.gather(*[tag_person(served, "i", "p", faceId=OWN) for _ in range(8)])
    served.clock.forward(hours=1)
    received.append(await tag_person(served, "i", "p", faceId=OWN, confidence=0.1))

    assert received == [received[0]] * 9
    assert (await library_item(served, "PERSON#p") or {})["faceCount"] == 1
    await assert_consistent(served)


async def test_the_id_of_a_face_on_another_photo_is_taken(served: Served) -> None:
    await place_photo(served, photo("j"))
    await tag_person(served, "i", "p", faceId=OWN)

    answer = await ask_as(served, TAG, image="j", input={"personId": "p", "boundingBox": BOX, "faceId": OWN})

    assert answer.codes == ["CONFLICT"]
    assert len(await library_items(served, "FACE")) == 1


async def test_a_person_leaves_the_photo_with_their_last_face(served: Served) -> None:
    await place_photo(served, person("q"))
    faces = [(await tag_person(served, "i", whose))["faceId"] for whose in ("p", "q", "p")]

    answer = await ask_as(served, UNTAG, face=faces[0], image="i")
    between = await library_item(served, "IMAGE#i")
    again = await ask_library(served, UNTAG, face=faces[0], image="i")
    await ask_library(served, UNTAG, face=faces[2], image="i")

    assert answer.data["untagFace"] == {"faceId": faces[0], "personId": "p"}
    # The face; its photo, by the key in the face; the person.
    assert answer.made == ["GetItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"]
    assert (between or {})["persons"] == ["p", "q"]
    assert again is None
    assert await library_item(served, "IMAGE#i") == photo(
        "i", persons=["q"], personNames={"q": "Q"}, faces=[{"faceId": faces[1], "personId": "q"}], revision=5
    )
    await assert_consistent(served)


async def test_one_of_concurrent_removals_of_a_face_returns_it(served: Served) -> None:
    await place_photo(served)
    face_id = (await tag_person(served, "i", "p"))["faceId"]

    received = await asyncio.gather(*[ask_library(served, UNTAG, face=face_id, image="i") for _ in range(6)])

    assert sorted(map(bool, received)) == [False] * 5 + [True]
    assert (await library_item(served, "PERSON#p") or {})["faceCount"] == 0
    await assert_consistent(served)


async def test_tagging_lists_the_existing_faces_on_a_photo_of_another_program(served: Served) -> None:
    old = photo("i", persons=["p", "q"])
    await put_library_items(
        served, old, person("p", faceCount=2), person("q"), face("f1", "i", "p", None), face("f2", "j", "p")
    )

    new = await tag_person(served, "i", "q")

    assert await library_item(served, "IMAGE#i") == {
        **old,
        "personNames": {"q": "Q"},
        "faces": [{"faceId": "f1", "personId": "p"}, {"faceId": new["faceId"], "personId": "q"}],
        "revision": 1,
    }


async def test_an_old_face_is_removed_from_a_photo_that_does_not_list_it(served: Served) -> None:
    faces = [face("f1", "i", "p", None), face("f2", "i", "p", None)]
    await put_library_items(served, photo("i", persons=["p"]), person("p", faceCount=2), *faces)

    first = await ask_as(served, UNTAG, face="f1", image="i")
    between = await library_item(served, "IMAGE#i")
    await ask_library(served, UNTAG, face="f2", image="i")

    assert first.data["untagFace"] == {"faceId": "f1", "personId": "p"}
    assert ((between or {})["persons"], (between or {})["faces"]) == (["p"], [{"faceId": "f2", "personId": "p"}])
    assert (await library_item(served, "IMAGE#i") or {})["persons"] == []
    assert await library_item(served, "PERSON#p") == person("p", faceCount=0)


async def test_an_uncounted_person_is_counted_with_the_next_face(served: Served) -> None:
    old = person("p")
    await put_library_items(served, photo("i"), old | {"faceCount": None}, face("f1", "j", "p"), face("f2", "k", "p"))

    await asyncio.gather(tag_person(served, "i", "p"), tag_person(served, "i", "p"))

    assert (await library_item(served, "PERSON#p") or {})["faceCount"] == 4


async def test_a_count_that_another_program_wrote_too_low_does_not_fall_below_zero(served: Served) -> None:
    faces = [face("f", "i", "p")]
    await put_library_items(served, tagged(photo("i"), faces, person("p")), person("p"), *faces)

    await ask_library(served, UNTAG, face="f", image="i")

    assert (await library_item(served, "PERSON#p") or {})["faceCount"] == 0


async def test_a_face_of_a_deleted_person_is_removed(served: Served) -> None:
    faces = [face("f", "i", "p")]
    await put_library_items(served, tagged(photo("i"), faces, person("p")), *faces)

    assert await ask_library(served, UNTAG, face="f", image="i") == {"faceId": "f", "personId": "p"}
    assert await library_items(served, "FACE") == []


async def test_the_faces_on_a_photo_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagging, "MAX_FACES", 3)
    await place_photo(served)

    answers = await asyncio.gather(
        *[ask_as(served, TAG, image="i", input={"personId": "p", "boundingBox": BOX}) for _ in range(5)]
    )

    assert sorted(answer.codes for answer in answers) == [[], [], [], ["CONFLICT"], ["CONFLICT"]]
    refused = next(answer for answer in answers if answer.errors)
    assert "at most 3 faces" in refused.errors[0]["message"]
    await assert_consistent(served)


async def test_a_merged_person_is_tagged_as_the_other(served: Served) -> None:
    await put_library_items(served, photo("i"), person("p", mergedInto="q"), person("q", receives={"p"}))

    assert (await tag_person(served, "i", "p"))["personId"] == "q"
    assert [item["faceCount"] for item in await library_items(served, "PERSON")] == [0, 1]


async def test_faces_are_changed_by_the_owner_of_the_photo_only(served: Served) -> None:
    await place_photo(served)
    face_id = (await tag_person(served, "i", "p"))["faceId"]
    before = await library_items(served)
    given = {"personId": "p", "boundingBox": BOX}

    for email, role in ((EVE, Role.USER), (EVE, Role.SYSTEM), (None, Role.USER), (None, Role.SYSTEM)):
        refused = [
            await ask_as(served, TAG, email, role, image="i", input=given),
            await ask_as(served, UNTAG, email, role, face=face_id, image="i"),
        ]
        assert [answer.codes for answer in refused] == [["FORBIDDEN"], ["FORBIDDEN"]]
        assert ADA not in str([answer.errors for answer in refused])
    for admin in (EVE, None):
        assert (await ask_as(served, TAG, admin, Role.ADMIN, image="i", input=given)).codes == ["FORBIDDEN"]
    assert (await ask_as(served, TAG, None, image="i", input=given)).codes == ["FORBIDDEN"]
    assert (await served.ask(TAG, {"image": "i", "input": given})).codes == ["UNAUTHENTICATED"]
    assert await library_items(served) == before


@pytest.mark.parametrize("admin", [EVE, None])
async def test_an_admin_removes_any_face_from_any_photo(served: Served, admin: str | None) -> None:
    await place_photo(served)
    first, second = [(await tag_person(served, "i", "p"))["faceId"] for _ in range(2)]

    answer = await ask_library(served, UNTAG, admin, Role.ADMIN, face=first, image="i")

    assert answer == {"faceId": first, "personId": "p"}
    assert (await library_item(served, "IMAGE#i") or {})["faces"] == [{"faceId": second, "personId": "p"}]
    assert await ask_library(served, UNTAG, admin, Role.ADMIN, face=first, image="i") is None
    await assert_consistent(served)


async def test_an_owner_is_recognized_by_any_spelling_of_the_email(served: Served) -> None:
    await put_library_items(served, photo("i", "Ada@Example.com"), person("p"))

    assert (await tag_person(served, "i", "p", "ADA@example.COM"))["personId"] == "p"


async def test_an_unknown_photo_person_or_face_is_refused(served: Served) -> None:
    await place_photo(served)
    before = await library_items(served)

    for image_id, person_id in (("j", "p"), ("i", "q")):
        given = {"personId": person_id, "boundingBox": BOX}
        assert (await ask_as(served, TAG, image=image_id, input=given)).codes == ["NOT_FOUND"]
    assert await ask_library(served, UNTAG, face="f", image="i") is None
    assert await library_items(served) == before


async def test_values_out_of_bounds_are_refused(served: Served) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"boundingBox": BOX | {"left": -0.1}}, "boundingBox.left"),
        ({"boundingBox": BOX | {"top": 1.1}}, "boundingBox.top"),
        ({"boundingBox": BOX | {"width": 0}}, "boundingBox.width"),
        ({"boundingBox": BOX | {"height": 1e-200}}, "boundingBox.height"),
        ({"boundingBox": BOX | {"width": 0.91}}, "boundingBox.width"),
        ({"boundingBox": BOX | {"height": 0.81}}, "boundingBox.height"),
        ({"confidence": 1.1}, "confidence"),
        ({"confidence": -0.1}, "confidence"),
        ({"faceId": "f"}, "faceId"),
        ({"faceId": "01900000-0000-7000-8000-000000000001"}, "faceId"),
        ({"image": ""}, "imageId"),
        ({"personId": " "}, "personId"),
        ({"at": "0001-01-01T00:00:00"}, "takenAt"),
    ]
    for given, field in wrong:
        at, image = given.pop("at", None), given.pop("image", "i")
        answer = await ask_as(served, TAG, image=image, input={"personId": "p", "boundingBox": BOX} | given, at=at)

        assert answer.codes == ["BAD_USER_INPUT"]
        assert (answer.errors or [])[0]["extensions"]["field"] == field
        assert answer.calls == []


async def test_a_face_may_fill_the_photo_and_have_a_confidence_of_zero(served: Served) -> None:
    await place_photo(served)

    for box in ({"left": 0, "top": 0, "width": 1, "height": 1}, {"left": 0.7, "top": 0.9, "width": 0.3, "height": 0.1}):
        answer = await tag_person(served, "i", "p", boundingBox=box, confidence=1e-300)
        assert (answer["boundingBox"], answer["confidence"]) == (box, 0)


async def test_the_person_of_a_face_is_read_with_the_new_count(served: Served) -> None:
    await place_photo(served)
    given = {"personId": "p", "boundingBox": BOX, "faceId": OWN}
    shown = "{ faceId person { faceCount } }"
    queries: tuple[tuple[str, dict[str, Any]], ...] = (
        (f'mutation ($input: TagFaceInput!) {{ tagFace(imageId: "i", input: $input) {shown} }}', {"input": given}),
        (f'mutation ($id: ID!) {{ untagFace(faceId: $id, imageId: "i") {shown} }}', {"id": OWN}),
    )

    for (query, variables), count in zip(queries, (1, 0), strict=True):
        answer = await ask_as(served, query, **variables)
        (received,) = answer.data.values()
        assert received == {"faceId": OWN, "person": {"faceCount": count}}
        # The read after the transaction is like the one before it.
        assert answer.calls[-1].operation in ("GetItem", "Query")
        assert answer.calls[-1].request["ConsistentRead"] is True


class TestListedButDeletedFaces:
    async def test_a_face_that_is_tagged_again_is_listed_once(self, served: Served) -> None:
        await put_library_items(served, photo_user(uploadCount=1), person("p"), person("q"))
        await put_library_items(served, tagged(photo("i"), [face(OWN, "i", "q")], person("q")))

        await tag_person(served, "i", "p", faceId=OWN)

        assert await library_item(served, "IMAGE#i") == photo(
            "i", persons=["p"], personNames={"p": "P"}, faces=[{"faceId": OWN, "personId": "p"}], revision=1
        )
        await assert_consistent(served)

    async def test_only_the_owner_of_the_photo_removes_it(self, served: Served) -> None:
        people, left = (person("p", faceCount=1), person("q")), face("f1", "i", "p")
        listed = tagged(photo("i"), [left, face("f2", "i", "p"), face("f3", "i", "q")], *people)
        await put_library_items(served, photo_user(uploadCount=1), *people, listed, left)
        before = await library_items(served)

        assert (await ask_as(served, UNTAG, EVE, face="f3", image="i")).data == {"untagFace": None}
        assert await library_items(served) == before
        for gone in ("f2", "f3", "f3"):
            assert await ask_library(served, UNTAG, face=gone, image="i") is None

        assert (await library_item(served, "IMAGE#i") or {})["revision"] == 2
        await assert_consistent(served)


async def test_an_admin_removes_it(served: Served) -> None:
    await put_library_items(
        served, person("p"), tagged(photo("i"), [face("f", "i", "p")], person("p")), photo_user(uploadCount=1)
    )

    assert await ask_library(served, UNTAG, None, Role.ADMIN, face="f", image="i") is None

    assert (await library_item(served, "IMAGE#i") or {})["persons"] == []
    await assert_consistent(served)


async def test_a_face_of_a_deleted_photo_is_removed_by_an_admin(served: Served) -> None:
    await put_library_items(served, person("p", faceCount=2), face("f", "gone", "p"), face("g", "gone", "nobody"))
    before = await library_items(served)

    for role in (Role.USER, Role.SYSTEM):
        assert (await ask_as(served, UNTAG, role=role, face="f", image="gone")).codes == ["NOT_FOUND"]
    assert await library_items(served) == before
    for face_id, whose in (("f", "p"), ("g", "nobody")):
        answer = await ask_library(served, UNTAG, role=Role.ADMIN, face=face_id, image="gone")
        assert answer == {"faceId": face_id, "personId": whose}

    assert await library_items(served) == [person("p", faceCount=1)]


async def test_the_faces_of_a_person_beyond_the_limit_of_a_photo_are_listed_all_or_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "MAX_LISTED_FACES", 3)
    faces = [face(f"f{number}", "i", "p" if number < 4 else "q", None) for number in range(7)]
    await put_library_items(
        served, photo("i", persons=["p", "q"]), person("p", faceCount=4), person("q", faceCount=3), *faces
    )

    await ask_library(served, UNTAG, face="f6", image="i")
    first = await library_item(served, "IMAGE#i") or {}
    await ask_library(served, UNTAG, face="f0", image="i")
    second = await library_item(served, "IMAGE#i") or {}
    await ask_library(served, 'mutation { deletePhoto(id: "i") { imageId } }')

    assert (first["persons"], [listed["faceId"] for listed in first["faces"]]) == (["p", "q"], ["f4", "f5"])
    assert (second["persons"], [listed["faceId"] for listed in second["faces"]]) == (["p", "q"], ["f4", "f5"])
    assert await library_items(served) == [person("p"), person("q")]
