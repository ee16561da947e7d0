"""Changing and deleting photos (SPARKS-W1), with their faces, counts and files."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from datastore.errors import Unavailable
from datastore.model.access_patterns import AccessPattern
from datastore.model.identity import Role
from datastore.photos import update_photo as editing
from datastore.photos.file_deletion_outbox import FileDeletionOutbox
from datastore.photos.optimistic_update import OptimisticUpdate
from datastore.session.store import Store
from datastore.session.writes import Action
from tests.support.photo_items import (
    ADA,
    EVE,
    OTHERWISE,
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
    DELETE,
    UPDATE,
    ask_library,
    assert_consistent,
    library_item,
    library_items,
    tag_person,
)
from tests.support.served import Served

AT = "2026-06-25T10:00:00.250Z"
FILES = [f"originals/{ADA}/i.jpg", f"thumbnails/{ADA}/i.jpg"]


def objects(served: Served) -> Any:
    assert served.gateway.services is not None
    return served.gateway.services.objects


async def upload_files(served: Served) -> None:
    for key in FILES:
        await objects(served).write(key, b"a picture", content_type="image/jpeg")


async def files_exist(served: Served) -> list[bool]:
    """Return whether each of the photo's files exists."""
    return [await objects(served).read(key, max_bytes=100) is not None for key in FILES]


async def test_the_fields_of_a_photo_are_changed_in_one_call(served: Served) -> None:
    await put_library_items(served, photo("i", at=AT))
    tags = [" Sea ", "sea", "FOG"]

    answer = await ask_as(served, UPDATE, id="i", input={"description": " New ", "tags": tags}, at=AT)

    assert answer.data["updatePhoto"] == {"imageId": "i", "description": "New", "tags": ["sea", "fog"]}
    assert answer.made == ["UpdateItem sparks"]
    assert await library_items(served) == [photo("i", at=AT, description="New", tags=["sea", "fog"], version=1)]


async def test_a_photo_is_found_without_its_time_and_with_another_spelling_of_it(served: Served) -> None:
    await put_library_items(served, photo("i", at=OTHERWISE))

    found = await ask_as(served, UPDATE, id="i", input={"description": None})
    otherwise = await ask_as(served, UPDATE, id="i", input={"tags": []}, at=WRITTEN)

    assert found.data["updatePhoto"] == {"imageId": "i", "description": None, "tags": ["tag1", "tag2"]}
    assert found.made == ["Query sparks", "UpdateItem sparks"]
    assert otherwise.data["updatePhoto"]["tags"] == []
    assert otherwise.made == ["Query sparks", "UpdateItem sparks", "UpdateItem sparks"]


@pytest.mark.parametrize("at", [WRITTEN, OTHERWISE])
async def test_a_photo_with_another_version_is_a_conflict_and_stays(served: Served, at: str) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i", at=at))
    await upload_files(served)
    before, received = await library_items(served), "There is no such photo taken at that moment."

    for email, role in ((ADA, Role.USER), (EVE, Role.ADMIN)):
        answer = await ask_as(served, DELETE, email, role, id="i", at=AT)
        assert (answer.codes, answer.errors[0]["message"]) == (["NOT_FOUND"], received)
        assert answer.errors[0]["extensions"]["field"] == "takenAt"
    changed = await ask_as(served, UPDATE, id="i", input={"tags": ["x"]}, at=AT)
    assert (changed.codes, changed.errors[0]["message"]) == (["NOT_FOUND"], received)

    assert await library_items(served) == before
    assert await files_exist(served) == [True, True]
    # The time of the photo may be spelled otherwise. A deleted photo is not found with any time.
    assert await ask_library(served, DELETE, id="i", at=WRITTEN) is not None
    for moment in (WRITTEN, AT, None):
        assert await ask_library(served, DELETE, id="i", at=moment) is None


async def test_the_time_of_a_photo_cannot_be_changed(served: Served) -> None:
    await put_library_items(served, photo("i"))

    answer = await ask_as(served, UPDATE, id="i", input={"tags": [], "takenAt": AT})

    assert "takenAt" in answer.errors[0]["message"]
    assert answer.calls == []
    assert await library_items(served) == [photo("i")]


async def test_a_time_without_an_offset_is_in_utc(served: Served) -> None:
    await put_library_items(served, photo("i", at=AT))

    answer = await ask_as(served, DELETE, id="i", at=AT.removesuffix("Z"))

    assert answer.errors is None
    assert await library_items(served) == []


async def test_only_the_owner_changes_and_deletes_photos(served: Served) -> None:
    await put_library_items(served, photo("i", at=AT))
    await upload_files(served)
    changes: dict[str, Any] = {"id": "i", "input": {"description": "x"}}

    for role in Role:
        asked: list[tuple[str, dict[str, Any]]] = [(UPDATE, changes)]
        if role is not Role.ADMIN:
            asked.append((DELETE, {"id": "i"}))
        refused = [
            await ask_as(served, query, EVE, role, **given, at=at) for query, given in asked for at in (None, AT)
        ]
        assert [answer.codes for answer in refused] == [["FORBIDDEN"]] * len(refused)
        assert ADA not in str([answer.errors for answer in refused])
    assert (await served.ask(DELETE, {"id": "i"})).codes == ["UNAUTHENTICATED"]
    assert (await ask_as(served, UPDATE, None, **changes)).codes == ["FORBIDDEN"]
    for role in (Role.USER, Role.SYSTEM):
        assert (await ask_as(served, DELETE, None, role, id="i")).codes == ["FORBIDDEN"]
    assert await library_items(served) == [photo("i", at=AT)]
    assert await files_exist(served) == [True, True]


async def test_values_out_of_bounds_are_refused(served: Served) -> None:
    wrong: list[tuple[Any, str]] = [
        ({}, "input"),
        ({"description": " "}, "description"),
        ({"description": "x" * 1001}, "description"),
        ({"tags": None}, "tags"),
        ({"tags": ["x"] * 21}, "tags"),
        ({"tags": ["x", " "]}, "tags[1]"),
        ({"tags": ["x" * 51]}, "tags[0]"),
        ({"tags": ["x"], "id": " "}, "id"),
    ]
    for given, field in wrong:
        answer = await ask_as(served, UPDATE, id=given.pop("id", "i"), input=given)

        assert answer.codes == ["BAD_USER_INPUT"]
        assert (answer.errors or [])[0]["extensions"]["field"] == field
        assert answer.calls == []


async def test_a_photo_is_deleted_with_its_faces_counts_and_files(served: Served) -> None:
    await put_library_items(
        served, photo_user(uploadCount=2), photo("i", at=AT), photo("j"), person("p"), person("q"), person("r")
    )
    await upload_files(served)
    for image_id, whose in (("i", "p"), ("i", "q"), ("i", "p"), ("j", "p")):
        await tag_person(served, image_id, whose)

    answer = await ask_as(served, DELETE, id="i", at=AT)
    again = await ask_library(served, DELETE, id="i", at=AT)

    assert answer.data["deletePhoto"] == {"imageId": "i", "description": "Photo i"}
    # The photo; the persons and the user; the transaction; and the outbox entry, once the files are deleted.
    assert answer.made == [
        "BatchGetItem sparks",
        "DeleteItem sparks",
        "GetItem sparks",
        "TransactWriteItems sparks",
    ]
    assert again is None
    assert [item["PK"] for item in await library_items(served, "IMAGE")] == ["IMAGE#j"]
    assert [item["faceCount"] for item in await library_items(served, "PERSON")] == [1, 0, 0]
    assert await files_exist(served) == [False, False]
    await assert_consistent(served)


@pytest.mark.parametrize("admin", [EVE, None])
async def test_an_admin_deletes_any_photo_and_its_owner_gets_the_place_back(served: Served, admin: str | None) -> None:
    others = photo_user(EVE, uploadCount=1), photo("j", EVE)
    await put_library_items(served, photo_user(uploadCount=1), photo("i", at=AT), person("p"), *others)
    await upload_files(served)
    await tag_person(served, "i", "p")

    answer = await ask_library(served, DELETE, admin, Role.ADMIN, id="i", at=AT)

    assert answer == {"imageId": "i", "description": "Photo i"}
    assert await library_items(served, "USER") == [photo_user(uploadCount=0), photo_user(EVE, uploadCount=1)]
    assert await library_items(served, "IMAGE") == [photo("j", EVE)]
    assert await files_exist(served) == [False, False]
    await assert_consistent(served)
    assert await ask_library(served, DELETE, admin, Role.ADMIN, id="i", at=AT) is None


async def test_an_admin_deletes_the_photo_of_an_owner_with_an_email_in_capitals(served: Served) -> None:
    await put_library_items(served, photo("i", "Ada@Example.com"))

    assert await ask_library(served, DELETE, EVE, Role.ADMIN, id="i") is not None
    assert await library_items(served) == []


async def test_the_faces_of_a_photo_of_another_program_are_deleted_with_it(served: Served) -> None:
    faces = [face("f1", "i", "p", None), face("f2", "j", "p", None), face("f3", "i", "q", None)]
    await put_library_items(
        served, photo("i", persons=["p", "q"]), person("p", faceCount=2), person("q", faceCount=1), *faces
    )

    assert await ask_library(served, DELETE, id="i") == {"imageId": "i", "description": "Photo i"}

    left = [item["PK"] for item in await library_items(served)]
    assert left == ["FACE#f2", "PERSON#p", "PERSON#q"]
    assert [item["faceCount"] for item in await library_items(served, "PERSON")] == [1, 0]


async def test_a_photo_with_too_many_faces_for_a_transaction_is_deleted_in_steps(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "MAX_FACES", 2)
    faces = [face(f"f{number}", "i", "p") for number in range(5)]
    await put_library_items(
        served, photo_user(uploadCount=1), tagged(photo("i"), faces, person("p")), person("p", faceCount=5), *faces
    )

    answer = await ask_as(served, DELETE, id="i")

    assert answer.made.count("TransactWriteItems sparks") == 3
    assert await library_items(served) == [person("p"), photo_user(uploadCount=0)]


async def test_a_photo_of_persons_without_a_count_is_deleted(served: Served) -> None:
    for kept in ((), (photo_user(uploadCount=0),)):
        await put_library_items(served, *kept, photo("i"))

        assert await ask_library(served, DELETE, id="i") is not None
        assert await library_items(served) == list(kept)


async def test_a_photo_with_a_null_revision_is_changed_and_deleted(served: Served) -> None:
    await put_library_items(
        served, photo_user(uploadCount=2), photo("i", revision=None), photo("j", revision=None), person("p")
    )

    await tag_person(served, "i", "p")
    assert (await library_item(served, "IMAGE#i") or {})["revision"] == 1
    for image_id in ("i", "j"):
        assert await ask_library(served, DELETE, id=image_id) is not None
    assert await library_items(served) == [person("p"), photo_user(uploadCount=0)]


@pytest.mark.parametrize("count", [{}, {"uploadCount": None}])
async def test_a_missing_upload_count_is_set_by_a_deletion(served: Served, count: Any) -> None:
    owner = photo_user(**count)
    del owner["uploadLimit"]
    await put_library_items(served, owner, photo("i"), photo("j"), photo("k", EVE))

    answer = await ask_as(served, DELETE, id="i")

    assert (answer.errors, answer.made.count("Query sparks.email-PK-index")) == (None, 1)
    assert await library_items(served, "USER") == [photo_user(uploadCount=1, uploadLimit=100)]


async def test_a_photo_that_is_deleted_while_photos_are_counted_is_not_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_library_items(served, photo_user(), photo("i"), photo("j"))
    count = Store.count

    async def slow(store: Store, pattern: AccessPattern, values: Mapping[str, Any]) -> int:
        counted = await count(store, pattern, values)
        monkeypatch.setattr(Store, "count", count)
        assert await ask_library(served, DELETE, id="i") is not None
        return counted

    monkeypatch.setattr(Store, "count", slow)
    reserve = 'mutation { createPhoto(input: {contentType: "image/jpeg", description: "New"}) { imageId } }'
    answer = await ask_as(served, reserve)

    # The remaining photo, and the new reservation.
    assert answer.errors is None
    assert await library_items(served, "USER") == [photo_user(uploadCount=2)]


async def test_one_of_concurrent_deletions_of_a_photo_returns_it(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p"))
    await tag_person(served, "i", "p")

    received = await asyncio.gather(*[ask_library(served, DELETE, id="i") for _ in range(6)])

    assert sorted(map(bool, received)) == [False] * 5 + [True]
    await assert_consistent(served)


async def test_files_that_cannot_be_removed_now_are_removed_later(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i"))
    await upload_files(served)

    async def fails(_: Any, __: Any) -> None:
        raise Unavailable(f"{FILES} cannot be reached.")

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(type(objects(served)), "delete", fails)
        answer = await ask_library(served, DELETE, id="i")

    assert answer is not None
    assert await files_exist(served) == [True, True]
    assert await library_item(served, "REMOVAL#i") == {
        "PK": "REMOVAL#i",
        "SK": "REMOVAL#i",
        "entityType": "REMOVAL",
        "imageId": "i",
        "objectKeys": [*FILES, "incoming/i/original", "incoming/i/thumbnail"],
        "createdAt": "2026-06-25T12:00:00.000Z",
    }
    assert ADA not in caplog.text

    assert await FileDeletionOutbox(served.store(), objects(served)).process_all() == 1

    assert await files_exist(served) == [False, False]
    assert await library_items(served) == [photo_user(uploadCount=0)]


async def test_a_deletion_keeps_the_files_of_an_existing_outbox_entry(served: Served) -> None:
    earlier, key = f"originals/{ADA}/earlier.jpg", "REMOVAL#i"
    note = {"PK": key, "SK": key, "entityType": "REMOVAL", "imageId": "i", "objectKeys": [earlier]}
    await put_library_items(served, photo_user(uploadCount=1), photo("i"), note | {"createdAt": AT})
    for file in (earlier, *FILES):
        await objects(served).write(file, b"a picture", content_type="image/jpeg")

    await ask_library(served, DELETE, id="i")
    await FileDeletionOutbox(served.store(), objects(served)).process_all()

    assert [await objects(served).read(file, max_bytes=100) for file in (earlier, *FILES)] == [None] * 3
    assert await library_items(served) == [photo_user(uploadCount=0)]


async def test_a_face_that_a_deleted_photo_lists_twice_is_counted_once(served: Served) -> None:
    twice, other = face("f", "i", "p"), face("g", "j", "p")
    await put_library_items(
        served, photo_user(uploadCount=1), tagged(photo("i"), [twice, twice], person("p")), twice, other
    )
    await put_library_items(served, person("p", faceCount=2))

    assert await ask_library(served, DELETE, id="i") is not None

    assert await library_items(served) == [other, person("p", faceCount=1), photo_user(uploadCount=0)]


async def test_listed_but_deleted_faces_are_not_counted_by_a_deletion(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "MAX_FACES", 2)
    # Still listed, as the index may show deleted faces for some time, too.
    gone, left = [face(f"f{number}", "i", "p") for number in range(3)], face("f3", "i", "p")
    other = face("g", "j", "p")
    await put_library_items(
        served, photo_user(uploadCount=1), tagged(photo("i"), [*gone, left], person("p")), left, other
    )
    await put_library_items(served, person("p", faceCount=2))

    await ask_library(served, DELETE, id="i")

    assert await library_items(served) == [other, person("p", faceCount=1), photo_user(uploadCount=0)]


@pytest.mark.parametrize("count", [{}, {"uploadCount": None}])
async def test_an_upload_count_that_is_set_during_a_deletion_is_decremented(
    served: Served, monkeypatch: pytest.MonkeyPatch, count: Any
) -> None:
    await put_library_items(served, photo_user(**count), photo("i"))
    commit, begun = OptimisticUpdate.commit, list[bool]()

    async def after(current: OptimisticUpdate, pattern: AccessPattern, actions: Sequence[Action]) -> None:
        if not begun:
            begun.append(True)
            await put_library_items(served, photo_user(uploadCount=1))
        await commit(current, pattern, actions)

    monkeypatch.setattr(OptimisticUpdate, "commit", after)
    assert await ask_library(served, DELETE, id="i") is not None

    assert await library_items(served) == [photo_user(uploadCount=0)]
