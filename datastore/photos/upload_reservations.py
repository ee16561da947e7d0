"""Upload reservations: reserve an id for a photo within the user's upload limit, and sign the upload URLs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.records import record
from datastore.errors import Conflict, Throttled
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.objects import NO_CLAIMS, UPLOAD_LIFETIME, ObjectStore, UploadTarget
from datastore.photos.file_deletion_outbox import incoming_keys
from datastore.photos.image_types import PictureType
from datastore.photos.photos import photo_with_id
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.photos.reservations import Reservation, as_stored, claims
from datastore.photos.users import UPLOAD_LIMIT, no_photo_user
from datastore.session.store import Store
from datastore.session.writes import Action

MAX_ORIGINAL_BYTES, MAX_THUMBNAIL_BYTES = 25 * 2**20, 512 * 2**10
# Attempts to reserve after the removal of an obstacle: a missing count, or expired reservations.
ATTEMPTS = 5
# The attributes of a photo that a client may state, and their names in the API.
FIELDS = {
    "content_type": "contentType",
    "description": "description",
    "tags": "tags",
    "taken_at": "takenAt",
    "camera": "camera",
}


@dataclass(frozen=True, slots=True)
class PhotoUpload:
    """A reservation, and the targets for the upload of its two files."""

    reservation: Reservation
    original: UploadTarget
    thumbnail: UploadTarget


class UploadReservations:
    """One method for each access pattern. A reservation that has expired at `now` counts as deleted."""

    def __init__(self, store: Store, objects: ObjectStore, now: datetime) -> None:
        self._store = store
        self._objects = objects
        self._now = now
        self._expiry = ReservationExpiry(store, objects, now)

    async def reserve(
        self,
        reservation: Reservation,
        *,
        is_client_id: bool,
        stated: Collection[str] = (),
        uploader: Mapping[str, str] = NO_CLAIMS,
    ) -> PhotoUpload:
        """SPARKS-W1: reserve an id. Return the user's existing reservation of the id, with new URLs, if there is one.

        The client may have used a client id before. An existing reservation must have the same values of the `stated`
        attributes. `uploader` names the caller whose budget pays for the uploads (`uploader_claims`).

        Raises `NotFound` for an unknown user; `Conflict` at the user's limit, for the id of a photo or of another
        user's reservation, and for a reservation with other values; and the object store's error if it accepts no
        uploads.
        """
        reservation = as_stored(reservation)
        upload, user = await self._upload(reservation, uploader), None
        if is_client_id and await photo_with_id(self._store, reservation.image_id) is not None:
            raise _taken(reservation.image_id)
        for remaining in reversed(range(ATTEMPTS)):
            try:
                await self._store.transact(keys.CREATE_PHOTO, _reserve_actions(reservation, is_client_id=is_client_id))
            except Throttled:
                # Concurrent uploads of the user change the same count.
                if not remaining:
                    raise
            except TransactionCancelled as cancelled:
                user = cancelled.items[0] or user
                existing = await self._resolve_failure(reservation, cancelled)
                if existing is not None:
                    _check_same(reservation, existing, stated)
                    return await self._upload(existing, uploader)
            else:
                return upload
        # A lagging index lists reservations that have been released.
        raise _limit_reached(user or {}, retryable=True)

    async def cancel(self, image_id: str, email: str) -> bool:
        """SPARKS-W1: see `ReservationExpiry.cancel`."""
        return await self._expiry.cancel(image_id, email)

    async def _upload(self, reservation: Reservation, uploader: Mapping[str, str]) -> PhotoUpload:
        original, thumbnail = incoming_keys(reservation.image_id)
        target = partial(self._target, reservation, claims(reservation) | dict(uploader))
        return PhotoUpload(
            reservation,
            await target(original, reservation.content_type, MAX_ORIGINAL_BYTES),
            await target(thumbnail, PictureType.JPEG, MAX_THUMBNAIL_BYTES),
        )

    async def _target(
        self, reservation: Reservation, claims: Mapping[str, str], key: str, content_type: PictureType, max_bytes: int
    ) -> UploadTarget:
        lifetime = min(UPLOAD_LIFETIME, reservation.expires_at - self._now)
        return await self._objects.upload(
            key, content_type=content_type.value, max_bytes=max_bytes, now=self._now, lifetime=lifetime, claims=claims
        )

    async def _resolve_failure(self, reservation: Reservation, cancelled: TransactionCancelled) -> Reservation | None:
        """Return the user's existing reservation of the id. Return None after the removal of an obstacle: retry.

        Raises the caller's error for an obstacle that cannot be removed.
        """
        user, place, *removal = [reason == "ConditionalCheckFailed" for reason in cancelled.reasons]
        stored = record(Reservation.decoder, cancelled.items[1]) if place else None
        if stored is not None:
            return await self._own(reservation, stored)
        if any(removal):
            raise _being_deleted(reservation.image_id) from cancelled
        if not user:
            raise cancelled
        await self._allow_upload(reservation.email, cancelled.items[0])
        return None

    async def _own(self, reservation: Reservation, stored: Reservation) -> Reservation | None:
        if stored.expires_at <= self._now:
            await self._expiry.release(stored.image_id)
            return None
        if stored.email != reservation.email:
            raise _taken(reservation.image_id)
        return stored

    async def _allow_upload(self, email: str, user: Mapping[str, Any] | None) -> None:
        """Add the user's missing count or limit, or release expired reservations. Raises `NotFound` or `Conflict`."""
        if user is None:
            raise no_photo_user()
        if user.get("uploadCount") is None:
            await self._start_counting(email)
        elif user.get("uploadLimit") is None:
            key = user_keys.user(email)
            await self._store.update(keys.SET_LIMIT, key, limit=UPLOAD_LIMIT, null="NULL")
        elif not await self._expiry.release_of_user(email):
            raise _limit_reached(user)

    async def _start_counting(self, email: str) -> None:
        """SPARKS-P1: count the user's photos. Of concurrent counts the first is stored."""
        count = await self._store.count(keys.COUNT_PHOTOS, photo_keys.photo_of_user.values_of(email))
        key = user_keys.user(email)
        await self._store.update(keys.START_COUNT, key, count=count, limit=UPLOAD_LIMIT, null="NULL")


def _reserve_actions(reservation: Reservation, *, is_client_id: bool) -> list[Action]:
    count = Action(
        "Update",
        key=user_keys.user(reservation.email),
        update=keys.CREATE_PHOTO.update,
        condition=keys.CREATE_PHOTO.condition,
        values={"one": 1},
    )
    put = Action("Put", item=reservation.item(), condition=keys.NOT_EXISTS)
    # The outbox may contain the files of an earlier photo or upload of this id.
    no_removal = Action("ConditionCheck", key=keys.outbox_entry(reservation.image_id), condition=keys.NOT_EXISTS)
    return [count, put, no_removal] if is_client_id else [count, put]


def _check_same(reservation: Reservation, existing: Reservation, stated: Collection[str]) -> None:
    for name in stated:
        if getattr(reservation, name) != getattr(existing, name):
            field = FIELDS[name]
            raise Conflict(f"The upload {existing.image_id} is reserved with another `{field}`.", field=field)


def _taken(image_id: str) -> Conflict:
    return Conflict(f"The id {image_id!r} is taken.")


def _being_deleted(image_id: str) -> Conflict:
    return Conflict(f"The files of an earlier upload {image_id!r} are being removed; try again later.", retryable=True)


def _limit_reached(user: Mapping[str, Any], **details: Any) -> Conflict:
    limit = UPLOAD_LIMIT if user.get("uploadLimit") is None else int(user["uploadLimit"])
    photos = "1 photo" if limit == 1 else f"{limit} photos"
    return Conflict(f"You may have at most {photos}, including uploads in progress.", limit=limit, **details)
