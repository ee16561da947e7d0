"""Completion of uploads: checks the uploaded files of a reservation, and turns them into a photo.

A reservation lasts an hour. Its files are uploaded to `incoming/<imageId>/`, where their owner may replace them. The
gateway writes the checked files of a photo under keys to which no client can upload.
"""

import asyncio
import logging
from asyncio import Task
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.records import record
from datastore.errors import BadUserInput, DomainError, NotFound, Throttled
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.model.timestamps import from_iso, iso
from datastore.objects import ObjectStore
from datastore.photos.decoder import DecoderPool
from datastore.photos.file_deletion_outbox import incoming_keys
from datastore.photos.image_types import Picture, PictureType, RefusalReason, check_shape, refusal
from datastore.photos.photos import Photo, photo_with_id
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.photos.reservations import Reservation, file_keys, taken_at
from datastore.photos.upload_reservations import MAX_ORIGINAL_BYTES, MAX_THUMBNAIL_BYTES
from datastore.session.store import Store
from datastore.session.writes import Action

ORIGINAL, THUMBNAIL = "original", "thumbnail"
# Attempts to confirm an upload to which other requests add files meanwhile.
ATTEMPTS = 5

logger = logging.getLogger(__name__)
# Tasks that continue after their caller was cancelled. The event loop itself keeps only weak references.
_cleanup_tasks: set[Task[None]] = set()


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A photo that is not stored yet, and its files."""

    photo: Photo
    original: bytes
    thumbnail: bytes


@dataclass(frozen=True, slots=True)
class Uploads:
    """One method for each access pattern. A reservation that has expired at `now` counts as deleted.

    `open_store` opens a store with its own deadline for the cleanup after a cancelled call. With `keeps_metadata`
    originals are stored with their metadata.
    """

    store: Store
    objects: ObjectStore
    pictures: DecoderPool
    now: datetime
    open_store: Callable[[], Store]
    keeps_metadata: bool = False

    async def complete(self, image_id: str, email: str) -> Photo:
        """SPARKS-W1: create the photo of a reservation from its uploaded files. Return an existing photo of the id.

        Raises `NotFound` if the user has no such reservation, `BadUserInput` for a fault in the files: then the
        reservation remains, and they can be uploaded again.
        """
        item = await self.store.get(keys.COMPLETE_PHOTO, keys.upload(image_id))
        reservation = record(Reservation.decoder, item)
        # Read in any case: the id of an existing photo may have been reserved again by a late repetition.
        photo = await photo_with_id(self.store, image_id)
        is_own = reservation is not None and reservation.email == email
        if photo is not None and photo.email == email:
            if item is not None and is_own:
                # Release the second reservation now, which would count for an hour.
                await ReservationExpiry(self.store, self.objects, self.now).cancel_unchanged(image_id, item)
            else:
                # An earlier call may have been interrupted before it deleted the uploaded files.
                await self._remove(image_id, incoming_keys(image_id))
            return photo
        if photo is not None or reservation is None or not is_own or reservation.expires_at <= self.now:
            raise no_upload()
        async with self.pictures.file_slot(email):
            upload = await self._check(reservation)
            object_keys = None if upload is None else await self._store_files(upload)
        if upload is None or object_keys is None:
            return await self._photo_of_other_request(reservation)
        return await self._confirm(upload.photo, object_keys)

    async def _check(self, reservation: Reservation) -> CheckedUpload | None:
        """Read and check the uploaded files; None if another request created the photo and deleted them."""
        original_key, thumbnail_key = incoming_keys(reservation.image_id)
        original = await self._read(ORIGINAL, original_key, MAX_ORIGINAL_BYTES)
        if original is None:
            if await photo_with_id(self.store, reservation.image_id) is not None:
                return None
            raise refusal(ORIGINAL, RefusalReason.NOT_UPLOADED, "has not been uploaded yet.")
        examine = partial(self.pictures.examine, user=reservation.email)
        picture = await examine(ORIGINAL, original, reservation.content_type)
        uploaded = await self._read(THUMBNAIL, thumbnail_key, MAX_THUMBNAIL_BYTES)
        small = uploaded and await examine(THUMBNAIL, uploaded, PictureType.JPEG)
        if small:
            check_shape(small, picture)
        thumbnail = small.thumbnail if small else picture.thumbnail
        stored = original if self.keeps_metadata else picture.content
        return CheckedUpload(self._new_photo(reservation, picture, stored, thumbnail), stored, thumbnail)

    async def _read(self, file: str, key: str, max_bytes: int) -> bytes | None:
        try:
            return await self.objects.read(key, max_bytes=max_bytes)
        except BadUserInput:
            raise refusal(file, RefusalReason.TOO_LARGE, f"may have at most {max_bytes:,} bytes.") from None

    async def _store_files(self, upload: CheckedUpload) -> set[str] | None:
        """Write the checked files of a photo. Return all file keys of the reservation; None if it no longer exists.

        Each content has its own key, so that concurrent confirmations do not overwrite each other's files. The keys are
        added to the reservation first, so that the process that ends it can delete the files.
        """
        photo = upload.photo
        own = {photo.original_key, photo.thumbnail_key}
        written = await self.store.update(
            keys.COMPLETE_PHOTO, keys.upload(photo.image_id), keys=own, **self._condition_values(photo.email)
        )
        if not written.ok or written.item is None:
            return None
        await self._write(upload)
        return set(written.item["objectKeys"])

    async def _write(self, upload: CheckedUpload) -> None:
        """Write the files. If the caller is cancelled, clean up after the writes, which continue in their threads."""
        writing = asyncio.create_task(self._write_both(upload))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            cleanup = asyncio.create_task(self._clean_up(writing, upload.photo))
            _cleanup_tasks.add(cleanup)
            cleanup.add_done_callback(_cleanup_tasks.discard)
            raise

    async def _write_both(self, upload: CheckedUpload) -> None:
        photo = upload.photo
        await self.objects.write(photo.original_key, upload.original, content_type=photo.content_type or "")
        await self.objects.write(photo.thumbnail_key, upload.thumbnail, content_type=PictureType.JPEG.value)

    async def _clean_up(self, writing: Task[None], photo: Photo) -> None:
        await asyncio.gather(writing, return_exceptions=True)
        uploads = Uploads(self.open_store(), self.objects, self.pictures, self.now, self.open_store)
        try:
            await uploads._remove_unused_files(photo)
        except Exception as problem:  # the caller was cancelled: no caller receives the error
            logger.warning("Files of the upload %s may remain: %s", photo.image_id, type(problem).__name__)

    def _condition_values(self, email: str) -> dict[str, Any]:
        """Return the values of `COMPLETE_PHOTO`'s condition."""
        return {"me": email, "now": int(self.now.timestamp())}

    def _new_photo(self, reservation: Reservation, picture: Picture, original: bytes, thumbnail: bytes) -> Photo:
        original_key, thumbnail_key = file_keys(reservation, original, thumbnail)
        moment = from_iso(iso(taken_at(reservation, picture.facts, self.now)))
        return Photo(
            key=photo_keys.photo(reservation.image_id, photo_keys.sort_key_at(moment)),
            image_id=reservation.image_id,
            taken_at=moment,
            email=reservation.email,
            original_key=original_key,
            thumbnail_key=thumbnail_key,
            description=reservation.description,
            tags=reservation.tags,
            person_ids=(),
            person_names={},
            faces=(),
            content_type=reservation.content_type.value,
            size=len(original),
            width=picture.width,
            height=picture.height,
            created_at=from_iso(iso(self.now)),
            revision=0,
            camera=reservation.camera or picture.facts.camera,
            keeps_metadata=self.keeps_metadata,
        )

    async def _confirm(self, photo: Photo, object_keys: set[str]) -> Photo:
        """Replace the reservation, with its file keys `object_keys`, by the photo. Delete the files of other attempts.

        Raises `Throttled` if other requests add files at each attempt.
        """
        for _ in range(ATTEMPTS):
            try:
                await self.store.transact(keys.COMPLETE_PHOTO, self._confirm_actions(photo, object_keys))
            except TransactionCancelled as cancelled:
                if "ConditionalCheckFailed" not in cancelled.reasons:
                    raise
                stored = set((cancelled.items[0] or {}).get("objectKeys") or ())
                if photo.original_key not in stored or stored == object_keys:
                    return await self._photo_of_other_request(photo)
                object_keys = stored
            else:
                others = object_keys - {photo.original_key, photo.thumbnail_key}
                await self._remove(photo.image_id, [*incoming_keys(photo.image_id), *others])
                return photo
        raise Throttled("Other requests are confirming the upload at the same time; try again.")

    async def _remove(self, image_id: str, object_keys: Collection[str]) -> None:
        """Delete files. A failure is logged: it does not fail the caller's request."""
        try:
            await self.objects.delete(object_keys)
        except DomainError as problem:
            logger.warning("Files of the upload %s could not be deleted: %s", image_id, problem)

    def _confirm_actions(self, photo: Photo, object_keys: set[str]) -> list[Action]:
        values = self._condition_values(photo.email) | {"known": object_keys}
        condition = f"{keys.COMPLETE_PHOTO.condition} AND {keys.SAME_OBJECTS}"
        return [
            Action("Delete", key=keys.upload(photo.image_id), condition=condition, values=values),
            Action("Put", item=photo.item(), condition=keys.NOT_EXISTS),
        ]

    async def _photo_of_other_request(self, upload: Photo | Reservation) -> Photo:
        """Return the photo that a concurrent request created from the reservation. Raises `NotFound` if there is none.

        Deletes the unused files of this request.
        """
        if isinstance(upload, Photo):
            await self._remove_unused_files(upload)
        stored = await photo_with_id(self.store, upload.image_id)
        if stored is None or stored.email != upload.email:
            raise no_upload()
        return stored

    async def _remove_unused_files(self, photo: Photo) -> None:
        """Delete the files of a photo that was not created, unless its reservation or another photo has them.

        The files may have been written after the reservation was released and its files were deleted.
        """
        reservation = await self.store.get(keys.COMPLETE_PHOTO, keys.upload(photo.image_id)) or {}
        # Read after the reservation: once that is deleted, the files of the photo no longer change.
        stored = await photo_with_id(self.store, photo.image_id)
        used = (stored.original_key, stored.thumbnail_key) if stored else ()
        own = {photo.original_key, photo.thumbnail_key}
        await self._remove(photo.image_id, own.difference(used, reservation.get("objectKeys") or ()))


def no_upload() -> NotFound:
    return NotFound("There is no such upload, or it has expired: createPhoto comes first.")
