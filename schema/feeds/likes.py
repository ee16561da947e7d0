"""What the API says about likes: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import strawberry

from datastore.keyspace.feeds import likes as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import likes as resolve
from schema.connections import Connection
from schema.fields import ask

if TYPE_CHECKING:
    from schema.feeds.posts import Post
    from schema.feeds.users import User

LazyPost = Annotated["Post", strawberry.lazy("schema.feeds.posts")]
LazyUser = Annotated["User", strawberry.lazy("schema.feeds.users")]


@strawberry.type(description="Somebody's liking of a post.")
class Like:
    post_id: strawberry.ID = strawberry.field(description="Which post.")
    post = ask(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=LazyPost | None,
        # Whether the caller follows its author is read too, of posts for followers.
        extent=Extent(reads=2),
        description="The post, or null if it is gone.",
    )
    user_id: strawberry.ID = strawberry.field(description="Who likes it.")
    user = ask(
        user_patterns.USER,
        resolver=resolve.user,
        by="user_id",
        graphql_type=LazyUser | None,
        description="The user as they are now.",
    )
    created_at: datetime = strawberry.field(description="Since when.")


@strawberry.type
class LikeQueries:
    likes = ask(
        patterns.LIKES,
        resolver=resolve.likes,
        graphql_type=Connection[Like],
        description="Who likes a post, by user id, the last first; nobody likes one that the caller may not see.",
    )


@strawberry.type
class LikeMutations:
    like_post = ask(
        patterns.LIKE_POST,
        resolver=resolve.like_post,
        graphql_type=Like,
        description="Like a post. Again, it answers the like there is and changes nothing. The post's `likeCount` "
        "follows a moment later (see `postEngagement`).",
    )
    unlike_post = ask(
        patterns.UNLIKE_POST,
        resolver=resolve.unlike_post,
        graphql_type=Like | None,
        description="Take one's like back: the like that was, or null if there was none. The post's `likeCount` "
        "follows a moment later.",
    )
