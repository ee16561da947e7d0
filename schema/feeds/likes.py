"""GraphQL types and fields of likes."""

from datetime import datetime

import strawberry

from datastore.keyspace.feeds import likes as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import likes as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import LazyPost, LazyUser
from schema.fields import pattern_field


@strawberry.type(description="A user's like of a post.")
class Like:
    post_id: strawberry.ID = strawberry.field(description="The id of the post.")
    post = pattern_field(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=LazyPost | None,
        # A post for followers takes a second read: whether the caller follows its author.
        extent=Extent(reads=2),
        description="The post; null if it was deleted or the caller may not see it.",
    )
    user_id: strawberry.ID = strawberry.field(description="The id of the user.")
    user = pattern_field(
        user_patterns.USER,
        resolver=resolve.user,
        depends_on="user_id",
        graphql_type=LazyUser | None,
        description="The user's present profile; null if there is none.",
    )
    created_at: datetime = strawberry.field(description="The time of the like.")


@strawberry.type
class LikeQueries:
    likes = pattern_field(
        patterns.LIKES,
        resolver=resolve.likes,
        graphql_type=Connection[Like],
        description="Return the likes of a post by user id, in descending order. The list is empty for a post "
        "that the caller may not see.",
    )


@strawberry.type
class LikeMutations:
    like_post = pattern_field(
        patterns.LIKE_POST,
        resolver=resolve.like_post,
        graphql_type=Like,
        description="Like a post, and return the like. A repeated request returns the existing like and changes "
        "nothing. The post's `likeCount` is updated within moments (see `postEngagement`). NOT_FOUND if the "
        "caller has no user in the feed or may not see the post.",
    )
    unlike_post = pattern_field(
        patterns.UNLIKE_POST,
        resolver=resolve.unlike_post,
        graphql_type=Like | None,
        description="Delete the caller's like of a post. Return the like as it was, or null if there was none. "
        "The post's `likeCount` is updated within moments.",
    )
