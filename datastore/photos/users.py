"""Users of the photo library: records, reads and writes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from datastore.dynamodb.records import point_records, record
from datastore.errors import NotFound
from datastore.items import attributes as stored
from datastore.items.forms import Line, Whole
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.items.updates import ItemChange, update_item
from datastore.keyspace.photos import users as keys
from datastore.model.access_patterns import AccessPattern

# The default maximum number of photos of a user.
UPLOAD_LIMIT = 100


class PhotoUser(StoredItem, key=keys.user):
    """A user who uploads photos."""

    entity_type = stored.constant("entityType", keys.TYPE)
    email: str = stored.part("email")
    display_name: str = stored.text("displayName", form=Line(100))
    upload_limit: int = stored.number(
        "uploadLimit", stored.if_null(UPLOAD_LIMIT, int), missing=UPLOAD_LIMIT, form=Whole(0, 1_000_000)
    )
    #: The number of photos and reservations. None if they have not been counted yet.
    upload_count: int | None = stored.number("uploadCount", stored.if_null(None, int), missing=None)
    created_at: datetime = stored.moment("createdAt")
    version: int = stored.version(default=0)


class PhotoUsers(Repository):
    """One method for each access pattern. Emails are in lower case."""

    async def by_email(self, email: str, pattern: AccessPattern = keys.PHOTO_USER) -> PhotoUser | None:
        """SPARKS-1: return a user, or None. `pattern` may be one that reads consistently."""
        return record(PhotoUser.decoder, await self._store.get(pattern, keys.user(email)))

    async def by_emails(self, emails: Sequence[str]) -> list[PhotoUser | Exception | None]:
        """SPARKS-1: return each user, None, or the error of its read."""
        items = await self._store.find_all(keys.PHOTO_USER, list(map(keys.user, emails)))
        return point_records(PhotoUser.decoder, items)

    async def create(self, email: str, *, display_name: str, upload_limit: int = UPLOAD_LIMIT) -> PhotoUser:
        """SPARKS-W1: create a user. Return the existing user, unchanged, if there is one."""
        item = PhotoUser(email, display_name, upload_limit, None, self._now).item()
        written = await self._store.put(keys.CREATE_PHOTO_USER, item)
        user = record(PhotoUser.decoder, written.item or item)
        assert user is not None, "The item exists."
        return user

    async def update(self, email: str, changes: Mapping[str, Any], expected: int | None = None) -> PhotoUser:
        """SPARKS-W1: change fields, named as in `PhotoUser`. Return the changed user.

        Raises `NotFound` if there is no such user, `Outdated` if the stored version is not the expected one.
        """
        change = ItemChange(PhotoUser, changes, expected)
        return await update_item(self._store, keys.UPDATE_PHOTO_USER, keys.user(email), change, no_photo_user)


def no_photo_user() -> NotFound:
    """Return the error for a user without a profile in the photo library."""
    return NotFound("There is no such user in the photo library: createPhotoUser comes first.")
