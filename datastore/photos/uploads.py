"""Uploads: places that are reserved for photos, and how an uploaded file becomes a photo.

A reservation lasts an hour. Its files go to `incoming/<imageId>/`, where their owner may replace them; a photo's files
are written by us, as they were checked, to where nobody can upload.
"""

import asyncio
import logging
from asyncio import Task
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.records import record
from datastore.errors import BadUserInput, Conflict, DomainError, NotFound, Throttled
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.timestamps import from_iso, iso
from datastore.objects import NO_CLAIMS, UPLOAD_LIFETIME, ObjectStore, UploadTarget
from datastore.photos.capture_time import taken_at
from datastore.photos.decoder_pool import DecoderPool
from datastore.photos.file_deletion_outbox import incoming
from datastore.photos.image_types import Picture, PictureType, RefusalReason, check_shape, refused
from datastore.photos.metadata import Facts
from datastore.photos.photos import Photo, photo_from, photo_item
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.photos.reservations import Reservation, as_kept, file_keys, reservation_from, reservation_item
from datastore.photos.upload_tokens import claims
from datastore.photos.users import UPLOAD_LIMIT, no_photo_user
from datastore.session.store import Store
from datastore.session.writes import Action

MOST_ORIGINAL_BYTES, MOST_THUMBNAIL_BYTES = 25 * 2**20, 512 * 2**10
ORIGINAL, THUMBNAIL = "original", "thumbnail"
# Reserving is begun anew when what stood in its way is gone: a count that was not kept, expired reservations.
TRIES = 5
# What a client may say of a photo, by its name in the API.
FIELDS = {
    "content_type": "contentType",
    "description": "description",
    "tags": "tags",
    "taken_at": "takenAt",
    "camera": "camera",
}

logger = logging.getLogger(__name__)
# What goes on when its caller has gone away; the loop itself keeps no hold of it.
_endings: set[Task[None]] = set()


@dataclass(frozen=True, slots=True)
class PhotoUpload:
    """A reservation, and where to upload its two files."""

    reservation: Reservation
    original: UploadTarget
    thumbnail: UploadTarget


@dataclass(frozen=True, slots=True)
class Checked:
    """A photo that is not in the library yet, and its files."""

    photo: Photo
    original: bytes
    thumbnail: bytes


class Uploads:
    """One method for each access pattern. What has expired by `now` counts as gone, whether or not it is released.

    `open_store` gives a store with time of its own, for what is still to be done when the caller has gone away.
    `keeps_metadata` tells whether originals are stored as they are uploaded, instead of without their metadata.
    """

    def __init__(
        self,
        store: Store,
        objects: ObjectStore,
        pictures: DecoderPool,
        now: datetime,
        open_store: Callable[[], Store],
        *,
        keeps_metadata: bool = False,
    ) -> None:
        self._store = store
        self._open_store = open_store
        self._objects = objects
        self._pictures = pictures
        self._now = now
        self._keeps_metadata = keeps_metadata
        self._releases = ReservationExpiry(store, objects, now)

    async def reserve(
        self,
        wanted: Reservation,
        *,
        chosen: bool,
        said: Collection[str] = (),
        uploader: Mapping[str, str] = NO_CLAIMS,
    ) -> PhotoUpload:
        """SPARKS-W1: take a place. One's own reservation of the same id is answered as it stands, with fresh URLs.

        `chosen`: whether the id is the client's own, and may have been used before. `said` names what the client said
        of the photo: the reservation there is must say the same. `uploader` is whose budget uploads are charged to
        (`upload_tokens.uploader_claims`).
        Raises `NotFound` for a user who has not entered the library, `Conflict` at their limit, for an id that is
        another's or a photo's and for a reservation that says something else, and what the object store raises when it
        takes no uploads.
        """
        wanted = as_kept(wanted)
        upload, user = await self._upload(wanted, uploader), None
        if chosen and await self._photo(wanted.image_id) is not None:
            raise _taken(wanted.image_id)
        for left in reversed(range(TRIES)):
            try:
                await self._store.transact(keys.CREATE_PHOTO, _reserving(wanted, chosen=chosen))
            except Throttled:
                # Others of the user's uploads come at the same time, and each changes the one count.
                if not left:
                    raise
            except TransactionCancelled as cancelled:
                user = cancelled.items[0] or user
                standing = await self._clear_the_way(wanted, cancelled)
                if standing is not None:
                    _check_same(wanted, standing, said)
                    return await self._upload(standing, uploader)
            else:
                return upload
        # An index that lags tells of reservations that were released already.
        raise _full(user or {}, retryable=True)

    async def _upload(self, reservation: Reservation, uploader: Mapping[str, str]) -> PhotoUpload:
        original, thumbnail = incoming(reservation.image_id)
        target = partial(self._target, reservation, claims(reservation) | dict(uploader))
        return PhotoUpload(
            reservation,
            await target(original, reservation.content_type, MOST_ORIGINAL_BYTES),
            await target(thumbnail, PictureType.JPEG, MOST_THUMBNAIL_BYTES),
        )

    async def _target(
        self, reservation: Reservation, claims: Mapping[str, str], key: str, content_type: PictureType, most: int
    ) -> UploadTarget:
        lifetime = min(UPLOAD_LIFETIME, reservation.expires_at - self._now)
        return await self._objects.upload(
            key, content_type=content_type.value, most_bytes=most, now=self._now, lifetime=lifetime, claims=claims
        )

    async def _clear_the_way(self, wanted: Reservation, cancelled: TransactionCancelled) -> Reservation | None:
        """The reservation that stands in the way and is the one that is wanted, or None: to try again.

        Raises what the caller is told when nothing can be done about what stands in the way.
        """
        user, place, *removal = [reason == "ConditionalCheckFailed" for reason in cancelled.reasons]
        there = record(reservation_from, cancelled.items[1]) if place else None
        if there is not None:
            return await self._standing(wanted, there)
        if any(removal):
            raise _leaving(wanted.image_id) from cancelled
        if not user:
            raise cancelled
        await self._make_room(wanted.email, cancelled.items[0])
        return None

    async def _standing(self, wanted: Reservation, there: Reservation) -> Reservation | None:
        if self._is_over(there):
            await self._releases.release(there.image_id)
            return None
        if there.email != wanted.email:
            raise _taken(wanted.image_id)
        return there

    def _is_over(self, reservation: Reservation) -> bool:
        return reservation.expires_at <= self._now

    async def _make_room(self, email: str, user: Mapping[str, Any] | None) -> None:
        """Do what lets a user take a place who could not. Raises `NotFound` and `Conflict` when nothing does."""
        if user is None:
            raise no_photo_user()
        if user.get("uploadCount") is None:
            await self._begin_counting(email)
        elif user.get("uploadLimit") is None:
            at = user_keys.user(email)
            await self._store.update(keys.SET_LIMIT, at, limit=UPLOAD_LIMIT, null="NULL")
        elif not await self._releases.of_user(email):
            raise _full(user)

    async def _begin_counting(self, email: str) -> None:
        """SPARKS-P1. Of several that count at once the first one's count holds."""
        count = await self._store.count(keys.COUNT_PHOTOS, {"partition": email, "prefix": photo_keys.PREFIX})
        at = user_keys.user(email)
        await self._store.update(keys.START_COUNT, at, count=count, limit=UPLOAD_LIMIT, null="NULL")

    async def cancel(self, image_id: str, email: str) -> bool:
        """SPARKS-W1: see `ReservationExpiry`."""
        return await self._releases.cancel(image_id, email)

    async def complete(self, image_id: str, email: str) -> Photo:
        """SPARKS-W1: make a photo of a reservation whose original was uploaded. One that is made already is answered.

        Raises `NotFound` without a reservation of the user's that is good, `BadUserInput` for what is wrong with the
        files: the reservation stays then, and they can be uploaded again.
        """
        item = await self._store.get(keys.COMPLETE_PHOTO, keys.upload(image_id))
        reservation = record(reservation_from, item)
        # Looked for in any case: an id that is a photo's by now may have been reserved again at the last moment.
        photo = await self._photo(image_id)
        if photo is not None and photo.email == email:
            if item is not None and reservation is not None and reservation.email == email:
                # The place that the id took again although its photo is there; else it would be held for an hour.
                await self._releases.give_up(image_id, item)
            else:
                # The first time may have been cut off before, and what was uploaded since is nobody's.
                await self._remove(image_id, incoming(image_id))
            return photo
        if photo is not None or reservation is None or reservation.email != email or self._is_over(reservation):
            raise no_upload()
        async with self._pictures.room(email):
            upload = await self._checked(reservation)
            known = None if upload is None else await self._keep(upload)
        if upload is None or known is None:
            return await self._confirmed_by_another(reservation)
        return await self._confirmed(upload.photo, known)

    async def _photo(self, image_id: str) -> Photo | None:
        values = {"partition": photo_keys.partition(image_id), "prefix": photo_keys.PREFIX}
        page = await self._store.query(photo_keys.PHOTO_CONSISTENT, values, limit=1)
        return record(photo_from, page.items[0] if page.items else None)

    async def _checked(self, reservation: Reservation) -> Checked | None:
        """What is uploaded, checked; None when it is gone, because others made the photo of it meanwhile."""
        at_original, at_thumbnail = incoming(reservation.image_id)
        original = await self._read(ORIGINAL, at_original, MOST_ORIGINAL_BYTES)
        if original is None:
            if await self._photo(reservation.image_id) is not None:
                return None
            raise refused(ORIGINAL, RefusalReason.NOT_UPLOADED, "has not been uploaded yet.")
        examine = partial(self._pictures.examine, whose=reservation.email)
        picture = await examine(ORIGINAL, original, reservation.content_type)
        small = await self._read(THUMBNAIL, at_thumbnail, MOST_THUMBNAIL_BYTES)
        given = small and await examine(THUMBNAIL, small, PictureType.JPEG)
        if given:
            check_shape(given, picture)
        thumbnail = given.thumbnail if given else picture.thumbnail
        stored = original if self._keeps_metadata else picture.content
        photo = self._with_facts(self._made(reservation, picture, stored, thumbnail), reservation, picture.facts)
        return Checked(photo, stored, thumbnail)

    async def _read(self, file: str, key: str, most_bytes: int) -> bytes | None:
        try:
            return await self._objects.read(key, most_bytes=most_bytes)
        except BadUserInput:
            raise refused(file, RefusalReason.TOO_LARGE, f"may have at most {most_bytes:,} bytes.") from None

    async def _keep(self, upload: Checked) -> set[str] | None:
        """Write the files of a photo to where they stay. What is written is what was checked, whatever is uploaded
        meanwhile, and each content has a key of its own: of several who confirm at once nobody writes over another's.

        The reservation knows the keys before, so that whoever ends it can remove the files. Answers all that it knows;
        None, and nothing is written, when there is no such reservation any more.
        """
        photo = upload.photo
        own = {photo.original_key, photo.thumbnail_key}
        written = await self._store.update(
            keys.COMPLETE_PHOTO, keys.upload(photo.image_id), keys=own, **self._open_values(photo.email)
        )
        if not written.ok or written.item is None:
            return None
        await self._write(upload)
        return set(written.item["objectKeys"])

    async def _write(self, upload: Checked) -> None:
        """A thread writes on when the caller has gone away; whoever ended the reservation may be done by then."""
        writing = asyncio.create_task(self._written(upload))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            ending = asyncio.create_task(self._end_writing(writing, upload.photo))
            _endings.add(ending)
            ending.add_done_callback(_endings.discard)
            raise

    async def _written(self, upload: Checked) -> None:
        photo = upload.photo
        await self._objects.write(photo.original_key, upload.original, content_type=photo.content_type or "")
        await self._objects.write(photo.thumbnail_key, upload.thumbnail, content_type=PictureType.JPEG.value)

    async def _end_writing(self, writing: Task[None], photo: Photo) -> None:
        await asyncio.gather(writing, return_exceptions=True)
        later = Uploads(self._open_store(), self._objects, self._pictures, self._now, self._open_store)
        try:
            await later._take_back(photo)
        except Exception as problem:  # there is nobody to be told
            logger.warning("Files of the upload %s may stay: %s", photo.image_id, type(problem).__name__)

    def _open_values(self, email: str) -> dict[str, Any]:
        """What `COMPLETE_PHOTO`'s condition compares with."""
        return {"me": email, "now": int(self._now.timestamp())}

    def _made(self, reservation: Reservation, picture: Picture, original: bytes, thumbnail: bytes) -> Photo:
        original_key, thumbnail_key = file_keys(reservation, original, thumbnail)
        return Photo(
            key=photo_keys.photo(reservation.image_id, photo_keys.sort_key_at(reservation.taken_at)),
            image_id=reservation.image_id,
            taken_at=reservation.taken_at,
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
            created_at=from_iso(iso(self._now)),
            revision=0,
        )

    def _with_facts(self, photo: Photo, reservation: Reservation, facts: Facts) -> Photo:
        moment = from_iso(iso(taken_at(reservation, facts, self._now)))
        return replace(
            photo,
            key=photo_keys.photo(photo.image_id, photo_keys.sort_key_at(moment)),
            taken_at=moment,
            camera=reservation.camera or facts.camera,
            keeps_metadata=self._keeps_metadata,
        )

    async def _confirmed(self, photo: Photo, known: set[str]) -> Photo:
        """`known` are the files that the reservation knows. Those of other tries are nobody's from now on.

        Raises `Throttled` when others try again and again meanwhile.
        """
        for _ in range(TRIES):
            try:
                await self._store.transact(keys.COMPLETE_PHOTO, self._confirming(photo, known))
            except TransactionCancelled as cancelled:
                if "ConditionalCheckFailed" not in cancelled.reasons:
                    raise
                now_known = set((cancelled.items[0] or {}).get("objectKeys") or ())
                if photo.original_key not in now_known or now_known == known:
                    return await self._confirmed_by_another(photo)
                known = now_known
            else:
                others = known - {photo.original_key, photo.thumbnail_key}
                await self._remove(photo.image_id, [*incoming(photo.image_id), *others])
                return photo
        raise Throttled("The upload is being confirmed by others at the same time; try again.")

    async def _remove(self, image_id: str, object_keys: Collection[str]) -> None:
        """Whoever waits for something else is not told when files stay."""
        try:
            await self._objects.delete(object_keys)
        except DomainError as problem:
            logger.warning("Files of the upload %s could not be removed: %s", image_id, problem)

    def _confirming(self, photo: Photo, known: set[str]) -> list[Action]:
        values = self._open_values(photo.email) | {"known": known}
        condition = f"{keys.COMPLETE_PHOTO.condition} AND {keys.SAME_OBJECTS}"
        return [
            Action("Delete", key=keys.upload(photo.image_id), condition=condition, values=values),
            Action("Put", item=photo_item(photo), condition=keys.NOT_EXISTS),
        ]

    async def _confirmed_by_another(self, wanted: Photo | Reservation) -> Photo:
        """Of two that confirm at once the second answers the first one's photo."""
        if isinstance(wanted, Photo):
            await self._take_back(wanted)
        there = await self._photo(wanted.image_id)
        if there is None or there.email != wanted.email:
            raise no_upload()
        return there

    async def _take_back(self, photo: Photo) -> None:
        """Remove the files of a photo that is not made: its reservation may have been released, and its files removed,
        before these were written. A reservation that knows them still looks after them, and others may confirm it.
        """
        reservation = await self._store.get(keys.COMPLETE_PHOTO, keys.upload(photo.image_id)) or {}
        # Read after it: where it is gone, whether these are the files of what came of it is decided.
        there = await self._photo(photo.image_id)
        shown = (there.original_key, there.thumbnail_key) if there else ()
        own = {photo.original_key, photo.thumbnail_key}
        await self._remove(photo.image_id, own.difference(shown, reservation.get("objectKeys") or ()))


def _reserving(reservation: Reservation, *, chosen: bool) -> list[Action]:
    count = Action(
        "Update",
        key=user_keys.user(reservation.email),
        update=keys.CREATE_PHOTO.update,
        condition=keys.CREATE_PHOTO.condition,
        values={"one": 1},
    )
    place = Action("Put", item=reservation_item(reservation), condition=keys.NOT_EXISTS)
    # The files of an earlier photo or upload with this id may be about to be removed.
    removal = Action("ConditionCheck", key=keys.outbox_entry(reservation.image_id), condition=keys.NOT_EXISTS)
    return [count, place, removal] if chosen else [count, place]


def no_upload() -> NotFound:
    return NotFound("There is no such upload, or it has expired: createPhoto comes first.")


def _check_same(wanted: Reservation, there: Reservation, said: Collection[str]) -> None:
    for name in said:
        if getattr(wanted, name) != getattr(there, name):
            field = FIELDS[name]
            raise Conflict(f"The upload {there.image_id} is reserved with another `{field}`.", field=field)


def _taken(image_id: str) -> Conflict:
    return Conflict(f"The id {image_id!r} is taken.")


def _leaving(image_id: str) -> Conflict:
    return Conflict(f"The files of an earlier upload {image_id!r} are being removed; try again later.", retryable=True)


def _full(user: Mapping[str, Any], **details: Any) -> Conflict:
    limit = UPLOAD_LIMIT if user.get("uploadLimit") is None else int(user["uploadLimit"])
    photos = "1 photo" if limit == 1 else f"{limit} photos"
    return Conflict(f"You may have at most {photos}, uploads on their way included.", limit=limit, **details)
