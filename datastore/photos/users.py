"""Users of the photo library: records, reads and writes."""

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

# The default maximum number of photos of a user.
UPLOAD_LIMIT = 100


@dataclass(frozen=True, slots=True)
class PhotoUser:
    """A user who uploads photos."""

    email: str
    display_name: str
    upload_limit: int
    #: The number of photos and reservations. None if they have not been counted yet.
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
        """SPARKS-1: return a user, or None. `pattern` may be one that reads consistently."""
        return record(photo_user_from, await self._store.get(pattern, keys.user(email)))

    async def all(self, span: Span, order: SortOrder) -> Page:
        """SPARKS-4: return all users."""
        return await read_page(self._store, ordered(keys.PHOTO_USERS, order), [{"partition": keys.TYPE}], span)

    async def create(self, email: str, *, display_name: str, upload_limit: int = UPLOAD_LIMIT) -> PhotoUser:
        """SPARKS-W1: create a user. Return the existing user, unchanged, if there is one."""
        item = _new_item(email, self._now) | {"displayName": display_name, "uploadLimit": upload_limit}
        written = await self._store.put(keys.CREATE_PHOTO_USER, item)
        user = record(photo_user_from, written.item or item)
        assert user is not None, "The item exists."
        return user

    async def update(self, email: str, changes: Mapping[str, Any], expected: int | None = None) -> PhotoUser:
        """SPARKS-W1: change attributes. Return the changed user.

        Raises `NotFound` if there is no such user, `Outdated` if the stored version is not the expected one.
        """
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        written = await self._store.update(keys.UPDATE_PHOTO_USER, keys.user(email), update=expression, **values)
        return updated_record(written, expected, changes, photo_user_from, no_photo_user)


def no_photo_user() -> NotFound:
    """Return the error for a user without a profile in the photo library."""
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
