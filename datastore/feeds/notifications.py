"""Notifications: what one is, and how the table keeps it until it is read."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from datastore.change_streams.exactly_once import Write
from datastore.dynamodb.record_decoder import RecordDecoder, number, text
from datastore.dynamodb.records import record
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of, second_part
from datastore.model.timestamps import from_iso, from_seconds, iso, to_seconds
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store

LIFETIME = timedelta(days=90)
# Likes of one post within the same five minutes are one notification.
LIKES_WINDOW = timedelta(minutes=5)


class NotificationKind(StrEnum):
    """What happened."""

    LIKE = "like"
    COMMENT = "comment"
    FOLLOW = "follow"
    MENTION = "mention"


KINDS: Mapping[str, NotificationKind] = {kind.value: kind for kind in NotificationKind}


class Notification(Struct, frozen=True, gc=False):
    """A notification of an event that concerns a user. `actor_count` users caused it, `actor_id` last, at `created_at`.

    `notification_id` is the sort key, unique for the user. For likes it begins with the start of their window and
    stays, while their position in the list, by `created_at`, moves with each like.

    An item of another program may have nothing but its keys: attributes that it lacks are None, and `actor_count` is 0.
    An item without `expires_at` stays until it is read.
    """

    user_id: str
    notification_id: str
    kind: NotificationKind | None
    created_at: datetime
    expires_at: datetime | None
    actor_id: str | None
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


def told(notification: Notification) -> Write:
    """Return the write of a notification. If it exists, the actor is counted and replaces an earlier one."""
    key = key_in_table(notification)
    name = keys.notification_parts(notification.notification_id)[1]
    expires_at = notification.expires_at
    given = {
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
    present = {name: value for name, value in given.items() if value is not None}
    newest = "GSI_NOTIFSK" if notification.kind is NotificationKind.LIKE else ""
    return Write(FEED, key, {"actor_count": notification.actor_count}, {**fixed, **present}, newest=newest)


def key_in_table(notification: Notification) -> Key:
    return Key(keys.unread(notification.user_id), notification.notification_id)


async def retract(store: Store, notifications: Iterable[Notification]) -> None:
    """FEED-P6: delete unread notifications. A repeat changes nothing."""
    places = [key_in_table(notification) for notification in notifications]
    await store.write_all(keys.RETRACT, deletes=list(dict.fromkeys(places)))


async def retract_of_post(store: Store, author_id: str, post_id: str, since: datetime) -> None:
    """FEED-P6: Delete the author's unread notifications of a post whose keys begin at the moment `since` or later.

    Reads all unread notifications of the author since then, a page at a time: their keys name posts by a digest.
    """
    values = {"partition": keys.unread(author_id), "since": iso(since), "post": post_id}
    async for page in store.query_pages(keys.NOTIFICATIONS_OF_POST, values, attributes=("PK", "SK")):
        if page:
            await store.write_all(keys.RETRACT, deletes=[key_of(FEED, item) for item in page])


class Notifications:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def unread(self, user_id: str, span: Span) -> Page:
        """FEED-009: a user's unread notifications, newest first."""
        values = {"partition": keys.unread(user_id), "now": self._now.timestamp()}
        return await read_page(self._store, keys.UNREAD, [values], span)

    async def by_id(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-N4: one unread notification, or None; reads of one tick go out together."""
        return self._living(await self._store.get(keys.NOTIFICATION, Key(keys.unread(user_id), notification_id)))

    async def mark_read(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-W5: the notification that was read and is gone now, or None if there was none."""
        written = await self._store.delete(keys.MARK_READ, Key(keys.unread(user_id), notification_id))
        return self._living(written.item)

    def _living(self, item: Mapping[str, Any] | None) -> Notification | None:
        found = record(notification_from, item)
        return found if found and found.is_kept_at(self._now) else None
