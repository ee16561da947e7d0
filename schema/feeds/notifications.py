"""GraphQL types and fields of notifications."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.feeds import notifications as records
from datastore.keyspace.feeds import comments as comment_patterns
from datastore.keyspace.feeds import notifications as patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import notifications as resolve
from schema.connections import Connection
from schema.feeds.comments import Comment
from schema.feeds.lazy_types import post_field, user_field
from schema.fields import described, pattern_field, pattern_subscription
from schema.nodes import Node, node_type

strawberry.enum(
    records.NotificationKind,
    description="The kind of a notification: likes of a post, a comment on a post, a new follower, or a mention "
    "in a post or comment.",
)


@node_type(
    records.Notification,
    patterns.NOTIFICATION,
    parts=("user_id", "notification_id"),
    owner="user_id",
    read=lambda context, *key: context.notifications.by_id(*key),
    description="An unread notification of a user. Notifications are kept for at most 90 days.",
)
class Notification(Node):
    notification_id: strawberry.ID = described("The notification's id, unique among the user's notifications.")
    kind: records.NotificationKind | None = described(
        "The kind of the notification; null if another program stored none."
    )
    created_at: datetime = described(
        "The time of the event. For likes that are combined in one notification, the time of the last one."
    )
    expires_at: datetime | None = described(
        "The time at which the notification expires, read or not; null if it never expires."
    )
    actor_id: strawberry.ID | None = described(
        "The id of the user who caused the notification. If several users did, the id of the last one. "
        "Null if another program stored none."
    )
    actor = user_field("actor_id", "The `User` with the id `actorId`, as it is now; null if there is none.")
    actor_count: int = described(
        "The number of users who caused the notification. Likes within five minutes are combined in "
        "one notification, and count even if they were taken back. 0 if another program stored no actor."
    )
    post_id: strawberry.ID | None = described(
        "The id of the post that the notification is about; null if it is about no post."
    )
    post = post_field(
        "The post; null if the notification is about no post, the post was deleted, or the caller may "
        "no longer see it.",
        resolver=resolve.posts,
        depends_on="post_id",
    )
    comment_id: strawberry.ID | None = described(
        "The id of the comment that the notification is about; null if it is about no comment."
    )
    comment = pattern_field(
        comment_patterns.COMMENT,
        resolver=resolve.comment,
        graphql_type=Comment | None,
        # The comment, its post, and whether the caller follows the author of the post.
        extent=Extent(reads=3),
        description="The comment; null if the notification is about no comment, the comment was deleted, or the "
        "caller may no longer see its post.",
    )


@strawberry.type
class NotificationQueries:
    notifications = pattern_field(
        patterns.UNREAD,
        resolver=resolve.notifications,
        graphql_type=Connection[Notification],
        description="Return a user's unread notifications, newest first. Users read their own; admins and the "
        "system read any user's.",
    )


@strawberry.type
class NotificationMutations:
    mark_notification_read = pattern_field(
        patterns.MARK_READ,
        resolver=resolve.mark_notification_read,
        graphql_type=Notification | None,
        description="Mark a notification of the caller as read, which deletes it. Return the notification as it "
        "was, or null if it does not exist.",
    )


@strawberry.type
class NotificationSubscriptions:
    notification_received = pattern_subscription(
        patterns.NOTIFICATION_RECEIVED,
        resolver=resolve.notification_received,
        graphql_type=AsyncGenerator[Notification, None],
        description="Receive a user's notifications as they arrive. A notification of likes is sent again when "
        "more users join it. With `whenSlow: LATEST` the newest state of each notification waits. Users receive "
        "their own; admins and the system receive any user's.",
    )
