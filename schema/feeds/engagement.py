"""The GraphQL subscription to a post's counts."""

from collections.abc import AsyncGenerator

import strawberry

from datastore.keyspace.feeds import engagement as patterns
from resolvers.feeds import engagement as resolve
from schema.fields import pattern_subscription


@strawberry.type(description="The counts of a post at one moment.")
class PostEngagement:
    post_id: strawberry.ID = strawberry.field(description="The id of the post.")
    like_count: int = strawberry.field(description="The number of likes.")
    comment_count: int = strawberry.field(description="The number of comments.")


@strawberry.type
class EngagementSubscriptions:
    post_engagement = pattern_subscription(
        patterns.POST_ENGAGEMENT,
        resolver=resolve.post_engagement,
        graphql_type=AsyncGenerator[PostEngagement, None],
        description="Receive the present counts of likes and comments of a post, then each change. The "
        "subscription ends when the post is deleted, and with FORBIDDEN when the caller may no longer see it.",
    )
