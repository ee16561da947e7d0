"""Uploads: places that are reserved for photos, and how an uploaded file becomes a photo.

A reservation lasts an hour. Its files go to `incoming/<imageId>/`, where their owner may replace them; a photo's files
are written by us, as they were checked, to where nobody can upload.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.attributes import Item
from datastore.client import TransactionCancelled
from datastore.errors import BadUserInput, Conflict, DomainError, NotFound, Throttled
from datastore.keyspace.parts import Key
from datastore.keyspace.photos import library as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.keyspace.photos.table import SPARKS
from datastore.moments import from_iso, from_seconds, iso, to_seconds
from datastore.objects import ObjectStore, UploadTarget
from datastore.photos.library import Photo, photo_from, photo_item
from datastore.photos.pictures import Picture, Pictures, PictureType
from datastore.photos.releases import Releases, incoming, kept
from datastore.photos.users import UPLOAD_LIMIT, no_photo_user
from datastore.records import record
from datastore.store import Action, Store

MOST_ORIGINAL_BYTES, MOST_THUMBNAIL_BYTES = 25 * 2**20, 512 * 2**10
# Reserving is begun anew when what stood in its way is gone: a count that was not kept, expired reservations.
TRIES = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place that is taken by a photo that is not uploaded yet, and what the photo will be."""

    image_id: str
    email: str
    content_type: PictureType
    description: str | None
    tags: tuple[str, ...]
    taken_at: datetime
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PhotoUpload:
    """A reservation, and where to upload its two files."""

    reservation: Reservation
    original: UploadTarget
    thumbnail: UploadTarget


def reservation_from(item: Mapping[str, Any]) -> Reservation:
    return Reservation(
        image_id=keys.upload_parts(Key(item["PK"], item["SK"])),
        email=item["email"],
        content_type=PictureType(item["contentType"]),
        description=item.get("description"),
        tags=tuple(item.get("tags", ())),
        taken_at=from_iso(item["takenAt"]),
        created_at=from_iso(item["createdAt"]),
        expires_at=from_seconds(item["expires"]),
    )


def _reservation_item(reservation: Reservation) -> Item:
    key = keys.upload(reservation.image_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "email": reservation.email,
        "imageId": reservation.image_id,
        "contentType": reservation.content_type.value,
        "description": reservation.description,
        "tags": list(reservation.tags),
        "takenAt": iso(reservation.taken_at),
        "createdAt": iso(reservation.created_at),
        "expires": to_seconds(reservation.expires_at),
    }
    return {name: value for name, value in item.items() if value is not None}


class Uploads:
    """One method for each access pattern. What has expired by `now` counts as gone, whether or not it is released."""

    def __init__(self, store: Store, objects: ObjectStore, pictures: Pictures, now: datetime) -> None:
        self._store = store
        self._objects = objects
        self._pictures = pictures
        self._now = now
        self._releases = Releases(store, objects, now)

    async def reserve(self, wanted: Reservation, *, chosen: bool) -> PhotoUpload:
        """SPARKS-W1: take a place. One's own reservation of the same id is answered as it stands, with fresh URLs.

        `chosen`: whether the id is the client's own, and may have been used before.
        Raises `NotFound` for a user who has not entered the library, `Conflict` at their limit and for an id that is
        another's or a photo's, and what the object store raises when it takes no uploads.
        """
        upload = await self._upload(wanted)
        if chosen and await self._photo(wanted.image_id) is not None:
            raise _taken(wanted.image_id)
        for left in reversed(range(TRIES)):
            try:
                await self._store.transact(SPARKS, _reserving(wanted, chosen=chosen))
            except Throttled:
                # Others of the user's uploads come at the same time, and each changes the one count.
                if not left:
                    raise
            except TransactionCancelled as cancelled:
                standing = await self._clear_the_way(wanted, cancelled)
                if standing is not None:
                    return await self._upload(standing)
            else:
                return upload
        raise Conflict("The same is being changed by others; try again in a moment.")

    async def _upload(self, reservation: Reservation) -> PhotoUpload:
        original, thumbnail = incoming(reservation.image_id)
        return PhotoUpload(
            reservation,
            await self._target(original, reservation.content_type, MOST_ORIGINAL_BYTES),
            await self._target(thumbnail, PictureType.JPEG, MOST_THUMBNAIL_BYTES),
        )

    async def _target(self, key: str, content_type: PictureType, most: int) -> UploadTarget:
        return await self._objects.upload(key, content_type=content_type.value, most_bytes=most, now=self._now)

    async def _clear_the_way(self, wanted: Reservation, cancelled: TransactionCancelled) -> Reservation | None:
        """The reservation that stands in the way and is the one that is wanted, or None: to try again.

        Raises what the caller is told when nothing can be done about what stands in the way.
        """
        user, place, *removal = [reason == "ConditionalCheckFailed" for reason in cancelled.reasons]
        there = record(reservation_from, cancelled.items[1]) if place else None
        if there is not None:
            return await self._standing(wanted, there)
        if any(removal):
            raise _taken(wanted.image_id) from cancelled
        if not user:
            raise cancelled
        await self._make_room(wanted.email, cancelled.items[0])
        return None

    async def _standing(self, wanted: Reservation, there: Reservation) -> Reservation | None:
        if self._is_over(there):
            await self._releases.release(there.image_id, there.email)
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
        if "uploadCount" not in user:
            await self._begin_counting(email)
        elif not await self._releases.of_user(email):
            limit = int(user.get("uploadLimit", UPLOAD_LIMIT))
            raise Conflict(f"You may have at most {limit} photos, uploads on their way included.")

    async def _begin_counting(self, email: str) -> None:
        """SPARKS-P1. Of several that count at once the first one's count holds."""
        count = await self._store.count(keys.COUNT_PHOTOS, {"partition": email, "prefix": photo_keys.PREFIX})
        await self._store.update(keys.BEGIN_COUNTING, user_keys.user(email), count=count, limit=UPLOAD_LIMIT)

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
            return photo
        if photo is not None or reservation is None or reservation.email != email or self._is_over(reservation):
            raise no_upload()
        async with self._pictures.room():
            photo = await self._checked(reservation)
        return await self._confirmed(photo)

    async def _photo(self, image_id: str) -> Photo | None:
        values = {"partition": photo_keys.partition(image_id), "prefix": photo_keys.PREFIX}
        page = await self._store.query(photo_keys.PHOTO_NOW, values, limit=1)
        return record(photo_from, page.items[0] if page.items else None)

    async def _checked(self, reservation: Reservation) -> Photo:
        """The photo, its files where they stay. What is written is what was checked, whatever is uploaded meanwhile."""
        at_original, at_thumbnail = incoming(reservation.image_id)
        original = await self._objects.read(at_original, most_bytes=MOST_ORIGINAL_BYTES)
        if original is None:
            raise BadUserInput("The original has not been uploaded yet.")
        picture = await self._pictures.examine("The original", original, reservation.content_type)
        small = await self._objects.read(at_thumbnail, most_bytes=MOST_THUMBNAIL_BYTES)
        given = small and await self._pictures.examine("The thumbnail", small, PictureType.JPEG)
        thumbnail = given.thumbnail if given else picture.thumbnail
        photo = self._made(reservation, picture, len(original))
        await self._objects.write(photo.original_key, original, content_type=reservation.content_type.value)
        await self._objects.write(photo.thumbnail_key, thumbnail, content_type=PictureType.JPEG.value)
        return photo

    def _made(self, reservation: Reservation, picture: Picture, size: int) -> Photo:
        original_key, thumbnail_key = kept(reservation.image_id, reservation.content_type)
        return Photo(
            key=photo_keys.photo(reservation.image_id, photo_keys.taken(reservation.taken_at)),
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
            size=size,
            width=picture.width,
            height=picture.height,
            created_at=from_iso(iso(self._now)),
            revision=0,
        )

    async def _confirmed(self, photo: Photo) -> Photo:
        try:
            await self._store.transact(SPARKS, self._confirming(photo))
        except TransactionCancelled as cancelled:
            if "ConditionalCheckFailed" not in cancelled.reasons:
                raise
            return await self._confirmed_by_another(photo)
        await self._remove(photo.image_id, incoming(photo.image_id))
        return photo

    async def _remove(self, image_id: str, object_keys: Collection[str]) -> None:
        """Whoever waits for something else is not told when files stay."""
        try:
            await self._objects.delete(object_keys)
        except DomainError as problem:
            logger.warning("Files of the upload %s could not be removed: %s", image_id, problem)

    def _confirming(self, photo: Photo) -> list[Action]:
        values = {"me": photo.email, "now": int(self._now.timestamp())}
        condition = keys.COMPLETE_PHOTO.condition
        return [
            Action("Delete", key=keys.upload(photo.image_id), condition=condition, values=values),
            Action("Put", item=photo_item(photo), condition=keys.ABSENT),
        ]

    async def _confirmed_by_another(self, photo: Photo) -> Photo:
        """Of two that confirm at once the second answers the first one's photo."""
        there = await self._photo(photo.image_id)
        if there is not None and there.email == photo.email:
            return there
        if there is None:
            # Released meanwhile, and its files removed, perhaps before these were written.
            await self._remove(photo.image_id, [photo.original_key, photo.thumbnail_key])
        raise no_upload()


def _reserving(reservation: Reservation, *, chosen: bool) -> list[Action]:
    count = Action(
        "Update",
        key=user_keys.user(reservation.email),
        update=keys.CREATE_PHOTO.update,
        condition=keys.CREATE_PHOTO.condition,
        values={"one": 1},
    )
    place = Action("Put", item=_reservation_item(reservation), condition=keys.ABSENT)
    # The files of an earlier photo or upload with this id may be about to be removed.
    removal = Action("ConditionCheck", key=keys.removal(reservation.image_id), condition=keys.ABSENT)
    return [count, place, removal] if chosen else [count, place]


def no_upload() -> NotFound:
    return NotFound("There is no such upload, or it has expired: createPhoto comes first.")


def _taken(image_id: str) -> Conflict:
    return Conflict(f"The id {image_id} is taken.")
