"""What the API says about users of the feed: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.feeds import users as records
from datastore.keyspace.feeds import follows as follow_patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as patterns
from resolvers.feeds import follows as resolve_follows
from resolvers.feeds import posts as resolve_posts
from resolvers.feeds import users as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.feeds.follows import Follower, Following
from schema.fields import VERSION, ask

if TYPE_CHECKING:
    from schema.feeds.posts import Post

LazyPost = Annotated["Post", strawberry.lazy("schema.feeds.posts")]


@strawberry.type(description="Somebody in the feed. Counts follow what happens within moments.")
class User(Node):
    id = strawberry.field(resolver=nodes.user_id, graphql_type=strawberry.ID, description="Globally unique.")
    user_id: strawberry.ID = strawberry.field(description="The `sub` of the user's token.")
    name: str = strawberry.field(description="The name they go by; their id where none is stored.")
    bio: str | None = strawberry.field(description="What they say of themselves.")
    avatar_ref: str | None = strawberry.field(description="Where their picture is, as they gave it.")
    created_at: datetime | None = strawberry.field(
        description="When they entered the feed; null where another program stored them without it."
    )
    version: int = strawberry.field(description=VERSION)
    post_count = strawberry.field(
        resolver=resolve.post_count,
        graphql_type=int,
        description="How many posts they have for everybody and for followers; private ones do not count.",
    )
    follower_count = strawberry.field(
        resolver=resolve.follower_count, graphql_type=int, description="How many follow them."
    )
    following_count = strawberry.field(
        resolver=resolve.following_count, graphql_type=int, description="How many they follow."
    )
    posts = ask(
        post_patterns.POSTS_BY_AUTHOR,
        resolver=resolve_posts.posts_of_user,
        graphql_type=Connection[LazyPost],
        description="Their posts that the caller may see, newest first.",
    )
    followers = ask(
        follow_patterns.FOLLOWERS,
        resolver=resolve_follows.followers_of_user,
        graphql_type=Connection[Follower],
        description="Who follows them, newest first.",
    )
    following = ask(
        follow_patterns.FOLLOWED,
        resolver=resolve_follows.followed_by_user,
        graphql_type=Connection[Following],
        description="Whom they follow, by user id.",
    )
    followed_by_viewer = ask(
        follow_patterns.FOLLOWING,
        resolver=resolve_follows.followed_by_viewer,
        graphql_type=bool | None,
        description="Whether the caller follows them; null for one who is not signed in.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.User)


@strawberry.type
class UserQueries:
    user = ask(
        patterns.USER, resolver=resolve.user, graphql_type=User | None, description="A user of the feed, or null."
    )


@strawberry.type
class UserMutations:
    create_user = ask(
        patterns.CREATE_USER,
        resolver=resolve.create_user,
        graphql_type=User,
        description="Enter the feed, before one posts or follows. Asked for again, it answers the user there is and "
        "changes nothing.",
    )
    update_user = ask(
        patterns.UPDATE_USER,
        resolver=resolve.update_user,
        graphql_type=User,
        description="Change one's name, words or picture: the user as it is then.",
    )
