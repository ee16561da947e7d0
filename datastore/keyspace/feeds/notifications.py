"""Unread notifications: `USER#<id>#UNREAD` / `<ts>#<notification>`. Reading one deletes it."""

from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import BATCH_WRITE, GET, AccessPattern, Expiry, Who
from datastore.model.composite_keys import split
from datastore.queues import OverflowPolicy


@item_key(FEED)
def unread_notification(user_id: str, notification_id: str) -> KeyParts:
    return ("USER", user_id, "UNREAD"), (notification_id,)


@item_key(FEED)
def notification(user_id: str, first_event_at: datetime, name: str) -> KeyParts:
    """Declare the form of the keys that this gateway writes."""
    return ("USER", user_id, "UNREAD"), (first_event_at, name)


@item_key(FEED, index="GSI_NOTIF")
def position(user_id: str, last_event_at: datetime, name: str) -> KeyParts:
    return ("USER", user_id, "UNREAD"), (last_event_at, name)


def notification_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the name in a notification's sort key, of the table or of GSI_NOTIF."""
    moment, name = split(sort)
    return moment, name


UNREAD = position.query(
    "FEED-009",
    "A user's unread notifications, newest first",
    Who.USER,
    ("notifications", "Me.notifications"),
    # Items of other programs may have no `expiresAt`: they stay until they are read.
    expiry=Expiry.SOMETIMES,
    descending=True,
)
NOTIFICATION = unread_notification.read(
    "FEED-N4", "An unread notification by its full key", Who.USER, ("node", "nodes"), expiry=Expiry.SOMETIMES
)
MARK_READ = unread_notification.delete(
    "FEED-W5",
    "Mark a notification as read; a repeat changes nothing",
    Who.USER,
    ("markNotificationRead",),
    expiry=Expiry.SOMETIMES,
)
NOTIFICATION_RECEIVED = AccessPattern(
    "FEED-S1",
    "Notifications as they arrive, and as further likes are added to one",
    FEED,
    (),
    Who.USER,
    ("notificationReceived",),
    expiry=Expiry.SOMETIMES,
    when_slow=OverflowPolicy.CLOSE,
)
RECIPIENT = AccessPattern(
    "FEED-P6",
    "Whether a mentioned name is a user, who follows the author if the post is followers-only",
    FEED,
    GET,
    key="PK = USER#<id>, SK = META or FOLLOWING#<followee>",
    # Read once for each mention: it must find a user or a follow that was just added.
    consistent=True,
)

NOTIFICATIONS_OF_POST = unread_notification.query(
    "FEED-P6",
    "The author's unread notifications of a deleted post",
    key="PK = :partition AND SK >= :since",
    filter=("post_id = :post",),
    # A notification that the read misses would stay until it expires.
    consistent=True,
)
RETRACT = AccessPattern("FEED-P6", "Delete the unread notifications of a deleted post or comment", FEED, BATCH_WRITE)
