"""Users of the feed: records, reads and writes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, count, number, text
from datastore.errors import NotFound
from datastore.keyspace.feeds import users as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso, iso
from datastore.model.versioning import VERSION
from datastore.session.optimistic_locking import updated_record, version, version_values, versioned_update
from datastore.session.store import Store


class User(Struct, frozen=True, gc=False):
    """A user of the feed. The pipeline maintains the counts.

    A user item of another program may have nothing but its keys.
    """

    user_id: str
    #: The user's id if the item has no name.
    name: str
    bio: str | None
    avatar_ref: str | None
    created_at: datetime | None
    #: The number of posts that other users may see.
    posts: int
    followers: int
    following: int
    #: Set once the author has too many followers for fan-out on write: posts of this time and later have no feed
    #: entries, and are merged into feeds when these are read.
    merged_since: datetime | None = None
    version: int = 0


user_from = RecordDecoder(
    User,
    user_id=text("PK", second_part),
    name=text("name", default=text("PK", second_part)),
    bio=text("bio", default=None),
    avatar_ref=text("avatar_ref", default=None),
    created_at=text("created_at", from_iso, default=None),
    posts=count("posts", default=0),
    followers=count("followers", default=0),
    following=count("following", default=0),
    merged_since=text("merged_since", from_iso, default=None),
    version=number(VERSION, version, default=0),
)


class Users:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_id(self, user_id: str, pattern: AccessPattern = keys.USER) -> User | None:
        """FEED-001: return a user, or None."""
        item = await self._store.find(pattern, keys.user(user_id))
        return None if item is None else item.record(user_from)

    async def require(self, user_id: str, pattern: AccessPattern) -> None:
        """Raise `NotFound` unless the user has a profile. `pattern` is the access pattern of the following write."""
        if await self._store.get(pattern, keys.user(user_id)) is None:
            raise no_profile()

    async def create(self, user_id: str, *, name: str, bio: str | None = None, avatar_ref: str | None = None) -> User:
        """FEED-W6: create the profile of a user. Return the existing profile, unchanged, if there is one."""
        item = _new_item(user_id, self._now) | _without_none({"name": name, "bio": bio, "avatar_ref": avatar_ref})
        written = await self._store.put(keys.CREATE_USER, item)
        return user_from(written.item or item)

    async def update(self, user_id: str, changes: Mapping[str, Any], expected: int | None = None) -> User:
        """FEED-W6: change fields, named as in `User`; None removes a value. Return the changed user.

        Raises `NotFound` if there is no such user, `Outdated` if the stored version is not the expected one.
        """
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        written = await self._store.update(keys.UPDATE_USER, keys.user(user_id), update=expression, **values)
        return updated_record(written, expected, changes, user_from, no_profile)


def no_profile() -> NotFound:
    """Return the error for a caller without a profile."""
    return NotFound("You are not in the feed yet: create your profile with createUser first.")


def _new_item(user_id: str, now: datetime) -> Item:
    key = keys.user(user_id)
    return {"PK": key.partition, "SK": key.sort, "created_at": iso(now)}


def _without_none(values: Mapping[str, Any]) -> Item:
    return {name: value for name, value in values.items() if value is not None}
