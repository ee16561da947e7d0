"""Notifications: records, reads and writes. The table keeps a notification until it is read or expires."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from datastore.change_streams.exactly_once import Write
from datastore.dynamodb.records import record
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds import users
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.model.timestamps import from_iso, iso
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


def _moment_at(sort: str) -> datetime:
    return from_iso(keys.notification_parts(sort)[0])


class Notification(StoredItem, key=keys.unread_notification):
    """A notification of an event that concerns a user.

    An item of another program may have nothing but its keys: attributes that it lacks are None, and `actor_count` is 0.
    """

    user_id: str = stored.part()
    #: The sort key, unique for the user. For likes it contains the start of their window and never changes; their
    #: position in the list, by `created_at`, moves with each like.
    notification_id: str = stored.part()
    kind: NotificationKind | None = stored.choice("kind", NotificationKind, missing=None)
    created_at: datetime = stored.text("GSI_NOTIFSK", _moment_at, missing=stored.text("SK", _moment_at), encode=None)
    #: None: the notification stays until it is read.
    expires_at: datetime | None = stored.seconds("expiresAt", missing=None)
    #: The last user who caused the event, at `created_at`.
    actor_id: str | None = stored.text("actor_id", missing=None)
    #: The number of users who caused the event.
    actor_count: int = stored.number("actor_count", int, missing=0)
    post_id: str | None = stored.text("post_id", missing=None)
    comment_id: str | None = stored.text("comment_id", missing=None)

    def is_kept_at(self, now: datetime) -> bool:
        """Return whether the notification has not expired at `now`."""
        return self.expires_at is None or self.expires_at > now


def notification_write(notification: Notification) -> Write:
    """Return the write of a notification. If the item exists, it counts the actor and replaces an earlier actor."""
    name = keys.notification_parts(notification.notification_id)[1]
    item = notification.item() | keys.position.item(notification.user_id, notification.created_at, name)
    counted = {"actor_count": item.pop("actor_count")}
    values = {attribute: value for attribute, value in item.items() if attribute not in FEED.key_attributes()}
    newest = "GSI_NOTIFSK" if notification.kind is NotificationKind.LIKE else ""
    return Write(FEED, _key(notification), counted, values, newest=newest)


def _key(notification: Notification) -> Key:
    return keys.unread_notification(notification.user_id, notification.notification_id)


async def retract(store: Store, notifications: Iterable[Notification]) -> None:
    """FEED-P6: delete unread notifications. A repeat changes nothing."""
    await store.write_all(keys.RETRACT, deletes=list(dict.fromkeys(map(_key, notifications))))


async def retract_of_post(store: Store, author_id: str, post_id: str, since: datetime) -> None:
    """FEED-P6: delete the author's unread notifications of a post whose keys have the time `since` or later.

    Reads all unread notifications of the author since then, a page at a time: their keys identify posts by a digest.
    """
    values = {"partition": keys.unread_notification.partition_of(author_id), "since": iso(since), "post": post_id}
    async for page in store.query_pages(keys.NOTIFICATIONS_OF_POST, values, attributes=("PK", "SK")):
        if page:
            await store.write_all(keys.RETRACT, deletes=[key_of(FEED, item) for item in page])


async def may_receive(store: Store, user_id: str, author_id: str, visibility: Visibility) -> bool:
    """FEED-P6: return whether the user exists and may see a post of the author."""
    policy = VisibilityPolicy(store, Viewer(user_id))
    user, is_allowed = await asyncio.gather(
        store.get(keys.RECIPIENT, users.user(user_id)), policy.allows(author_id, visibility, keys.RECIPIENT)
    )
    return user is not None and is_allowed


class Notifications(Repository):
    """One method for each access pattern."""

    async def unread(self, user_id: str, span: Span) -> Page:
        """FEED-009: return a user's unread notifications, newest first."""
        values = keys.position.values_of(user_id)
        return await read_page(self._store, keys.UNREAD, [values], span)

    async def by_id(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-N4: return an unread notification, or None. Batched with other point reads."""
        key = keys.unread_notification(user_id, notification_id)
        return record(Notification.decoder, await self._store.get(keys.NOTIFICATION, key))

    async def mark_read(self, user_id: str, notification_id: str) -> Notification | None:
        """FEED-W5: delete a notification that was read. Return it as it was, or None if there was none."""
        written = await self._store.delete(keys.MARK_READ, keys.unread_notification(user_id, notification_id))
        return record(Notification.decoder, written.item)
