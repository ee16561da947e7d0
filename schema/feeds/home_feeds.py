"""What the API says about home feeds: the shape only."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.keyspace.feeds import home_feeds as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import home_feeds as resolve
from schema.connections import Connection
from schema.feeds.posts import Post
from schema.feeds.users import User
from schema.fields import ask, listen


@strawberry.type(description="The place of a post in a user's home feed.")
class FeedEntry:
    post_id: strawberry.ID = strawberry.field(description="Which post.")
    author_id: strawberry.ID | None = strawberry.field(
        description="Who wrote it; null where another program stored no author and the caller may not see the post."
    )
    author = ask(
        user_patterns.USER,
        resolver=resolve.author,
        by="author_id",
        graphql_type=User | None,
        description="The author as they are now.",
    )
    created_at: datetime = strawberry.field(description="When the post was written.")
    post = ask(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=Post | None,
        # Whether the caller follows its author is read too, of posts for followers.
        extent=Extent(reads=2),
        description="The post; null if it was deleted just now, or the caller may not see it any more.",
    )


@strawberry.type(description="One page of a home feed.")
class FeedConnection(Connection[FeedEntry]):
    pass


@strawberry.type
class HomeFeedQueries:
    home_feed = ask(
        patterns.HOME_FEED,
        resolver=resolve.home_feed,
        graphql_type=FeedConnection,
        extent=Extent(partitions=3, scanned=3),
        description="A user's home feed, newest first: the posts of those they follow, since they do. Users see their "
        "own.",
    )


@strawberry.type
class HomeFeedSubscriptions:
    home_feed_updated = listen(
        patterns.HOME_FEED_UPDATED,
        resolver=resolve.home_feed_updated,
        graphql_type=AsyncGenerator[FeedEntry, None],
        description="Posts as they arrive in a user's home feed, each once. With `whenSlow: LATEST` the newest of each "
        "author waits.",
    )
