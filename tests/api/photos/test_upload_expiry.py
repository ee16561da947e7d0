"""Expired reservations are released once, with their files, also during concurrent confirmations."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from datastore.errors import Unavailable
from datastore.keyspace.photos import table
from datastore.keyspace.photos import users as user_keys
from datastore.model.ids import uuid7
from datastore.photos.reservation_expiry import ReservationExpiry
from tests.support.photo_items import ADA, EVE, photo_user, put_library_items
from tests.support.pictures import jpeg
from tests.support.served import NOON, Served
from tests.support.upload_forms import complete_photo, create_photo, upload_count
from tests.support.upload_steps import files_of_gateway, files_without_hashes, items, janitor, reserved, upload_original

OWN_ID = uuid7(NOON, "a client's own")


@pytest.fixture(autouse=True)
async def ada(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=10))


async def test_an_expired_reservation_is_invalid_before_it_is_released(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=9, uploadLimit=10))
    id = await upload_original(served, jpeg())
    full = await create_photo(served)
    served.clock.forward(hours=1)
    late = await complete_photo(served, id)
    answers = await asyncio.gather(*[create_photo(served) for _ in range(3)])

    assert (full.codes, late.codes) == (["CONFLICT"], ["NOT_FOUND"])
    assert sorted(str(answer.codes) for answer in answers) == ["['CONFLICT']", "['CONFLICT']", "[]"]
    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (10, 1)
    assert (len(files_of_gateway(served)), len(await items(served, "REMOVAL"))) == (1, 1)  # removed in the background
    await janitor(served).clean_up()
    assert (files_of_gateway(served), await items(served, "REMOVAL")) == (set(), [])


async def test_the_id_of_an_expired_reservation_can_be_reserved_again(served: Served) -> None:
    await upload_original(served, jpeg(), imageId=OWN_ID)
    served.clock.forward(minutes=61)
    await put_library_items(served, photo_user(EVE, uploadCount=0))

    again = await reserved(served, EVE, imageId=OWN_ID)

    assert again["expiresAt"] == "2026-06-25T14:01:00.000Z"
    assert (await upload_count(served), await upload_count(served, EVE)) == (0, 1)


async def test_concurrent_releases_give_a_place_back_once(served: Served) -> None:
    kept, *gone = [await upload_original(served, jpeg()) for _ in range(3)]
    await complete_photo(served, kept)
    young = await reserved(served, imageId=uuid7(NOON + timedelta(minutes=4), "young"))
    early = await janitor(served).release_expired()
    served.clock.forward(minutes=60, seconds=-1)
    still_early = await janitor(served).release_expired()
    served.clock.forward(seconds=1)
    released = await asyncio.gather(*[janitor(served).release_expired() for _ in range(4)])

    assert (early, still_early, sum(released)) == (0, 0, 3)
    assert await upload_count(served) == 1
    assert (await items(served, "UPLOAD"), await items(served, "REMOVAL")) == ([], [])
    assert files_without_hashes(served) == {f"originals/{kept}.jpg", f"thumbnails/{kept}.jpg"}
    assert [(await complete_photo(served, id)).codes for id in [*gone, young["imageId"]]] == [["NOT_FOUND"]] * 3


async def test_files_that_cannot_be_removed_are_removed_later(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await upload_original(served, jpeg())
    served.clock.forward(hours=2)

    async def fails(_keys: Any) -> None:
        raise Unavailable("The disk is away.")

    with monkeypatch.context() as patched:
        patched.setattr(served.gateway.objects, "delete", fails)
        assert await janitor(served).release_expired() == 1
    assert (await upload_count(served), len(files_of_gateway(served)), len(await items(served, "REMOVAL"))) == (0, 1, 1)
    await janitor(served).clean_up()

    assert (files_of_gateway(served), await items(served, "REMOVAL")) == (set(), [])


async def test_a_reservation_of_a_deleted_user_is_released_too(served: Served) -> None:
    await reserved(served)
    await served.store().write_all(table.SPARKS, deletes=[user_keys.user(ADA)])
    served.clock.forward(hours=2)

    assert await janitor(served).release_expired() == 1
    assert (await upload_count(served), await items(served, "UPLOAD")) == (None, [])


async def test_a_reservation_that_is_released_during_its_confirmation_leaves_no_photo_and_no_files(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await upload_original(served, jpeg())
    write = served.gateway.objects.write

    async def write_late(key: str, content: bytes, *, content_type: str) -> None:
        await write(key, content, content_type=content_type)
        releases = ReservationExpiry(served.store(), served.gateway.objects, served.clock.now + timedelta(hours=1))
        await releases.release(id)

    monkeypatch.setattr(served.gateway.objects, "write", write_late)

    assert (await complete_photo(served, id)).codes == ["NOT_FOUND"]
    assert (await upload_count(served), await items(served, "IMAGE"), files_of_gateway(served)) == (0, [], set())
