"""GraphQL types and fields of follows between users."""

from datetime import datetime

import strawberry

from datastore.keyspace.feeds import follows as patterns
from datastore.keyspace.feeds.pipeline import LATEST_COUNTED, MARK_COUNTED, OWN_COUNT_UNITS
from datastore.keyspace.feeds.users import COUNTS as USER_COUNTS
from datastore.model.access_patterns import Extent
from resolvers.feeds import follows as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import user_field
from schema.fields import pattern_field
from schema.nodes import object_type


@object_type("followee_id", "follower_id", description="A follower of a user.")
class Follower:
    follower_id: strawberry.ID = strawberry.field(name="userId", description="The id of the follower.")
    user = user_field("follower_id", "The follower's `User`, as it is now; null if there is none.")
    created_at = strawberry.field(
        resolver=resolve.followed_at, graphql_type=datetime, description="The time at which the follow began."
    )


@object_type("follower_id", "followee_id", description="A user that another user follows.")
class Following:
    followee_id: strawberry.ID = strawberry.field(name="userId", description="The id of the followed user.")
    user = user_field("followee_id", "The followed user's `User`, as it is now; null if there is none.")
    created_at = strawberry.field(
        resolver=resolve.followed_at, graphql_type=datetime, description="The time at which the follow began."
    )


@strawberry.type
class FollowQueries:
    followers = pattern_field(
        patterns.FOLLOWERS,
        resolver=resolve.followers,
        graphql_type=Connection[Follower],
        description="Return the followers of a user, newest first. The list is empty for an unknown user.",
    )
    following = pattern_field(
        patterns.FOLLOWED,
        resolver=resolve.following,
        graphql_type=Connection[Following],
        description="Return the users that a user follows, by `userId`. The list is empty for an unknown user.",
    )


@strawberry.type
class FollowMutations:
    follow = pattern_field(
        patterns.FOLLOW,
        LATEST_COUNTED,
        USER_COUNTS,
        resolver=resolve.follow,
        graphql_type=Following,
        extent=Extent(written=2, own_counts=2 * OWN_COUNT_UNITS),
        description="Follow a user: posts written from now on appear in the caller's home feed. A repeated request "
        "returns the existing follow and changes nothing. A user may follow at most 5,000 others; CONFLICT beyond. "
        "The counts of both users contain the follow.",
    )
    unfollow = pattern_field(
        patterns.UNFOLLOW,
        LATEST_COUNTED,
        MARK_COUNTED,
        USER_COUNTS,
        resolver=resolve.unfollow,
        graphql_type=Following | None,
        extent=Extent(written=2, own_counts=2 * OWN_COUNT_UNITS),
        description="Unfollow a user. Return the follow that was deleted, or null if there was none. The counts "
        "of both users no longer contain it.",
    )
