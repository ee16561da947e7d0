"""Leftovers of repeated, interrupted and concurrent uploads: no unused file is kept, no file of a photo removed."""

import asyncio
import logging
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from datastore.keyspace.photos import table
from datastore.keyspace.photos import uploads as keys
from datastore.objects import NoObjects
from datastore.objects.local import LocalObjects
from datastore.photos.decoder import DecoderPool
from datastore.photos.file_deletion_outbox import FileDeletionOutbox, incoming_keys
from datastore.photos.reservation_expiry import MAX_RELEASED, ReservationExpiry
from datastore.photos.uploads import Uploads
from tests.support.late_uploads import OWN_ID, late, other_pictures
from tests.support.photo_items import ADA, photo, photo_user, put_library_items
from tests.support.photo_steps import DELETE, ask_library, library_items
from tests.support.pictures import jpeg
from tests.support.served import NOON, Served
from tests.support.upload_forms import cancel, complete_photo, create_photo, post_form, upload_count
from tests.support.upload_load import files_in
from tests.support.upload_steps import files_of_gateway, files_without_hashes, items, janitor, reserved, upload_original

__all__ = ["late", "other_pictures"]


@pytest.fixture(autouse=True)
async def ada(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=10))


def outbox_entry(image_id: str, **more: Any) -> dict[str, Any]:
    key = f"REMOVAL#{image_id}"
    return {"PK": key, "SK": key, "entityType": "REMOVAL", "imageId": image_id} | more


@pytest.mark.usefixtures("late")
async def test_a_late_confirmation_removes_no_files_of_the_photo(served: Served) -> None:
    # As a concurrent confirmation of the first upload does that finds the second one in its place.
    shown_keys = set(files_of_gateway(served))
    confirmation: dict[str, Any] = {"keys": shown_keys, "me": ADA, "now": int(NOON.timestamp())}
    assert (await served.store().update(keys.COMPLETE_PHOTO, keys.upload(OWN_ID), **confirmation)).ok
    served.clock.forward(hours=2)
    await janitor(served).clean_up()

    assert files_without_hashes(served) == {f"originals/{OWN_ID}.jpg", f"thumbnails/{OWN_ID}.jpg"}
    assert (
        await upload_count(served),
        await library_items(served, "UPLOAD"),
        await library_items(served, "REMOVAL"),
    ) == (1, [], [])


@pytest.mark.usefixtures("late")
async def test_a_duplicate_reservation_is_released_when_the_photo_is_confirmed_again(served: Served) -> None:
    assert (await complete_photo(served, OWN_ID)).errors is None
    assert (await complete_photo(served, OWN_ID)).made == ["GetItem sparks", "Query sparks"]
    await janitor(served).clean_up()

    assert (await upload_count(served), await items(served, "UPLOAD"), await library_items(served, "REMOVAL")) == (
        1,
        [],
        [],
    )
    assert files_without_hashes(served) == {f"originals/{OWN_ID}.jpg", f"thumbnails/{OWN_ID}.jpg"}


@pytest.mark.usefixtures("late")
async def test_a_photo_that_is_confirmed_again_ends_no_later_upload(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the duplicate reservation is released, the photo is deleted and its id reserved again."""
    left_by = ReservationExpiry._files_to_delete

    async def slow(self: ReservationExpiry, image_id: str, item: Any) -> Any:
        monkeypatch.setattr(ReservationExpiry, "_files_to_delete", left_by)
        await ask_library(served, DELETE, id=OWN_ID)
        assert (await cancel(served, OWN_ID)).data == {"cancelPhotoUpload": True}
        await upload_original(served, jpeg(), imageId=OWN_ID)
        return await left_by(self, image_id, item)

    monkeypatch.setattr(ReservationExpiry, "_files_to_delete", slow)
    await complete_photo(served, OWN_ID)

    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (1, 1)
    assert (await complete_photo(served, OWN_ID)).errors is None


async def test_files_uploaded_again_after_a_photo_are_removed_with_it(served: Served) -> None:
    upload = await reserved(served)
    id = upload["imageId"]
    await post_form(served.http, upload["original"], jpeg())
    await complete_photo(served, id)
    # In a bucket, an upload that began earlier may do this.
    await served.gateway.objects.write(incoming_keys(id)[0], jpeg(70, 50), content_type="image/jpeg")
    await ask_library(served, DELETE, id=id)

    assert (files_of_gateway(served), await library_items(served, "REMOVAL")) == (set(), [])


async def test_a_repeat_removes_the_files_of_an_interrupted_try(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await upload_original(served, jpeg())

    async def skip(*_: Any) -> None:
        return None

    with monkeypatch.context() as cut_off:
        cut_off.setattr(Uploads, "_remove", skip)
        await complete_photo(served, id)
    assert incoming_keys(id)[0] in files_of_gateway(served)
    assert (await complete_photo(served, id)).errors is None

    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}


async def test_an_expired_reservation_accepts_no_upload(served: Served) -> None:
    await reserved(served, imageId=OWN_ID)
    served.clock.forward(minutes=59)
    again = await reserved(served, imageId=OWN_ID)
    served.clock.forward(minutes=1)

    assert [again[name]["expiresAt"] for name in ("original", "thumbnail")] == [again["expiresAt"]] * 2
    assert await post_form(served.http, again["original"], jpeg()) == 403


async def test_abandoned_uploads_are_swept(served: Served) -> None:
    objects = served.gateway.objects
    assert isinstance(objects, LocalObjects)
    assert await objects.sweep() == 0
    for key in ("incoming/old/original", "incoming/both/original", "incoming/both/new", "originals/old.jpg"):
        await objects.write(key, b"x", content_type="image/jpeg")
    part = objects.path("incoming/old/thumbnail.0123.part")
    part.write_bytes(b"half")
    empty = objects.path("incoming/empty")
    empty.mkdir()
    for path in (*map(objects.path, ("incoming/old/original", "incoming/both/original", "originals/old.jpg")), part):
        make_old(path)
    for folder in ("incoming/old", "incoming/empty"):
        make_old(objects.path(folder))
    await janitor(served).clean_up()

    assert files_of_gateway(served) == {"incoming/both/new", "originals/old.jpg"}
    assert [path.name for path in (objects.folder / "incoming").iterdir()] == ["both"]


def make_old(path: Path) -> None:
    then = path.stat().st_mtime - 7_300
    os.utime(path, (then, then))


async def test_concurrent_confirmations_of_different_files_agree_on_one(
    served: Served, other_pictures: DecoderPool
) -> None:
    upload = await reserved(served)
    id, objects = upload["imageId"], served.gateway.objects
    held, going = asyncio.Event(), asyncio.Event()
    write = objects.write

    class Slow:
        """The objects of another process, whose write is delayed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(objects, name)

        async def write(self, key: str, content: bytes, *, content_type: str) -> None:
            held.set()
            await going.wait()
            await write(key, content, content_type=content_type)

    await post_form(served.http, upload["original"], jpeg(60, 40))
    slow: Any = Slow()
    late = asyncio.create_task(
        Uploads(served.store(), slow, other_pictures, served.clock.now, served.store).complete(id, ADA)
    )
    await held.wait()
    await post_form(served.http, upload["original"], jpeg(300, 100))
    answer = await complete_photo(served, id)
    going.set()

    assert ((await late).width, answer.data["completePhoto"]["width"]) == (300, 300)
    async with served.http.get(answer.data["completePhoto"]["originalUrl"]) as response:
        assert Image.open(BytesIO(await response.read())).size == (300, 100)
    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}


async def test_files_of_a_failed_concurrent_confirmation_are_removed_with_the_upload(
    served: Served, monkeypatch: pytest.MonkeyPatch, other_pictures: DecoderPool
) -> None:
    upload = await reserved(served)
    id = upload["imageId"]
    await post_form(served.http, upload["original"], jpeg(60, 40))
    confirming = Uploads._confirm

    async def fail(*_: Any) -> Any:
        raise RuntimeError("The confirmation fails.")

    async def late(self: Uploads, *given: Any) -> Any:
        monkeypatch.setattr(Uploads, "_confirm", fail)
        await post_form(served.http, upload["original"], jpeg(80, 40))
        other = Uploads(served.store(), served.gateway.objects, other_pictures, served.clock.now, served.store)
        with pytest.raises(RuntimeError):
            await other.complete(id, ADA)
        assert len(files_of_gateway(served)) == 5
        return await confirming(self, *given)

    monkeypatch.setattr(Uploads, "_confirm", late)
    answer = await complete_photo(served, id)

    assert (answer.errors, answer.data["completePhoto"]["width"]) == (None, 60)
    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}
    assert len(files_of_gateway(served)) == 2


async def test_files_of_a_failed_confirmation_are_removed_with_the_reservation(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await upload_original(served, jpeg())

    def fail(*_: Any) -> None:
        raise RuntimeError("The confirmation fails.")

    with monkeypatch.context() as broken:
        broken.setattr(Uploads, "_confirm_actions", fail)
        assert (await complete_photo(served, id)).codes == ["INTERNAL"]
    assert len(files_of_gateway(served)) == 3
    served.clock.forward(hours=1)
    await janitor(served).clean_up()

    assert (files_of_gateway(served), await upload_count(served)) == (set(), 0)


async def test_a_damaged_item_does_not_stop_the_cleanup_of_others(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await upload_original(served, jpeg())

    def reservation(id: str, **more: Any) -> dict[str, Any]:
        return {"PK": f"UPLOAD#{id}", "SK": f"UPLOAD#{id}", "entityType": "UPLOAD"} | more

    await put_library_items(
        served,
        reservation("0", email=ADA, createdAt=None, expires=None),
        reservation("00", createdAt="2026-01-01T00:00:00Z", expires=1),  # without an owner
        outbox_entry("0", objectKeys="x"),
        outbox_entry("1", objectKeys=["../../x"]),
        outbox_entry("1#2", objectKeys=[]),
        outbox_entry("2", objectKeys=["originals/2.jpg"]),
    )
    served.clock.forward(hours=5)
    cleanup = janitor(served)
    await cleanup.clean_up()
    first_warnings = len(file_warnings(caplog))
    await cleanup.clean_up()

    assert [item["PK"] for item in await library_items(served, "REMOVAL")] == [
        "REMOVAL#0",
        "REMOVAL#1",
        "REMOVAL#1#2",
    ]
    assert [item["PK"] for item in await library_items(served, "UPLOAD")] == ["UPLOAD#0", "UPLOAD#00"]
    assert (files_of_gateway(served), await upload_count(served)) == (set(), 0)
    assert (first_warnings, len(file_warnings(caplog))) == (2, 2)


async def test_damaged_uploads_do_not_block_the_places_of_valid_ones(served: Served) -> None:
    def damaged(number: int) -> dict[str, Any]:
        key = f"UPLOAD#00{number}"
        attributes = {"email": ADA, "createdAt": "2026-01-01T00:00:00Z", "expires": None}
        return {"PK": key, "SK": key, "entityType": "UPLOAD"} | attributes

    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=1), *map(damaged, range(MAX_RELEASED)))
    await reserved(served)
    full = await create_photo(served)
    served.clock.forward(hours=1)

    assert full.codes == ["CONFLICT"]
    assert (await create_photo(served)).errors is None
    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (1, MAX_RELEASED + 1)


def file_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "could not be deleted; retrying" in record.message]


async def test_files_are_swept_although_the_table_cannot_be_read(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    objects = served.gateway.objects
    assert isinstance(objects, LocalObjects)
    await objects.write("incoming/old/original", b"x", content_type="image/jpeg")
    make_old(objects.path("incoming/old/original"))
    cleanup = janitor(served)

    def fails() -> Any:
        raise RuntimeError("There is no table.")

    monkeypatch.setattr(cleanup, "_open_store", fails)
    with caplog.at_level(logging.WARNING):
        await cleanup.clean_up()

    assert files_of_gateway(served) == set()
    assert caplog.text.count("There is no table.") == 2


async def test_a_gateway_without_an_object_store_leaves_outbox_entries_to_others(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await put_library_items(served, outbox_entry("1", objectKeys=["originals/1.jpg"]))
    cleanup = janitor(served)
    cleanup._objects = NoObjects()
    await cleanup.clean_up()

    assert (len(await library_items(served, "REMOVAL")), file_warnings(caplog)) == (1, [])


async def test_an_outbox_entry_keeps_the_files_of_a_concurrent_one(served: Served) -> None:
    """A reservation of the id of a deleted photo is released before the photo's files are removed."""
    await upload_original(served, jpeg(), imageId=OWN_ID)
    await put_library_items(
        served, outbox_entry(OWN_ID, objectKeys=["originals/1.jpg"], createdAt="2026-06-25T12:00:00.000Z")
    )
    await served.gateway.objects.write("originals/1.jpg", b"x", content_type="image/jpeg")
    served.clock.forward(hours=1)
    assert await janitor(served).release_expired() == 1
    (after,) = await library_items(served, "REMOVAL")
    await FileDeletionOutbox(served.store(), served.gateway.objects).delete_files(OWN_ID, ["originals/2.jpg"])
    still = await library_items(served, "REMOVAL")
    await janitor(served).clean_up()

    assert after["objectKeys"] == ["originals/1.jpg", *incoming_keys(OWN_ID)]
    assert (still, await library_items(served, "REMOVAL"), files_of_gateway(served)) == ([after], [], set())


async def test_a_photo_of_another_program_does_not_keep_a_place(served: Served) -> None:
    await upload_original(served, jpeg(), imageId=OWN_ID)
    await put_library_items(served, photo(OWN_ID))
    served.clock.forward(hours=1)

    assert await janitor(served).release_expired() == 1
    assert (
        await upload_count(served),
        files_of_gateway(served),
        len(await library_items(served, table.SPARKS.name)),
    ) == (0, set(), 0)


async def test_partial_files_of_a_killed_gateway_are_swept(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path, b"secret", lambda: "http://x")
    with objects.partial_file("originals/one.jpg") as receiving:
        receiving.write(b"half")
        (partial,) = files_in(tmp_path)
        for path in (tmp_path / partial, (tmp_path / partial).parent):
            os.utime(path, (0, 0))
        # As another gateway does hours after this one was killed.
        assert await objects.sweep() == 1
    assert (files_in(tmp_path), os.listdir(tmp_path / "incoming")) == (set(), [])
