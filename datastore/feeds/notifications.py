"""Notifications: what one is, and how the table keeps it until it is read."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any

from msgspec import Struct

from datastore.decoding import Decoder, derived, number, text
from datastore.effects import Write
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.parts import Key, second_part
from datastore.moments import from_iso, from_seconds, to_seconds
from datastore.pages import Page, Span, read_page
from datastore.records import record
from datastore.store import Store

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
    """Something that happened to a user. `actor_count` people did it, `actor_id` the last of them.

    `created_at` of likes is the beginning of their window.
    """

    user_id: str
    name: str
    kind: NotificationKind
    created_at: datetime
    expires_at: datetime
    actor_id: str
    actor_count: int
    post_id: str | None
    comment_id: str | None

    @property
    def notification_id(self) -> str:
        """Unique among the user's: the sort key."""
        return keys.notification(self.user_id, self.created_at, self.name).sort


def is_notification(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith("USER#") and item_keys["PK"].endswith("#UNREAD")


notification_from = Decoder(
    Notification,
    user_id=text("PK", second_part),
    _place=text("SK", keys.notification_parts),
    name=derived(itemgetter(1), "_place"),
    kind=text("kind", KINDS),
    _moment=derived(itemgetter(0), "_place"),
    created_at=derived(from_iso, "_moment"),
    expires_at=number("expiresAt", from_seconds),
    actor_id=text("actor_id"),
    actor_count=number("actor_count", int),
    post_id=text("post_id", default=None),
    comment_id=text("comment_id", default=None),
)


def told(notification: Notification) -> Write:
    """What tells somebody so. Where it was told before, the actor replaces the last one and is counted."""
    key = keys.notification(notification.user_id, notification.created_at, notification.name)
    about = {"post_id": notification.post_id, "comment_id": notification.comment_id}
    fixed = {
        "GSI_NOTIFPK": key.partition,
        "GSI_NOTIFSK": key.sort,
        "kind": notification.kind.value,
        "actor_id": notification.actor_id,
        "expiresAt": to_seconds(notification.expires_at),
    }
    present = {name: value for name, value in about.items() if value is not None}
    return Write(FEED, key, add={"actor_count": notification.actor_count}, set={**fixed, **present})


async def retract(store: Store, notifications: Sequence[Notification]) -> None:
    """FEED-P6: delete unread notifications. A repeat changes nothing."""
    places = [keys.notification(one.user_id, one.created_at, one.name) for one in notifications]
    await store.write_all(keys.RETRACT, deletes=list(dict.fromkeys(places)))


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
        return found if found and found.expires_at > self._now else None
