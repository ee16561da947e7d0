"""GraphQL types and fields of users of the feed."""

from datetime import datetime

import strawberry

from datastore.feeds import users as records
from datastore.keyspace import sightings
from datastore.keyspace.feeds import follows as follow_patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as patterns
from resolvers.feeds import follows as resolve_follows
from resolvers.feeds import posts as resolve_posts
from resolvers.feeds import users as resolve
from resolvers.sightings.sightings import reporters_by_id
from schema.connections import Connection
from schema.feeds.follows import Follower, Following
from schema.feeds.lazy_types import LazyPost, LazyUserProfile
from schema.fields import VERSION_BESIDE_COUNTS, batch_field, described, pattern_field
from schema.nodes import Node, node_type
from schema.photos.lazy_types import photo_user_field


@node_type(
    records.User,
    patterns.USER,
    parts=("user_id",),
    read=lambda context, *key: context.users.by_id(*key),
    description="A user of the feed. The counts are updated within moments. The response of a mutation contains the "
    "caller's own change.",
)
class User(Node):
    user_id: strawberry.ID = described("The user's id: the `sub` of the user's token.")
    name: str = described("The user's name, or the user's id if no name is stored.")
    bio: str | None = described("The user's description of themselves; null without one.")
    avatar_ref: str | None = described("A reference to the user's picture, as the user supplied it; null without one.")
    created_at: datetime | None = described(
        "The time at which the user joined the feed; null if another program stored the user without it."
    )
    version: int = described(VERSION_BESIDE_COUNTS)
    post_count = strawberry.field(
        resolver=resolve.post_count,
        graphql_type=int,
        description="The number of public posts and posts for followers. Private posts do not count.",
        metadata={"preloaded": "posts"},
    )
    follower_count = strawberry.field(
        resolver=resolve.follower_count,
        graphql_type=int,
        description="The number of followers.",
        metadata={"preloaded": "followers"},
    )
    following_count = strawberry.field(
        resolver=resolve.following_count,
        graphql_type=int,
        description="The number of users that this user follows.",
        metadata={"preloaded": "following"},
    )
    posts = pattern_field(
        post_patterns.POSTS_BY_AUTHOR,
        resolver=resolve_posts.posts_of_user,
        graphql_type=Connection[LazyPost],
        description="The user's posts that the caller may see, newest first.",
    )
    followers = batch_field(
        follow_patterns.FOLLOWERS,
        resolver=resolve_follows.followers_of_users,
        depends_on="user_id",
        graphql_type=Connection[Follower],
        description="The user's followers, newest first.",
    )
    following = batch_field(
        follow_patterns.FOLLOWED,
        resolver=resolve_follows.followed_by_users,
        depends_on="user_id",
        graphql_type=Connection[Following],
        description="The users that this user follows, by `userId`.",
    )
    user_profile = batch_field(
        sightings.USER_PROFILE,
        resolver=reporters_by_id,
        depends_on="user_id",
        graphql_type=LazyUserProfile | None,
        description="The user's profile as a reporter of sightings; null before the first report.",
    )
    photo_user = photo_user_field()
    followed_by_viewer = batch_field(
        follow_patterns.FOLLOWING,
        resolver=resolve_follows.followed_by_viewer,
        depends_on="user_id",
        graphql_type=bool | None,
        description="Whether the caller follows this user; null without a token.",
    )


@strawberry.type
class UserQueries:
    user = pattern_field(
        patterns.USER,
        resolver=resolve.user,
        graphql_type=User | None,
        description="Return a user of the feed; null if there is none.",
    )


@strawberry.type
class UserMutations:
    create_user = pattern_field(
        patterns.CREATE_USER,
        resolver=resolve.create_user,
        graphql_type=User,
        description="Join the feed, which posting and following require, and return the user. A repeated request "
        "returns the existing user and changes nothing.",
    )
    update_user = pattern_field(
        patterns.UPDATE_USER,
        resolver=resolve.update_user,
        graphql_type=User,
        description="Change the caller's name, description or picture, and return the user. NOT_FOUND before "
        "`createUser`.",
    )
