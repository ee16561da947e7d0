"""Users of the feed: records, reads and writes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Any

from datastore.dynamodb.records import point_records
from datastore.errors import NotFound
from datastore.items import attributes as stored
from datastore.items.forms import Line, Prose
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.items.updates import ItemChange, update_item
from datastore.keyspace.feeds import users as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso


class User(StoredItem, key=keys.user):
    """A user of the feed. The pipeline maintains the counts.

    A count is None if the caller's own change must be added (see `own_changes`).

    A user item of another program may have nothing but its keys.
    """

    user_id: str = stored.part()
    #: The user's id if the item has no name.
    name: str = stored.text("name", missing=stored.text("PK", second_part), form=Line(100))
    bio: str | None = stored.text("bio", missing=None, form=Prose(500, may_be_blank=True), removable=True)
    avatar_ref: str | None = stored.text("avatar_ref", missing=None, form=Line(500), removable=True)
    created_at: datetime | None = stored.moment("created_at", from_iso, missing=None)
    #: The number of posts that other users may see.
    posts: int | None = stored.count("posts", default=0, omit=not_)
    followers: int | None = stored.count("followers", default=0, omit=not_)
    following: int | None = stored.count("following", default=0, omit=not_)
    #: Set once the author has too many followers for fan-out on write: posts of this time and later have no feed
    #: entries, and are merged into feeds when these are read.
    merged_since: datetime | None = stored.moment("merged_since", from_iso, default=None)
    version: int = stored.version(default=0)


class Users(Repository):
    """One method for each access pattern."""

    async def by_id(self, user_id: str, pattern: AccessPattern = keys.USER) -> User | None:
        """FEED-001: return a user, or None."""
        item = await self._store.find(pattern, keys.user(user_id))
        return None if item is None else item.record(User.decoder)

    async def by_ids(self, user_ids: Sequence[str]) -> list[User | Exception | None]:
        """FEED-001: return each user, None, or the error of its read."""
        return point_records(User.decoder, await self._store.find_all(keys.USER, list(map(keys.user, user_ids))))

    async def require(self, user_id: str, pattern: AccessPattern) -> None:
        """Raise `NotFound` unless the user has a profile. `pattern` is the access pattern of the following write."""
        if await self._store.get(pattern, keys.user(user_id)) is None:
            raise no_profile()

    async def create(self, user_id: str, *, name: str, bio: str | None = None, avatar_ref: str | None = None) -> User:
        """FEED-W6: create the profile of a user. Return the existing profile, unchanged, if there is one."""
        item = User(user_id, name, bio, avatar_ref, self._now).item()
        written = await self._store.put(keys.CREATE_USER, item)
        return User.decoder(written.item or item)

    async def update(self, user_id: str, changes: Mapping[str, Any], expected: int | None = None) -> User:
        """FEED-W6: change fields, named as in `User`; None removes a value. Return the changed user.

        Raises `NotFound` if there is no such user, `Outdated` if the stored version is not the expected one.
        """
        change = ItemChange(User, changes, expected)
        return await update_item(self._store, keys.UPDATE_USER, keys.user(user_id), change, no_profile)


def no_profile() -> NotFound:
    """Return the error for a caller without a profile."""
    return NotFound("You are not in the feed yet: create your profile with createUser first.")
