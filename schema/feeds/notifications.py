"""What the API says about notifications: the shape only."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import strawberry

from datastore.feeds import notifications as records
from datastore.keyspace.feeds import comments as comment_patterns
from datastore.keyspace.feeds import notifications as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import notifications as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.feeds.comments import Comment
from schema.feeds.posts import Post
from schema.feeds.users import User
from schema.fields import ask, listen

strawberry.enum(
    records.NotificationKind,
    description="What happened: likes of a post, a comment on one, somebody who follows, a mention in a post or "
    "comment.",
)


@strawberry.type(description="Something that happened to a user and that they have not read, for at most 90 days.")
class Notification(Node):
    id = strawberry.field(resolver=nodes.notification_id, graphql_type=strawberry.ID, description="Globally unique.")
    notification_id: strawberry.ID = strawberry.field(description="Unique among the user's.")
    kind: records.NotificationKind | None = strawberry.field(
        description="What happened; null where another program stored no kind."
    )
    created_at: datetime = strawberry.field(
        description="When it happened; of likes, when the last of those did that are one notification."
    )
    expires_at: datetime | None = strawberry.field(
        description="When it will be gone, read or not; null for one that stays until it is read."
    )
    actor_id: strawberry.ID | None = strawberry.field(
        description="Who did it: of several the last; null where another program stored no one."
    )
    actor = ask(
        user_patterns.USER,
        resolver=resolve.actor,
        by="actor_id",
        graphql_type=User | None,
        description="Who did it, as they are now.",
    )
    actor_count: int = strawberry.field(
        description="How many did it; of likes those who liked in the five minutes, also if they took it back since; "
        "0 where no actor is stored."
    )
    post_id: strawberry.ID | None = strawberry.field(description="The post it is about.")
    post = ask(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=Post | None,
        # Whether the caller follows its author is read too, of posts for followers.
        extent=Extent(reads=2),
        description="The post; null if there is none, it was deleted, or the caller may not see it any more.",
    )
    comment_id: strawberry.ID | None = strawberry.field(description="The comment it is about.")
    comment = ask(
        comment_patterns.COMMENT,
        resolver=resolve.comment,
        graphql_type=Comment | None,
        # Its post, and whether the caller follows that one's author.
        extent=Extent(reads=3),
        description="The comment; null likewise.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Notification)


@strawberry.type
class NotificationQueries:
    notifications = ask(
        patterns.UNREAD,
        resolver=resolve.notifications,
        graphql_type=Connection[Notification],
        description="A user's unread notifications, newest first. Users see their own.",
    )


@strawberry.type
class NotificationMutations:
    mark_notification_read = ask(
        patterns.MARK_READ,
        resolver=resolve.mark_notification_read,
        graphql_type=Notification | None,
        description="Have read a notification of one's own: it is gone then. Answers what it was, or null if it was "
        "gone already.",
    )


@strawberry.type
class NotificationSubscriptions:
    notification_received = listen(
        patterns.NOTIFICATION_RECEIVED,
        resolver=resolve.notification_received,
        graphql_type=AsyncGenerator[Notification, None],
        description="A user's notifications as they arrive; those of likes again as more people join them. With "
        "`whenSlow: LATEST` each waits as it is last.",
    )
