"""Unread notifications: `USER#<id>#UNREAD` / `<ts>#<notification>`. Reading one deletes it."""

from datetime import datetime

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.queues import OverflowPolicy


def unread(user_id: str) -> str:
    """Return the partition of a user's notifications, in the table and in GSI_NOTIF."""
    return join("USER", user_id, "UNREAD")


def notification(user_id: str, moment: datetime, name: str) -> Key:
    return Key(unread(user_id), join(iso(moment), name))


def position(moment: datetime, name: str) -> str:
    """Return the sort key in GSI_NOTIF, with the time of the last event. The table's has that of the first event."""
    return join(iso(moment), name)


def notification_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the name in a notification's sort key, of the table or of GSI_NOTIF."""
    moment, name = split(sort)
    return moment, name


UNREAD = AccessPattern(
    id="FEED-009",
    question="A user's unread notifications, newest first",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("notifications",),
    index="GSI_NOTIF",
    key="GSI_NOTIFPK = :partition",
    # Items of other programs may have no `expiresAt`: they stay until they are read.
    filter=("(attribute_not_exists(expiresAt) OR expiresAt > :now)",),
    descending=True,
)
NOTIFICATION = AccessPattern(
    id="FEED-N4",
    question="An unread notification by its full key",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("node", "nodes"),
    key="PK = USER#<id>#UNREAD, SK = <ts>#<notification>",
)
MARK_READ = AccessPattern(
    id="FEED-W5",
    question="Mark a notification as read; a repeat changes nothing",
    table=FEED,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("markNotificationRead",),
)
NOTIFICATION_RECEIVED = AccessPattern(
    id="FEED-S1",
    question="Notifications as they arrive, and as further likes are added to one",
    table=FEED,
    operations=(),
    who=Who.USER,
    fields=("notificationReceived",),
    when_slow=OverflowPolicy.CLOSE,
)
RECIPIENT = AccessPattern(
    id="FEED-P6",
    question="Whether a mentioned name is a user, who follows the author if the post is followers-only",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = USER#<id>, SK = META or FOLLOWING#<followee>",
    # Read once for each mention: it must find a user or a follow that was just added.
    consistent=True,
)

NOTIFICATIONS_OF_POST = AccessPattern(
    id="FEED-P6",
    question="The author's unread notifications of a deleted post",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND SK >= :since",
    filter=("post_id = :post",),
    # A notification that the read misses would stay until it expires.
    consistent=True,
)
RETRACT = AccessPattern(
    id="FEED-P6",
    question="Delete the unread notifications of a deleted post or comment",
    table=FEED,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)

PATTERNS = (
    UNREAD,
    NOTIFICATION,
    MARK_READ,
    NOTIFICATION_RECEIVED,
    RECIPIENT,
    NOTIFICATIONS_OF_POST,
    RETRACT,
)
