"""Cancelled uploads, delayed confirmations and deletions: no unused file is left, no file of a photo is deleted."""

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from datastore.objects.local import LocalObjects
from datastore.photos.decoder import DecoderPool
from datastore.photos.file_deletion_outbox import incoming_keys
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.photos.uploads import Uploads, _cleanup_tasks
from tests.support.late_uploads import OWN_ID, late, other_pictures
from tests.support.photo_items import ADA, EVE, photo_user, put_library_items
from tests.support.photo_steps import DELETE, ask_library, library_items
from tests.support.pictures import jpeg
from tests.support.served import Served
from tests.support.upload_forms import cancel, complete_photo, create_photo, upload_count
from tests.support.upload_steps import files_of_gateway, files_without_hashes, items, janitor, upload_original

__all__ = ["late", "other_pictures"]


@pytest.fixture(autouse=True)
async def ada(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=10))


async def test_a_cancelled_upload_leaves_a_free_place_and_no_files(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=9, uploadLimit=10))
    id = await upload_original(served, jpeg(), imageId=OWN_ID)
    outcomes = await cancel(served, id)
    again = await cancel(served, id)

    assert (outcomes.errors, outcomes.data, again.data) == (
        None,
        {"cancelPhotoUpload": True},
        {"cancelPhotoUpload": False},
    )
    assert outcomes.made == ["DeleteItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"]
    assert again.made == ["GetItem sparks"]
    assert (await upload_count(served), files_of_gateway(served)) == (9, set())
    assert (await library_items(served, "UPLOAD"), await library_items(served, "REMOVAL")) == ([], [])
    assert (await complete_photo(served, id)).codes == ["NOT_FOUND"]
    assert (await create_photo(served, imageId=OWN_ID)).errors is None


async def test_an_expired_upload_can_be_cancelled(served: Served) -> None:
    id = await upload_original(served, jpeg())
    served.clock.forward(hours=1)

    assert (await cancel(served, id)).data == {"cancelPhotoUpload": True}
    assert await janitor(served).release_expired() == 0
    assert (await upload_count(served), files_of_gateway(served)) == (0, set())


async def test_only_the_uploader_cancels_an_upload_and_a_photo_cannot_be_cancelled(served: Served) -> None:
    await put_library_items(served, photo_user(EVE, uploadCount=1))
    id = await upload_original(served, jpeg())
    by_another = await cancel(served, id, EVE)
    before = await upload_count(served), files_of_gateway(served)
    await complete_photo(served, id)
    answers = [by_another, await cancel(served, id), await cancel(served, id, EVE)]

    assert [answer.data for answer in answers] == [{"cancelPhotoUpload": False}] * 3
    assert before == (1, {incoming_keys(id)[0]})
    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}
    assert (await upload_count(served), await upload_count(served, EVE)) == (1, 1)
    assert (await cancel(served, id, None)).codes == ["FORBIDDEN"]


@pytest.mark.usefixtures("late")
async def test_a_place_that_was_taken_late_can_be_cancelled_without_the_photo(served: Served) -> None:
    assert (await cancel(served, OWN_ID)).data == {"cancelPhotoUpload": True}

    assert (await upload_count(served), await items(served, "UPLOAD")) == (1, [])
    assert files_without_hashes(served) == {f"originals/{OWN_ID}.jpg", f"thumbnails/{OWN_ID}.jpg"}


async def test_files_written_during_a_cancellation_are_removed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancellation reads the upload, then a confirmation notes its files, writes them and fails."""
    id = await upload_original(served, jpeg())
    left_by = ReservationExpiry._files_to_delete

    async def slow(self: ReservationExpiry, image_id: str, item: Any) -> Any:
        found = await left_by(self, image_id, item)
        if not item.get("objectKeys"):
            assert (await complete_photo(served, id)).codes == ["INTERNAL"]
        return found

    def fail(*_: Any) -> None:
        raise RuntimeError("The confirmation fails.")

    monkeypatch.setattr(Uploads, "_confirm_actions", fail)
    monkeypatch.setattr(ReservationExpiry, "_files_to_delete", slow)

    assert (await cancel(served, id)).data == {"cancelPhotoUpload": True}
    assert (await upload_count(served), files_of_gateway(served), await library_items(served, "REMOVAL")) == (
        0,
        set(),
        [],
    )


async def test_files_written_while_an_upload_is_released_are_removed(
    served: Served, monkeypatch: pytest.MonkeyPatch, other_pictures: DecoderPool
) -> None:
    """The janitor reads the upload, then a confirmation, begun a second before the expiry, writes files and fails."""
    id = await upload_original(served, jpeg())
    left_by, before = ReservationExpiry._files_to_delete, served.clock.now + timedelta(minutes=59, seconds=59)
    late = Uploads(served.store(), served.gateway.objects, other_pictures, before, served.store)

    async def slow(self: ReservationExpiry, image_id: str, item: Any) -> Any:
        found = await left_by(self, image_id, item)
        if not item.get("objectKeys"):
            with pytest.raises(RuntimeError):
                await late.complete(id, ADA)
        return found

    def fail(*_: Any) -> None:
        raise RuntimeError("The confirmation fails.")

    monkeypatch.setattr(Uploads, "_confirm_actions", fail)
    monkeypatch.setattr(ReservationExpiry, "_files_to_delete", slow)
    served.clock.forward(hours=1)

    assert await janitor(served).release_expired() == 1
    assert (await upload_count(served), files_of_gateway(served), await library_items(served, "REMOVAL")) == (
        0,
        set(),
        [],
    )


async def test_files_written_after_a_cancellation_are_removed(
    served: Served, monkeypatch: pytest.MonkeyPatch, other_pictures: DecoderPool
) -> None:
    """The confirmation is cancelled, but its thread continues to write."""
    id = await upload_original(served, jpeg())
    began, going, write = threading.Event(), threading.Event(), LocalObjects._write

    def slow(self: LocalObjects, key: str, content: bytes, content_type: str) -> None:
        began.set()
        going.wait(10)
        write(self, key, content, content_type)

    monkeypatch.setattr(LocalObjects, "_write", slow)
    uploads = Uploads(served.store(), served.gateway.objects, other_pictures, served.clock.now, served.store)
    cut_off = asyncio.create_task(uploads.complete(id, ADA))
    await asyncio.to_thread(began.wait, 10)
    cut_off.cancel()
    await asyncio.gather(cut_off, return_exceptions=True)
    assert (await cancel(served, id)).data == {"cancelPhotoUpload": True}
    going.set()
    await asyncio.wait_for(asyncio.gather(*_cleanup_tasks), 50)

    assert (cut_off.cancelled(), files_of_gateway(served), await library_items(served, "REMOVAL")) == (True, set(), [])


async def test_either_a_cancellation_or_a_concurrent_confirmation_succeeds(served: Served) -> None:
    ids = [await upload_original(served, jpeg()) for _ in range(4)]
    outcomes = await asyncio.gather(*[do(served, id) for id in ids for do in (complete_photo, cancel)])

    for confirmed, cancelled in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert (confirmed.errors is None) != cancelled.data["cancelPhotoUpload"]
    photos = len(await items(served, "IMAGE"))
    assert (await upload_count(served), len(files_of_gateway(served)), await items(served, "UPLOAD")) == (
        photos,
        2 * photos,
        [],
    )


async def test_an_upload_that_is_confirmed_repeatedly_is_cancelled_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await upload_original(served, jpeg())

    async def conflict(*_: Any) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(ReservationExpiry, "_end", conflict)
        assert (await cancel(served, id)).codes == ["THROTTLED"]
    assert (await cancel(served, id)).data == {"cancelPhotoUpload": True}


async def test_a_confirmation_of_a_cancelled_upload_makes_no_photo_of_its_successor(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload_original(served, jpeg(), imageId=OWN_ID)
    confirming = Uploads._confirm

    async def late(self: Uploads, *given: Any) -> Any:
        assert (await cancel(served, OWN_ID)).data == {"cancelPhotoUpload": True}
        assert (await create_photo(served, imageId=OWN_ID)).errors is None
        return await confirming(self, *given)

    monkeypatch.setattr(Uploads, "_confirm", late)

    assert (await complete_photo(served, OWN_ID)).codes == ["NOT_FOUND"]
    assert (await upload_count(served), len(await items(served, "UPLOAD")), await items(served, "IMAGE")) == (1, 1, [])
    assert files_of_gateway(served) == set()


async def test_a_delayed_deletion_removes_no_files_of_a_recreated_photo(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new photo has the same id and picture. The files of the first photo are removed twice meanwhile."""
    await upload_original(served, jpeg(), imageId=OWN_ID)
    await complete_photo(served, OWN_ID)
    first = files_of_gateway(served)
    began, going = asyncio.Event(), asyncio.Event()
    delete = LocalObjects.delete

    async def slow(self: LocalObjects, object_keys: Any) -> None:
        if not began.is_set():
            began.set()
            await going.wait()
        await delete(self, object_keys)

    monkeypatch.setattr(LocalObjects, "delete", slow)
    late = asyncio.create_task(ask_library(served, DELETE, id=OWN_ID))
    await began.wait()
    await janitor(served).clean_up()
    await upload_original(served, jpeg(), imageId=OWN_ID)
    assert (await complete_photo(served, OWN_ID)).errors is None
    again = files_of_gateway(served)
    going.set()
    await late

    assert (files_of_gateway(served), len(again), first & again) == (again, 2, set())


async def test_a_delayed_confirmation_removes_no_files_of_a_recreated_photo(
    served: Served, monkeypatch: pytest.MonkeyPatch, other_pictures: DecoderPool
) -> None:
    """The other photo has the same id and picture, and is created after the check whether it exists."""
    await upload_original(served, jpeg(), imageId=OWN_ID)
    confirming, remove = Uploads._confirm, Uploads._remove

    async def late(self: Uploads, *given: Any) -> Any:
        monkeypatch.setattr(Uploads, "_confirm", confirming)
        assert (await cancel(served, OWN_ID)).data == {"cancelPhotoUpload": True}
        await upload_original(served, jpeg(), imageId=OWN_ID)
        monkeypatch.setattr(Uploads, "_remove", later)
        return await confirming(self, *given)

    async def later(self: Uploads, *given: Any) -> None:
        monkeypatch.setattr(Uploads, "_remove", remove)
        other = Uploads(served.store(), served.gateway.objects, other_pictures, served.clock.now, served.store)
        await other.complete(OWN_ID, ADA)
        await remove(self, *given)

    monkeypatch.setattr(Uploads, "_confirm", late)

    assert (await complete_photo(served, OWN_ID)).codes == []
    assert (len(await items(served, "IMAGE")), len(files_of_gateway(served))) == (1, 2)


async def test_an_expired_confirmation_leaves_its_files_to_the_reservation(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent confirmation by a process with a slower clock may still succeed."""
    await upload_original(served, jpeg(), imageId=OWN_ID)
    write = Uploads._confirm_actions

    def expired(self: Uploads, *given: Any) -> Any:
        delete, put = write(self, *given)
        return [replace(delete, values={**(delete.values or {}), "now": 2**40}), put]

    with monkeypatch.context() as late:
        late.setattr(Uploads, "_confirm_actions", expired)
        assert (await complete_photo(served, OWN_ID)).codes == ["NOT_FOUND"]
    assert files_without_hashes(served) >= {f"originals/{OWN_ID}.jpg", f"thumbnails/{OWN_ID}.jpg"}
    assert (await cancel(served, OWN_ID)).data == {"cancelPhotoUpload": True}
    assert files_of_gateway(served) == set()
