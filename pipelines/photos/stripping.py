"""Removes the metadata from the files of photos that were stored with it, page by page.

A file is replaced under its own key by one atomic write. The photo is marked before, so that other users cannot
download the original, and unmarked after. A killed run leaves a photo that the next run completes: each step is
idempotent. The run stores a checkpoint after each page, from which the next run continues.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record_or_error
from datastore.errors import BadUserInput, Internal
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos import stripping as keys
from datastore.objects import ObjectStore
from datastore.photos.metadata import Damaged, Separated, content_type, separate
from datastore.photos.photos import Photo
from datastore.photos.upload_reservations import MAX_ORIGINAL_BYTES
from datastore.primitives.tasks import gather_all
from datastore.session.store import Store

PAGE = 100
# Each photo takes the memory of a file of up to 25 MB, and of a copy without its metadata.
CONCURRENCY = 4

logger = logging.getLogger(__name__)


class StrippingOutcome(StrEnum):
    """The outcome for the files of a photo."""

    STRIPPED = "stripped"
    CLEAN = "clean"
    MISSING = "missing"
    UNREADABLE = "unreadable"


# The outcome of a photo is the first of these that one of its two files has.
BY_SEVERITY = (StrippingOutcome.UNREADABLE, StrippingOutcome.MISSING, StrippingOutcome.STRIPPED, StrippingOutcome.CLEAN)


class _File(NamedTuple):
    """The outcome for a file, and the file without its metadata if it can be read."""

    outcome: StrippingOutcome
    bare: Separated | None = None


@dataclass(slots=True)
class StrippingSummary:
    """The number of photos by outcome. `earlier` counts the photos of the interrupted run that this one continues."""

    earlier: int = 0
    stripped: int = 0
    clean: int = 0
    missing: int = 0
    unreadable: int = 0

    @property
    def photos(self) -> int:
        """The number of photos that this run has processed."""
        return self.stripped + self.clean + self.missing + self.unreadable

    def count(self, outcome: StrippingOutcome) -> None:
        """Count a photo."""
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)


@dataclass(frozen=True, slots=True)
class Stripping:
    """A run over all photos. With `dry_run` it counts, and changes nothing."""

    #: Opens a store for each piece of work.
    open_store: Callable[[], Store]
    objects: ObjectStore
    page: int = PAGE
    dry_run: bool = False

    async def run(
        self, report: Callable[[StrippingSummary], None], *, from_the_start: bool = False
    ) -> StrippingSummary:
        """Remove the metadata from all photos after the checkpoint; call `report` after each page.

        Raises the stores' errors. The next run continues after the last page.
        """
        start, summary = None, StrippingSummary()
        if not (self.dry_run or from_the_start):
            start, summary.earlier = await self._checkpoint()
        while True:
            values = {"partition": library.TYPE}
            page = await self.open_store().query(keys.STORED_PHOTOS, values, start=start, limit=self.page)
            for index in range(0, len(page.items), CONCURRENCY):
                for outcome in await gather_all(map(self._strip_item, page.items[index : index + CONCURRENCY])):
                    summary.count(outcome)
            start = page.next_start
            if not self.dry_run:
                await self._save_checkpoint(start, summary)
            report(summary)
            if start is None:
                return summary

    async def _checkpoint(self) -> tuple[Item | None, int]:
        item = await self.open_store().get(keys.STRIP_PROGRESS, keys.checkpoint())
        return (None, 0) if item is None else (item["after"], int(item["photos"]))

    async def _save_checkpoint(self, start: Item | None, summary: StrippingSummary) -> None:
        if start is None:
            await self.open_store().delete(keys.END_STRIP_PROGRESS, keys.checkpoint())
            return
        item = keys.checkpoint.item() | {"after": start, "photos": summary.earlier + summary.photos}
        await self.open_store().put(keys.SAVE_STRIP_PROGRESS, item)

    async def _strip_item(self, item: Item) -> StrippingOutcome:
        photo = record_or_error(Photo.decoder, item)
        return StrippingOutcome.UNREADABLE if isinstance(photo, Internal) else await self._strip(photo)

    async def _strip(self, photo: Photo) -> StrippingOutcome:
        original, thumbnail = [await self._separated(key) for key in (photo.original_key, photo.thumbnail_key)]
        if not self.dry_run:
            files = {photo.original_key: original, photo.thumbnail_key: thumbnail}
            bare = {
                key: file.bare for key, file in files.items() if file.outcome is StrippingOutcome.STRIPPED and file.bare
            }
            await self._change(photo, _described(photo, original), bare)
        outcome = next(outcome for outcome in BY_SEVERITY if outcome in (original.outcome, thumbnail.outcome))
        if outcome in (StrippingOutcome.MISSING, StrippingOutcome.UNREADABLE):
            logger.warning("Photo %s: a file is %s.", photo.image_id, outcome)
        return outcome

    async def _change(self, photo: Photo, after: Photo, files: Mapping[str, Separated]) -> None:
        """Replace files by those without metadata, and describe the new original."""
        if files:
            if not await self._describe(replace(after, keeps_metadata=True)):
                return  # the photo was deleted meanwhile
            for key, bare in files.items():
                await self.objects.write(key, bare.content, content_type=content_type(bare.content))
        elif after == photo:
            return
        if not await self._describe(after) and files:
            await self.objects.delete(files.keys())  # the photo may have been deleted before this write

    async def _separated(self, key: str) -> _File:
        try:
            content = await self.objects.read(key, max_bytes=MAX_ORIGINAL_BYTES)
            if content is None:
                return _File(StrippingOutcome.MISSING)
            bare = await asyncio.to_thread(separate, content)
        except (BadUserInput, Damaged):  # the file is too large, or has another format
            return _File(StrippingOutcome.UNREADABLE)
        return _File(StrippingOutcome.CLEAN if bare.content == content else StrippingOutcome.STRIPPED, bare)

    async def _describe(self, photo: Photo) -> bool:
        """Write the description of the photo's original. Return False if the photo was deleted."""
        file = photo.item().get("file", {})
        store = self.open_store()
        return (await store.update(keys.DESCRIBE_FILE, photo.key, file=file, original=photo.original_key)).ok


def _described(photo: Photo, original: _File) -> Photo:
    """Return the photo after the removal of the metadata from its original.

    An unreadable original may contain metadata: only its owner and administrators may download it.
    """
    if original.outcome is StrippingOutcome.MISSING:
        return photo
    if original.bare is None:
        return replace(photo, keeps_metadata=True)
    if original.outcome is StrippingOutcome.CLEAN and photo.size is None:
        return replace(photo, keeps_metadata=False)
    camera = photo.camera or original.bare.facts.camera
    return replace(photo, size=len(original.bare.content), camera=camera, keeps_metadata=False)
