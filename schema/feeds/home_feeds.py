"""GraphQL types and fields of home feeds."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.keyspace.feeds import home_feeds as patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import home_feeds as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import post_field, user_field
from schema.fields import described, pattern_field, pattern_subscription
from schema.nodes import object_type

HOME_FEED_EXTENT = Extent(partitions=3, scanned=3)


@object_type("user_id", "post_id", description="An entry of a user's home feed: a post.")
class FeedEntry:
    post_id: strawberry.ID = described("The id of the post.")
    author_id: strawberry.ID | None = described(
        "The id of the author; null if another program stored no author and the caller may not see the post."
    )
    author = user_field("author_id", "The author's `User`, as it is now; null if there is none.")
    created_at: datetime = described("The time at which the post was written.")
    post = post_field(
        "The post; null if it was just deleted or the caller may no longer see it.",
        resolver=resolve.posts,
        depends_on=None,
    )


@strawberry.type
class HomeFeedQueries:
    home_feed = pattern_field(
        patterns.HOME_FEED,
        resolver=resolve.home_feed,
        graphql_type=Connection[FeedEntry],
        extent=HOME_FEED_EXTENT,
        description="Return a user's home feed, newest first: the posts of the followed users since the user "
        "follows them. Users read their own feed; admins and the system read any user's.",
    )


@strawberry.type
class HomeFeedSubscriptions:
    home_feed_updated = pattern_subscription(
        patterns.HOME_FEED_UPDATED,
        resolver=resolve.home_feed_updated,
        graphql_type=AsyncGenerator[FeedEntry, None],
        description="Receive posts as they arrive in a user's home feed, each once. With `whenSlow: LATEST` the "
        "newest post of each author waits. Users receive their own feed; admins and the system receive any user's.",
    )
