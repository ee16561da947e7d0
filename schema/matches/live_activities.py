"""GraphQL types and fields of Live Activities."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import live_activities as patterns
from datastore.matches import live_activities as records
from resolvers.matches import live_activities as resolve
from schema.connections import Connection
from schema.fields import VERSION, described, pattern_field
from schema.matches.devices import token_field
from schema.matches.lazy_types import match_field
from schema.nodes import Node, node_type

strawberry.enum(
    records.LiveActivityStatus,
    description=(
        "The status of a session. ACTIVE: it receives the match's updates. SUSPENDED: its token was "
        "rejected, and it waits for another one. ENDED: the user, the system or the end of the match ended it."
    ),
)


@node_type(
    records.LiveActivity,
    patterns.ACTIVITY,
    parts=("match_id", "user_id", "device_id"),
    owner="user_id",
    read=lambda context, *key: context.live_activities.by_key(*key),
    description="A Live Activity: a match on the lock screen of one device. A session lasts at most 12 hours.",
)
class LiveActivity(Node):
    match_id: strawberry.ID = described("The `matchId` of the match.")
    user_id: strawberry.ID = described("The id of the user.")
    device_id: strawberry.ID = described("The app's id of the device.")
    update_token = token_field("update_token", "The push token that receives the updates.")
    status: records.LiveActivityStatus = described("The status.")
    session_started_at: datetime = described("The time at which the session was started or restarted.")
    ended_at: datetime | None = described("The time at which the session ended; null before that.")
    end_reason: str | None = described(
        "The reason for the end: `user`, `system`, or the `reason` that the caller gave; null before the end."
    )
    suspended_at: datetime | None = described(
        "The time at which the token was rejected; null unless the session is suspended."
    )
    expires_at: datetime = described("The time at which the session expires.")
    version: int = described(VERSION)
    match = match_field("The match in its present state; null if it is unknown.")


@strawberry.type
class LiveActivityQueries:
    live_activities = pattern_field(
        patterns.ACTIVITIES_OF_USER,
        resolver=resolve.live_activities,
        graphql_type=Connection[LiveActivity],
        description="Return a user's Live Activity sessions of all matches, unordered. Users read their own; "
        "admins and the system read any user's.",
    )


@strawberry.type
class LiveActivityMutations:
    register_live_activity = pattern_field(
        patterns.REGISTER_ACTIVITY,
        resolver=resolve.register_live_activity,
        graphql_type=LiveActivity,
        description="Start or restart a session of a match on a device of the caller for 12 hours, and return it. "
        "A user may have sessions on at most 10 devices for each match. CONFLICT beyond, or if the match has ended. "
        "NOT_FOUND for an unknown match.",
    )
    update_live_activity = pattern_field(
        patterns.UPDATE_TOKEN,
        resolver=resolve.update_live_activity,
        graphql_type=LiveActivity,
        description="Change the push token of a session of the caller, and return the session. A suspended session "
        "becomes active again. NOT_FOUND if there is no such session, or it has ended.",
    )
    end_live_activity = pattern_field(
        patterns.END_ACTIVITY,
        resolver=resolve.end_live_activity,
        graphql_type=LiveActivity,
        description="End a session, and return it. Users end their own sessions, the system any user's. A session "
        "that has ended stays unchanged. NOT_FOUND if there is no such session.",
    )
    suspend_live_activity = pattern_field(
        patterns.SUSPEND_ACTIVITY,
        resolver=resolve.suspend_live_activity,
        graphql_type=LiveActivity,
        description="Suspend a session because its push token was rejected, and return it. NOT_FOUND if there is no "
        "such session, or it has ended.",
    )
