"""GraphQL types and fields of follows between users."""

from datetime import datetime

import strawberry

from datastore.keyspace.feeds import follows as patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import follows as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import LazyUser
from schema.fields import pattern_field


@strawberry.type(description="A follower of a user.")
class Follower:
    user_id = strawberry.field(
        resolver=resolve.follower_id, graphql_type=strawberry.ID, description="The id of the follower."
    )
    user = pattern_field(
        user_patterns.USER,
        resolver=resolve.follower,
        depends_on="follower_id",
        graphql_type=LazyUser | None,
        description="The follower's present profile; null if there is none.",
    )
    followed_at = strawberry.field(
        resolver=resolve.followed_at, graphql_type=datetime, description="The time at which the follow began."
    )


@strawberry.type(description="A user that another user follows.")
class Following:
    user_id = strawberry.field(
        resolver=resolve.followee_id, graphql_type=strawberry.ID, description="The id of the followed user."
    )
    user = pattern_field(
        user_patterns.USER,
        resolver=resolve.followed,
        depends_on="followee_id",
        graphql_type=LazyUser | None,
        description="The followed user's present profile; null if there is none.",
    )
    followed_at = strawberry.field(
        resolver=resolve.followed_at, graphql_type=datetime, description="The time at which the follow began."
    )


@strawberry.type
class FollowQueries:
    followers = pattern_field(
        patterns.FOLLOWERS,
        resolver=resolve.followers,
        graphql_type=Connection[Follower],
        description="Return the followers of a user, newest first.",
    )


@strawberry.type
class FollowMutations:
    follow = pattern_field(
        patterns.FOLLOW,
        resolver=resolve.follow,
        graphql_type=Following,
        extent=Extent(written=2),
        description="Follow a user: posts written from now on appear in the caller's home feed. A repeated "
        "request returns the existing follow and changes nothing. A user may follow at most 5,000 others. The "
        "counts of both users are updated within moments.",
    )
    unfollow = pattern_field(
        patterns.UNFOLLOW,
        resolver=resolve.unfollow,
        graphql_type=Following | None,
        extent=Extent(written=2),
        description="Unfollow a user. Return the follow that was deleted, or null if there was none. The counts "
        "of both users are updated within moments.",
    )
