"""Notifications: records, reads and writes. The table keeps a notification until it is read or expires."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from datastore.change_streams.exactly_once import Write
from datastore.dynamodb.record_decoder import RecordDecoder, number, text
from datastore.dynamodb.records import record
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds import users
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of, second_part
from datastore.model.timestamps import from_iso, from_seconds, iso, to_seconds
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store

LIFETIME = timedelta(days=90)
# Likes of one post within the same five minutes are one notification.
LIKES_WINDOW = timedelta(minutes=5)


class NotificationKind(StrEnum):
    """The kind of event that a notification reports."""

    LIKE = "like"
    COMMENT = "comment"
    FOLLOW = "follow"
    MENTION = "mention"


KINDS: Mapping[str, NotificationKind] = {kind.value: kind for kind in NotificationKind}


class Notification(Struct, frozen=True, gc=False):
    """A notification of an event that concerns a user.

    An item of another program may have nothing but its keys: attributes that it lacks are None, and `actor_count` is 0.
    """

    user_id: str
    #: The sort key, unique for the user. For likes it contains the start of their window and never changes; their
    #: position in the list, by `created_at`, moves with each like.
    notification_id: str
    kind: NotificationKind | None
    created_at: datetime
    #: None: the notification stays until it is read.
    expires_at: datetime | None
    #: The last user who caused the event, at `created_at`.
    actor_id: str | None
    #: The number of users who caused the event.
    actor_count: int
    post_id: str | None
    comment_id: str | None

    def is_kept_at(self, now: datetime) -> bool:
        """Return whether the notification has not expired at `now`."""
        return self.expires_at is None or self.expires_at > now


def is_notification(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith("USER#") and item_keys["PK"].endswith("#UNREAD")


def _moment_at(sort: str) -> datetime:
    return from_iso(keys.notification_parts(sort)[0])


notification_from = RecordDecoder(
    Notification,
    user_id=text("PK", second_part),
    notification_id=text("SK"),
    kind=text("kind", KINDS, default=None),
    created_at=text("GSI_NOTIFSK", _moment_at, default=text("SK", _moment_at)),
    expires_at=number("expiresAt", from_seconds, default=None),
    actor_id=text("actor_id", default=None),
    actor_count=number("actor_count", int, default=0),
    post_id=text("post_id", default=None),
    comment_id=text("comment_id", default=None),
)


def notification_write(notification: Notification) -> Write:
    """Return the write of a notification. If the item exists, it counts the actor and replaces an earlier actor."""
    key = _key(notification)
    name = keys.notification_parts(notification.notification_id)[1]
    expires_at = notification.expires_at
    optional = {
        "kind": notification.kind,
        "actor_id": notification.actor_id,
        "expiresAt": None if expires_at is None else to_seconds(expires_at),
        "post_id": notification.post_id,
        "comment_id": notification.comment_id,
    }
    fixed = {
        "GSI_NOTIFPK": key.partition,
        "GSI_NOTIFSK": keys.position(notification.created_at, name),
    }
    present = {name: value for name, value in optional.items() if value is not None}
    newest = "GSI_NOTIFSK" if notification.kind is NotificationKind.LIKE else ""
    return Write(FEED, key, {"actor_count": notification.actor_count}, {**fixed, **present}, newest=newest)


def _key(notification: Notification) -> Key:
    return Key(keys.unread(notification.user_id), notification.notification_id)


async def retract(store: Store, notifications: Iterable[Notification]) -> None:
    """FEED-P6: delete unread notifications. A repeat changes nothing."""
    await store.write_all(keys.RETRACT, deletes=list(dict.fromkeys(map(_key, notifications))))


async def retract_of_post(store: Store, author_id: str, post_id: str, since: datetime) -> None:
    """FEED-P6: delete the author's unread notifications of a post whose keys have the time `since` or later.

    Reads all unread notifications of the author since then, a page at a time: their keys identify posts by a digest.
    """
    values = {"partition": keys.unread(author_id), "since": iso(since), "post": post_id}
    async for page in store.query_pages(keys.NOTIFICATIONS_OF_POST, values, attributes=("PK", "SK")):
        if page:
            await store.write_all(keys.RETRACT, deletes=[key_of(FEED, item) for item in page])


async def may_receive(store: Store, user_id: str, author_id: str, visibility: Visibility) -> bool:
    """FEED-P6: return whether the user exists and may see a post of the author."""
    policy = VisibilityPolicy(store, Viewer(user_id))
    user, is_allowed = await asyncio.gather(
        store.get(keys.RECIPIENT, users.user(user_id)),
        policy.allows(author_id, visibility, keys.RECIPIENT),
    )
    return user is not None and is_allowed


class Notifications:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def unread(self, user_id: str, span: Span) -> Page:
        """FEED-009: return a user's unread notifications, newest first."""
        values = {"partition": keys.unread(user_id), "now": self._now.timestamp()}
        return await read_page(self._store, keys.UNREAD, [values], span)

    async def by_id(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-N4: return an unread notification, or None. Batched with other point reads."""
        return self._unexpired(await self._store.get(keys.NOTIFICATION, Key(keys.unread(user_id), notification_id)))

    async def mark_read(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-W5: delete a notification that was read. Return it as it was, or None if there was none."""
        written = await self._store.delete(keys.MARK_READ, Key(keys.unread(user_id), notification_id))
        return self._unexpired(written.item)

    def _unexpired(self, item: Mapping[str, Any] | None) -> Notification | None:
        notification = record(notification_from, item)
        return notification if notification and notification.is_kept_at(self._now) else None
