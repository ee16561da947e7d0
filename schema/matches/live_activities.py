"""What the API says about Live Activities: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import strawberry

from datastore.keyspace.matches import fixtures
from datastore.keyspace.matches import live_activities as patterns
from datastore.matches import live_activities as records
from resolvers.matches import live_activities as resolve
from schema.connections import Connection
from schema.fields import VERSION, ask

if TYPE_CHECKING:
    from schema.matches.fixtures import Match

LazyMatch = Annotated["Match", strawberry.lazy("schema.matches.fixtures")]

strawberry.enum(
    records.LiveActivityStatus,
    description=(
        "Where a session stands. ACTIVE: it gets the match's updates. SUSPENDED: its token was rejected, and it waits "
        "for another. ENDED: by the user, or with the match."
    ),
)


@strawberry.type(description="A session of a match on the lock screen of one device; it lives for 12 hours at most.")
class LiveActivity:
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    user_id: strawberry.ID = strawberry.field(description="Whose session.")
    device_id: strawberry.ID = strawberry.field(description="On which device: what its app calls it.")
    update_token = strawberry.field(
        resolver=resolve.update_token,
        graphql_type=str | None,
        description="The token that updates go to. Only its owner and the system may see it; null for others.",
    )
    status: records.LiveActivityStatus = strawberry.field(description="Where it stands.")
    session_started_at: datetime = strawberry.field(description="When it was begun, or begun anew.")
    ended_at: datetime | None = strawberry.field(description="When it ended.")
    end_reason: str | None = strawberry.field(description="Why it ended: `user`, `system`, or what was said.")
    suspended_at: datetime | None = strawberry.field(description="When its token was rejected.")
    expires_at: datetime = strawberry.field(description="When it is forgotten.")
    version: int = strawberry.field(description=VERSION)
    match = ask(
        fixtures.FIXTURE, resolver=resolve.match, graphql_type=LazyMatch | None, description="The match as it is now."
    )


@strawberry.type
class LiveActivityQueries:
    live_activities = ask(
        patterns.ACTIVITIES_OF_USER,
        resolver=resolve.live_activities,
        graphql_type=Connection[LiveActivity],
        description="The sessions of a user over all matches, in no particular order. Users see their own.",
    )


@strawberry.type
class LiveActivityMutations:
    register_live_activity = ask(
        patterns.REGISTER_ACTIVITY,
        resolver=resolve.register_live_activity,
        graphql_type=LiveActivity,
        description="Begin a session of a match on the caller's device, or begin it anew, for 12 hours; on at most 10 "
        "devices. A match that is over has none.",
    )
    update_live_activity_token = ask(
        patterns.UPDATE_TOKEN,
        resolver=resolve.update_live_activity_token,
        graphql_type=LiveActivity,
        description="Keep the new token of a session that has not ended; a suspended one is active again.",
    )
    end_live_activity = ask(
        patterns.END_ACTIVITY,
        resolver=resolve.end_live_activity,
        graphql_type=LiveActivity,
        description="End a session: users their own, the system any. One that has ended stays as it is.",
    )
    suspend_live_activity = ask(
        patterns.SUSPEND_ACTIVITY,
        resolver=resolve.suspend_live_activity,
        graphql_type=LiveActivity,
        description="Suspend a session, as the pipeline does when its token is rejected.",
    )
