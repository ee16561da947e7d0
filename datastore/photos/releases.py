"""Reservations that were never confirmed: their places are given back, and their files removed."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from datastore.attributes import Item
from datastore.client import TransactionCancelled
from datastore.ids import uuid7_moment
from datastore.keyspace.parts import Key
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.keyspace.photos.table import SPARKS
from datastore.moments import from_seconds, iso
from datastore.objects import INCOMING, ObjectStore
from datastore.photos.pictures import PictureType
from datastore.photos.removals import Removals
from datastore.store import Action, Store

LIFETIME = timedelta(hours=1)
# The time in a client's own id may be so far ahead of that of the reservation.
MOST_AHEAD = timedelta(minutes=5)
# Of a user at their limit so many of the oldest reservations are looked at, and so many expired ones released at once;
# the janitor releases the others.
LOOKED_AT, RELEASED_AT_ONCE = 100, 25
PAGE = 100


def incoming(image_id: str) -> tuple[str, str]:
    """Where the original and the thumbnail are uploaded to."""
    return f"{INCOMING}{image_id}/original", f"{INCOMING}{image_id}/thumbnail"


def kept(image_id: str, content_type: PictureType) -> tuple[str, str]:
    """Where the original and the thumbnail of a photo are."""
    return f"originals/{image_id}.{content_type.ending}", f"thumbnails/{image_id}.jpg"


def all_keys(image_id: str) -> list[str]:
    """Wherever a file of an upload may be, whatever it was announced as and however far it came."""
    possible = {key for content_type in PictureType for key in kept(image_id, content_type)}
    return [*incoming(image_id), *sorted(possible)]


def reserved_id(item: Mapping[str, Any]) -> str:
    """The id of the photo that a reservation, as an index has it, is for."""
    return keys.upload_parts(Key(item["PK"], item["SK"]))


class Releases:
    """One method for each access pattern. What has expired by `now` may be released by anybody."""

    def __init__(self, store: Store, objects: ObjectStore, now: datetime) -> None:
        self._store = store
        self._removals = Removals(store, objects)
        self._now = now

    async def of_user(self, email: str) -> bool:
        """SPARKS-P1: release what has expired of a user's; whether a place was released, by us or by others."""
        values = {"partition": email, "prefix": keys.PREFIX}
        page = await self._store.query(keys.UPLOADS_OF_USER, values, limit=LOOKED_AT)
        over = [item for item in page.items if self._is_over(item)][:RELEASED_AT_ONCE]
        for item in over:
            await self.release(reserved_id(item), email)
        return bool(over)

    async def expired(self) -> AsyncIterator[Item]:
        """SPARKS-P1: the reservations of all that have expired, the oldest ids first; no younger ones are read than may
        have.
        """
        start: Item | None = None
        while True:
            page = await self._store.query(keys.UPLOADS, {"partition": keys.TYPE}, start=start, limit=PAGE)
            for item in page.items:
                if self._is_young(item):
                    return
                if self._is_over(item):
                    yield item
            if (start := page.next_start) is None:
                return

    def _is_over(self, item: Mapping[str, Any]) -> bool:
        return from_seconds(item["expires"]) <= self._now

    def _is_young(self, item: Mapping[str, Any]) -> bool:
        moment = uuid7_moment(reserved_id(item))
        return moment is not None and moment - MOST_AHEAD + LIFETIME > self._now

    async def release(self, image_id: str, email: str) -> bool:
        """SPARKS-P1: give the place of an expired reservation back, and remove its files.

        False, and nothing is changed, when it is not there (any more), or not expired: whoever may release it at the
        same time, a place is given back once. Files that cannot be removed now are noted, to be removed later.
        """
        note = self._noted(image_id)
        give_back = Action(
            "Update", key=user_keys.user(email), update=keys.GIVE_BACK, condition=keys.HAS_ONE, values={"one": 1}
        )
        try:
            await self._store.transact(SPARKS, [*note, give_back])
        except TransactionCancelled as cancelled:
            if not await self._is_nobodys(note, cancelled):
                return False
        await self._removals.finish(image_id, all_keys(image_id))
        return True

    def _noted(self, image_id: str) -> list[Action]:
        """Instead of a reservation that has expired, a note of what is to be removed."""
        key = keys.removal(image_id)
        note = {
            "PK": key.partition,
            "SK": key.sort,
            "entityType": keys.REMOVAL,
            "imageId": image_id,
            "objectKeys": all_keys(image_id),
            "createdAt": iso(self._now),
        }
        over = {"now": int(self._now.timestamp())}
        return [
            Action("Delete", key=keys.upload(image_id), condition=keys.RELEASE.condition, values=over),
            Action("Put", item=note),
        ]

    async def _is_nobodys(self, note: list[Action], cancelled: TransactionCancelled) -> bool:
        """Whether the place was that of a user who is no more: then it is given back to nobody."""
        reservation, _, user = cancelled.reasons
        if "ConditionalCheckFailed" not in (reservation, user):
            raise cancelled
        if reservation == "ConditionalCheckFailed":
            return False
        try:
            await self._store.transact(SPARKS, note)
        except TransactionCancelled:
            return False
        return True
