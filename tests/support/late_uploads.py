"""Uploads whose confirmation is late, and notes of files to delete."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from datastore.model.ids import uuid7
from datastore.photos import upload_reservations
from datastore.photos.decoder import DecoderPool
from datastore.photos.photos import photo_with_id
from datastore.session.store import Store
from tests.support.pictures import jpeg
from tests.support.served import NOON, Served
from tests.support.upload_forms import complete_photo, create_photo, upload_count
from tests.support.upload_steps import items, upload_original

OWN_ID = uuid7(NOON, "a client's own")


@pytest.fixture
async def other_pictures() -> AsyncIterator[DecoderPool]:
    """Yield the decoder pool of another gateway."""
    other = DecoderPool()
    yield other
    await other.aclose()


@pytest.fixture
async def late(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserve the id of a photo twice: the repeat looks for a photo before the first upload is confirmed, and takes a
    place after it.
    """
    await upload_original(served, jpeg(), imageId=OWN_ID)
    looked, confirmed = asyncio.Event(), asyncio.Event()
    look = photo_with_id

    async def slow(store: Store, image_id: str) -> Any:
        found = await look(store, image_id)
        if not looked.is_set():
            looked.set()
            await confirmed.wait()
        return found

    monkeypatch.setattr(upload_reservations, "photo_with_id", slow)
    late = asyncio.create_task(create_photo(served, imageId=OWN_ID))
    await looked.wait()
    assert (await complete_photo(served, OWN_ID)).errors is None
    confirmed.set()
    assert (await late).errors is None
    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (2, 1)
