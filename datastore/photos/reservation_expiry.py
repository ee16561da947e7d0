"""Expiry and cancellation of upload reservations: returns them to the user's upload limit, and deletes their files."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.errors import Throttled
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import second_part
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import from_iso
from datastore.objects import ObjectStore
from datastore.photos.file_deletion_outbox import FileDeletionOutbox, incoming_keys, record_files
from datastore.session.store import Store
from datastore.session.writes import Action

LIFETIME = timedelta(hours=1)
# The maximum by which the time in a client's own id may be ahead of that of the reservation.
MAX_CLOCK_SKEW = timedelta(minutes=5)
# The maximum number of a user's oldest reservations that one request reads, and of expired ones that it releases. The
# janitor releases the others.
MAX_READ, MAX_RELEASED = 100, 5
PAGE = 100
# Attempts to end a reservation whose files change meanwhile.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ListedReservation:
    """A reservation in the indexes: the id of its photo, and the time of its creation."""

    image_id: str
    created_at: datetime


def _listed_from(item: Mapping[str, Any]) -> ListedReservation:
    return ListedReservation(second_part(item["PK"]), from_iso(item["createdAt"]))


class ReservationExpiry:
    """One method for each access pattern. Any process may release a reservation that has expired at `now`."""

    def __init__(self, store: Store, objects: ObjectStore, now: datetime) -> None:
        self._store = store
        self._outbox = FileDeletionOutbox(store, objects)
        self._now = now

    async def release_of_user(self, email: str) -> bool:
        """SPARKS-P1: release the user's expired reservations. Return whether this or another process released some.

        The janitor deletes their files, so that no request waits for that.
        """
        values = keys.upload_of_user.values_of(email)
        page = await self._store.query(keys.RESERVATIONS_OF_USER, values, limit=MAX_READ)
        released = 0
        for listed in filter(self._is_expired, readable_records(_listed_from, page.items)):
            is_released = await self._release(listed.image_id) is not None
            # A reservation that remains is damaged. The others are released.
            if is_released or await self._store.get(keys.RELEASE, keys.upload(listed.image_id)) is None:
                released += 1
            if released == MAX_RELEASED:
                break
        return released > 0

    async def expired(self) -> AsyncIterator[str]:
        """SPARKS-P1: yield the ids of all expired reservations, the oldest first. Stops at the first recent id."""
        start: Item | None = None
        while True:
            page = await self._store.query(keys.RESERVATIONS, {"partition": keys.TYPE}, start=start, limit=PAGE)
            for listed in readable_records(_listed_from, page.items):
                if self._is_recent(listed):
                    return
                if self._is_expired(listed):
                    yield listed.image_id
            if (start := page.next_start) is None:
                return

    def _is_expired(self, listed: ListedReservation) -> bool:
        return listed.created_at + LIFETIME <= self._now

    def _is_recent(self, listed: ListedReservation) -> bool:
        moment = uuid7_moment(listed.image_id)
        return moment is not None and moment - MAX_CLOCK_SKEW + LIFETIME > self._now

    async def release(self, image_id: str) -> bool:
        """SPARKS-P1: release an expired reservation, and delete its files.

        Return False without a change if there is no such reservation, or it has not expired. Concurrent releases
        decrement the user's upload count once. After a failed deletion of files an outbox record remains.
        """
        return await self._delete_files(image_id, await self._release(image_id))

    async def _delete_files(self, image_id: str, object_keys: list[str] | None) -> bool:
        if object_keys is None:
            return False
        await self._outbox.delete_files(image_id, object_keys)
        return True

    async def cancel(self, image_id: str, email: str) -> bool:
        """SPARKS-W1: release the user's own reservation, expired or not, and delete its files.

        Return False without a change if there is none. A photo that was created from it meanwhile remains.

        Raises `Throttled` if other requests confirm the upload at each attempt.
        """
        for _ in range(ATTEMPTS):
            item = await self._store.get(keys.CANCEL_PHOTO_UPLOAD, keys.upload(image_id))
            if item is None or item.get("email") != email:
                return False
            object_keys = await self._cancel_unchanged(image_id, item)
            if object_keys is not None:
                return await self._delete_files(image_id, object_keys)
        raise Throttled("The upload is being confirmed at the same time; try again.")

    async def cancel_unchanged(self, image_id: str, item: Item) -> bool:
        """Release a reservation that was read; the janitor deletes its files. Return False if it changed meanwhile."""
        return await self._cancel_unchanged(image_id, item) is not None

    async def _cancel_unchanged(self, image_id: str, item: Item) -> list[str] | None:
        delete = _delete_unchanged(image_id, item, keys.IS_OWN_UPLOAD, {"me": item["email"]})
        return await self._end(keys.CANCEL_PHOTO_UPLOAD, image_id, item, delete)

    async def _release(self, image_id: str) -> list[str] | None:
        """Release an expired reservation. Return its files, which are in the outbox; None if there was none."""
        values, before = {"now": int(self._now.timestamp())}, None
        for _ in range(ATTEMPTS):
            item = await self._store.get(keys.RELEASE, keys.upload(image_id))
            if item is None or item == before:
                return None
            delete = _delete_unchanged(image_id, item, keys.RELEASE.condition, values)
            object_keys = await self._end(keys.RELEASE, image_id, item, delete)
            if object_keys is not None:
                return object_keys
            before = item
        return None

    async def _end(self, pattern: AccessPattern, image_id: str, item: Item, delete: Action) -> list[str] | None:
        """Delete a reservation, and decrement its user's upload count. Return its files, or None as `_release`."""
        object_keys = await self._files_to_delete(image_id, item)
        actions = [delete, record_files(image_id, object_keys, self._now)]
        owner = user_keys.user(item["email"])
        decrement = Action(
            "Update", key=owner, update=keys.DECREMENT_UPLOAD_COUNT, condition=keys.HAS_UPLOADS, values={"one": 1}
        )
        try:
            await self._store.transact(pattern, [*actions, decrement])
        except TransactionCancelled as cancelled:
            if not await self._end_without_user(pattern, actions, cancelled):
                return None
        return object_keys

    async def _files_to_delete(self, image_id: str, item: Item) -> list[str]:
        """Return the files of a reservation, without those of a photo of the same id.

        A late repetition of the client's request may have reserved the id again after the photo was created.
        """
        values = photo_keys.photo_taken.values_of(image_id)
        photos = (await self._store.query(consistently(photo_keys.PHOTO), values, limit=1)).items
        photo_files = {photo.get(name) for photo in photos for name in ("originalKey", "thumbnailKey")}
        return [*incoming_keys(image_id), *sorted(set(item.get("objectKeys") or ()) - photo_files)]

    async def _end_without_user(
        self, pattern: AccessPattern, actions: list[Action], cancelled: TransactionCancelled
    ) -> bool:
        """Delete the reservation of a user who no longer exists. Return False if the reservation changed."""
        reservation, _, user = cancelled.reasons
        if "ConditionalCheckFailed" not in (reservation, user):
            raise cancelled
        if reservation == "ConditionalCheckFailed":
            return False
        try:
            await self._store.transact(pattern, actions)
        except TransactionCancelled:
            return False
        return True


def _delete_unchanged(image_id: str, item: Item, condition: str | None, values: Mapping[str, Any]) -> Action:
    """Return the action that deletes a reservation, unless it was replaced, or files were added to it."""
    conditions, compared = [condition], dict(values)
    for name in ("objectKeys", "nonce"):
        if name in item:
            conditions.append(f"{name} = :{name}")
            compared[name] = item[name]
        else:
            conditions.append(f"attribute_not_exists({name})")
    return Action(
        "Delete", key=keys.upload(image_id), condition=" AND ".join(filter(None, conditions)), values=compared
    )
