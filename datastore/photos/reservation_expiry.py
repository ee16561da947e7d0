"""Reservations that were never confirmed: their places are given back, and their files removed."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable
from datastore.errors import Throttled
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import from_iso, iso
from datastore.objects import ObjectStore
from datastore.photos.file_deletion_outbox import FileDeletionOutbox, incoming
from datastore.session.store import Store
from datastore.session.writes import Action

LIFETIME = timedelta(hours=1)
# The time in a client's own id may be so far ahead of that of the reservation.
MOST_AHEAD = timedelta(minutes=5)
# Of a user at their limit so many of the oldest reservations are looked at, and so many expired ones released at once;
# the janitor releases the others.
LOOKED_AT, RELEASED_AT_ONCE = 100, 5
PAGE = 100
# Ending a reservation is begun anew when its files changed meanwhile.
TRIES = 5


@dataclass(frozen=True, slots=True)
class ListedReservation:
    """A reservation as the indexes have it: the id of the photo that it is for, and when it was made."""

    image_id: str
    created_at: datetime


def _listed_from(item: Mapping[str, Any]) -> ListedReservation:
    return ListedReservation(keys.upload_parts(Key(item["PK"], item["SK"])), from_iso(item["createdAt"]))


class ReservationExpiry:
    """One method for each access pattern. What has expired by `now` may be released by anybody."""

    def __init__(self, store: Store, objects: ObjectStore, now: datetime) -> None:
        self._store = store
        self._removals = FileDeletionOutbox(store, objects)
        self._now = now

    async def of_user(self, email: str) -> bool:
        """SPARKS-P1: give the places of what has expired of a user's back; whether there are some, by us or by others.

        Their files are left to the janitor, so that nobody waits for that.
        """
        values = {"partition": email, "prefix": keys.PREFIX}
        page = await self._store.query(keys.RESERVATIONS_OF_USER, values, limit=LOOKED_AT)
        gone = 0
        for listed in filter(self._is_over, readable(_listed_from, page.items)):
            released = await self._give_back(listed.image_id) is not None
            # One that stays is damaged: it does not keep the others.
            if released or await self._store.get(keys.RELEASE, keys.upload(listed.image_id)) is None:
                gone += 1
            if gone == RELEASED_AT_ONCE:
                break
        return gone > 0

    async def expired(self) -> AsyncIterator[str]:
        """SPARKS-P1: the ids of all reservations that have expired, the oldest first; no younger ones are read than may
        have.
        """
        start: Item | None = None
        while True:
            page = await self._store.query(keys.RESERVATIONS, {"partition": keys.TYPE}, start=start, limit=PAGE)
            for listed in readable(_listed_from, page.items):
                if self._is_young(listed):
                    return
                if self._is_over(listed):
                    yield listed.image_id
            if (start := page.next_start) is None:
                return

    def _is_over(self, listed: ListedReservation) -> bool:
        return listed.created_at + LIFETIME <= self._now

    def _is_young(self, listed: ListedReservation) -> bool:
        moment = uuid7_moment(listed.image_id)
        return moment is not None and moment - MOST_AHEAD + LIFETIME > self._now

    async def release(self, image_id: str) -> bool:
        """SPARKS-P1: give the place of an expired reservation back, and remove its files.

        False, and nothing is changed, when it is not there (any more), or not expired: whoever may release it at the
        same time, a place is given back once. Files that cannot be removed now are noted, to be removed later.
        """
        return await self._finished(image_id, await self._give_back(image_id))

    async def _finished(self, image_id: str, object_keys: list[str] | None) -> bool:
        if object_keys is None:
            return False
        await self._removals.finish(image_id, object_keys)
        return True

    async def cancel(self, image_id: str, email: str) -> bool:
        """SPARKS-W1: the same of a reservation of a user's own, at once, whether or not it has expired.

        False, and nothing is changed, without one. A photo that came of it meanwhile stays.
        Raises `Throttled` when it is being confirmed again and again.
        """
        for _ in range(TRIES):
            item = await self._store.get(keys.CANCEL_UPLOAD, keys.upload(image_id))
            if item is None or item.get("email") != email:
                return False
            object_keys = await self._end_as_read(image_id, item)
            if object_keys is not None:
                return await self._finished(image_id, object_keys)
        raise Throttled("The upload is being confirmed at the same time; try again.")

    async def give_up(self, image_id: str, item: Item) -> bool:
        """The same of one that was read; its files are left to the janitor. False, and nothing is changed, when it
        changed meanwhile.
        """
        return await self._end_as_read(image_id, item) is not None

    async def _end_as_read(self, image_id: str, item: Item) -> list[str] | None:
        delete = _as_read(image_id, item, keys.IS_OWN_UPLOAD, {"me": item["email"]})
        return await self._end(keys.CANCEL_UPLOAD, image_id, item, delete)

    async def _give_back(self, image_id: str) -> list[str] | None:
        """The files that it leaves, which are noted; None where there was nothing to give back."""
        over, before = {"now": int(self._now.timestamp())}, None
        for _ in range(TRIES):
            item = await self._store.get(keys.RELEASE, keys.upload(image_id))
            if item is None or item == before:
                return None
            delete = _as_read(image_id, item, keys.RELEASE.condition, over)
            object_keys = await self._end(keys.RELEASE, image_id, item, delete)
            if object_keys is not None:
                return object_keys
            before = item
        return None

    async def _end(self, pattern: AccessPattern, image_id: str, item: Item, delete: Action) -> list[str] | None:
        """Give the place of a reservation back, if it can be deleted so. Answers as `_give_back` does."""
        object_keys = await self._left_by(image_id, item)
        note = [delete, self._noted(image_id, object_keys)]
        owner = user_keys.user(item["email"])
        give_back = Action(
            "Update", key=owner, update=keys.DECREMENT_UPLOAD_COUNT, condition=keys.HAS_UPLOADS, values={"one": 1}
        )
        try:
            await self._store.transact(pattern, [*note, give_back])
        except TransactionCancelled as cancelled:
            if not await self._is_nobodys(pattern, note, cancelled):
                return None
        return object_keys

    async def _left_by(self, image_id: str, item: Item) -> list[str]:
        """The files of a reservation, but those of the photo that was made of it before it was made again: a client may
        have asked a second time, and late.
        """
        values = {"partition": photo_keys.partition(image_id), "prefix": photo_keys.PREFIX}
        photos = (await self._store.query(photo_keys.PHOTO_CONSISTENT, values, limit=1)).items
        shown = {photo.get(name) for photo in photos for name in ("originalKey", "thumbnailKey")}
        return [*incoming(image_id), *sorted(set(item.get("objectKeys") or ()) - shown)]

    def _noted(self, image_id: str, object_keys: list[str]) -> Action:
        """Instead of the reservation, a note of what is to be removed."""
        note = {"type": keys.REMOVAL, "id": image_id, "at": iso(self._now), "none": [], "keys": object_keys}
        # There may be one of the photo's own files: nothing that it names is forgotten.
        return Action("Update", key=keys.outbox_entry(image_id), update=keys.RECORD_OBJECTS, values=note)

    async def _is_nobodys(self, pattern: AccessPattern, note: list[Action], cancelled: TransactionCancelled) -> bool:
        """Whether the place was that of a user who is no more: then it is given back to nobody."""
        reservation, _, user = cancelled.reasons
        if "ConditionalCheckFailed" not in (reservation, user):
            raise cancelled
        if reservation == "ConditionalCheckFailed":
            return False
        try:
            await self._store.transact(pattern, note)
        except TransactionCancelled:
            return False
        return True


def _as_read(image_id: str, item: Item, condition: str | None, values: Mapping[str, Any]) -> Action:
    """Delete a reservation unless files were added to it meanwhile, of which nobody would know any more, or another
    came in its place.
    """
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
