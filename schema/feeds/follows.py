"""What the API says about who follows whom: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import strawberry

from datastore.keyspace.feeds import follows as patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import follows as resolve
from schema.connections import Connection
from schema.fields import ask

if TYPE_CHECKING:
    from schema.feeds.users import User

LazyUser = Annotated["User", strawberry.lazy("schema.feeds.users")]


@strawberry.type(description="Somebody who follows a user.")
class Follower:
    user_id = strawberry.field(
        resolver=resolve.follower_id, graphql_type=strawberry.ID, description="Who it is that follows."
    )
    user = ask(
        user_patterns.USER,
        resolver=resolve.follower,
        by="follower_id",
        graphql_type=LazyUser | None,
        description="The follower as they are now.",
    )
    followed_at = strawberry.field(resolver=resolve.followed_at, graphql_type=datetime, description="Since when.")


@strawberry.type(description="Somebody whom a user follows.")
class Following:
    user_id = strawberry.field(
        resolver=resolve.followee_id, graphql_type=strawberry.ID, description="Who it is that is followed."
    )
    user = ask(
        user_patterns.USER,
        resolver=resolve.followed,
        by="followee_id",
        graphql_type=LazyUser | None,
        description="The followed user as they are now.",
    )
    followed_at = strawberry.field(resolver=resolve.followed_at, graphql_type=datetime, description="Since when.")


@strawberry.type
class FollowQueries:
    followers = ask(
        patterns.FOLLOWERS,
        resolver=resolve.followers,
        graphql_type=Connection[Follower],
        description="Who follows a user, newest first.",
    )


@strawberry.type
class FollowMutations:
    follow = ask(
        patterns.FOLLOW,
        resolver=resolve.follow,
        graphql_type=Following,
        extent=Extent(written=2),
        description="Follow a user: their posts from now on come into one's feed. Again, it answers the follow there "
        "is and changes nothing. One may follow 5000. The counts of both users follow a moment later.",
    )
    unfollow = ask(
        patterns.UNFOLLOW,
        resolver=resolve.unfollow,
        graphql_type=Following | None,
        extent=Extent(written=2),
        description="Follow a user no longer: the follow that was, or null if there was none.",
    )
