"""GraphQL types and fields of likes."""

from datetime import datetime

import strawberry

from datastore.keyspace.feeds import likes as patterns
from datastore.keyspace.feeds.pipeline import LATEST_COUNTED, MARK_COUNTED, OWN_COUNT_UNITS
from datastore.keyspace.feeds.posts import COUNTS as POST_COUNTS
from datastore.model.access_patterns import Extent
from resolvers.feeds import likes as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import post_field, user_field
from schema.fields import described, pattern_field
from schema.nodes import object_type


@object_type("post_id", "user_id", description="A user's like of a post.")
class Like:
    post_id: strawberry.ID = described("The id of the post.")
    post = post_field("The post; null if it was deleted or the caller may not see it.")
    user_id: strawberry.ID = described("The id of the user.")
    user = user_field("user_id", "The user's `User`, as it is now; null if there is none.")
    created_at: datetime = described("The time of the like.")


@strawberry.type
class LikeQueries:
    likes = pattern_field(
        patterns.LIKES,
        resolver=resolve.likes,
        graphql_type=Connection[Like],
        description="Return the likes of a post by `userId`, in descending order. The list is empty for a post that "
        "does not exist or that the caller may not see.",
    )


@strawberry.type
class LikeMutations:
    like_post = pattern_field(
        patterns.LIKE_POST,
        LATEST_COUNTED,
        POST_COUNTS,
        resolver=resolve.like_post,
        graphql_type=Like,
        extent=Extent(own_counts=OWN_COUNT_UNITS),
        description="Like a post, and return the like. A repeated request returns the existing like and changes "
        "nothing. The post's `likeCount` contains the like, in other responses within moments (see "
        "`postEngagement`). NOT_FOUND if the caller has no user in the feed or may not see the post.",
    )
    unlike_post = pattern_field(
        patterns.UNLIKE_POST,
        LATEST_COUNTED,
        MARK_COUNTED,
        POST_COUNTS,
        resolver=resolve.unlike_post,
        graphql_type=Like | None,
        extent=Extent(own_counts=OWN_COUNT_UNITS),
        description="Delete the caller's like of a post. Return the like as it was, or null if there was none. "
        "The post's `likeCount` no longer contains it.",
    )
