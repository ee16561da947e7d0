"""What the API says about how a post is doing: the shape only."""

from collections.abc import AsyncGenerator

import strawberry

from datastore.keyspace.feeds import engagement as patterns
from resolvers.feeds import engagement as resolve
from schema.fields import listen


@strawberry.type(description="The counts of a post at a moment.")
class PostEngagement:
    post_id: strawberry.ID = strawberry.field(description="Which post.")
    like_count: int = strawberry.field(description="How many like it.")
    comment_count: int = strawberry.field(description="How many comments it has.")


@strawberry.type
class EngagementSubscriptions:
    post_engagement = listen(
        patterns.POST_ENGAGEMENT,
        resolver=resolve.post_engagement,
        graphql_type=AsyncGenerator[PostEngagement, None],
        description="The likes and comments of a post as they are counted: at first how many there are, then each "
        "change. Ends when the post is deleted, and with `FORBIDDEN` when the caller may not see it any more.",
    )
