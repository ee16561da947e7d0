"""Those who upload photos: what one is, and how the table keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import NotFound
from datastore.keyspace.photos import users as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso
from datastore.session.optimistic_locking import updated_record, version_of, version_values, versioned_update
from datastore.session.pagination import Page, SortOrder, Span, ordered, read_page
from datastore.session.store import Store

# How many photos one may have, when nobody said otherwise.
UPLOAD_LIMIT = 100


@dataclass(frozen=True, slots=True)
class PhotoUser:
    """Somebody who uploads photos. `upload_count` counts reservations too; None where it is not kept yet."""

    email: str
    display_name: str
    upload_limit: int
    upload_count: int | None
    created_at: datetime
    version: int = 0


def photo_user_from(item: Mapping[str, Any]) -> PhotoUser:
    return PhotoUser(
        email=keys.user_parts(Key(item["PK"], item.get("SK", ""))),
        display_name=item["displayName"],
        upload_limit=UPLOAD_LIMIT if item.get("uploadLimit") is None else int(item["uploadLimit"]),
        upload_count=None if item.get("uploadCount") is None else int(item["uploadCount"]),
        created_at=from_iso(item["createdAt"]),
        version=version_of(item),
    )


class PhotoUsers:
    """One method for each access pattern. Emails are in lower case."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_email(self, email: str, pattern: AccessPattern = keys.PHOTO_USER) -> PhotoUser | None:
        """SPARKS-1. `pattern` may be the one that reads consistently."""
        return record(photo_user_from, await self._store.get(pattern, keys.user(email)))

    async def all(self, span: Span, order: SortOrder) -> Page:
        """SPARKS-4."""
        return await read_page(self._store, ordered(keys.PHOTO_USERS, order), [{"partition": keys.TYPE}], span)

    async def create(self, email: str, *, display_name: str, upload_limit: int = UPLOAD_LIMIT) -> PhotoUser:
        """SPARKS-W1: a user enters the library; one who is there already is answered as they stand."""
        item = _new_item(email, self._now) | {"displayName": display_name, "uploadLimit": upload_limit}
        written = await self._store.put(keys.CREATE_PHOTO_USER, item)
        user = record(photo_user_from, written.item or item)
        assert user is not None, "There is an item."
        return user

    async def update(self, email: str, changes: Mapping[str, Any], expected: int | None = None) -> PhotoUser:
        """SPARKS-W1: change attributes. Raises `NotFound` when there is no such user, and `Outdated`."""
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        written = await self._store.update(keys.UPDATE_PHOTO_USER, keys.user(email), update=expression, **values)
        return updated_record(written, expected, changes, photo_user_from, no_photo_user)


def no_photo_user() -> NotFound:
    """What a caller is told who uploads before they entered the library."""
    return NotFound("There is no such user in the photo library: createPhotoUser comes first.")


def _new_item(email: str, now: datetime) -> Item:
    key = keys.user(email)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "email": email,
        "createdAt": iso(now),
    }
