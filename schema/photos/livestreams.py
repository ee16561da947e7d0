"""GraphQL types and fields of livestreams."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.keyspace.photos import livestreams as patterns
from datastore.photos import livestreams as records
from resolvers.photos import livestream_changes as resolve_changes
from resolvers.photos import livestreams as resolve
from schema.connections import Connection
from schema.fields import VERSION, described, pattern_field, pattern_subscription
from schema.nodes import Node, node_type

strawberry.enum(records.LivestreamStatus, description="The status of a livestream: before, during or after its time.")


@node_type(
    records.Livestream,
    patterns.LIVESTREAM,
    parts=("livestream_id",),
    read=lambda context, *key: context.livestreams.by_id(*key),
    description="A past, present or future livestream.",
)
class Livestream(Node):
    livestream_id: strawberry.ID = described(
        "The livestream's id, unique among livestreams. Ids sort by the time of creation."
    )
    title: str = described("The title, 1 to 200 characters.")
    description: str | None = described("The description, 1 to 2,000 characters; null without one.")
    stream_url: str = described("The address at which the livestream can be watched.")
    start_time: datetime = described("The start time.")
    end_time: datetime | None = described("The end time; null if it is unknown.")
    created_at: datetime = described("The time at which the livestream was announced.")
    version: int = described(VERSION)
    status = strawberry.field(
        resolver=resolve.status,
        graphql_type=records.LivestreamStatus,
        description="UPCOMING before `startTime`, LIVE from then on, ENDED from `endTime` on. In an event, the "
        "status at the moment of the event.",
    )


@strawberry.type
class LivestreamQueries:
    latest_livestream = pattern_field(
        patterns.LATEST_LIVESTREAM,
        resolver=resolve.latest_livestream,
        graphql_type=Livestream | None,
        description="Return the livestream that was created last; null if there is none.",
    )
    livestream = pattern_field(
        patterns.LIVESTREAM,
        resolver=resolve.livestream,
        graphql_type=Livestream | None,
        description="Return a livestream; null if there is none.",
    )
    livestreams = pattern_field(
        patterns.LIVESTREAMS,
        resolver=resolve.livestreams,
        graphql_type=Connection[Livestream],
        description="Return all livestreams, last created first.",
    )


@strawberry.type
class LivestreamMutations:
    create_livestream = pattern_field(
        patterns.CREATE_LIVESTREAM,
        resolver=resolve.create_livestream,
        graphql_type=Livestream,
        description="Announce a livestream, and return it. A repeated request with the same "
        "`livestreamId` returns the existing livestream and changes nothing.",
    )
    update_livestream = pattern_field(
        patterns.UPDATE_LIVESTREAM,
        resolver=resolve.update_livestream,
        graphql_type=Livestream,
        description="Change a livestream, and return it. CONFLICT if changes of its times by other callers collide "
        "with this one repeatedly.",
    )
    end_livestream = pattern_field(
        patterns.END_LIVESTREAM,
        resolver=resolve.end_livestream,
        graphql_type=Livestream,
        description="End a live livestream, and return it: its `endTime` becomes the present time. A livestream "
        "that has ended stays unchanged. CONFLICT if the livestream has not started.",
    )


@strawberry.type
class LivestreamSubscriptions:
    livestream_changed = pattern_subscription(
        patterns.LIVESTREAM_CHANGED,
        resolver=resolve_changes.livestream_changed,
        graphql_type=AsyncGenerator[Livestream, None],
        description="Receive livestreams as they are announced, change, start and end: the hundred created last, and "
        "all that are announced or changed after subscribing. With `whenSlow: LATEST` the newest state of each "
        "livestream waits. With an `id`, receive the present state of that livestream, then its changes; NOT_FOUND if "
        "it does not exist.",
    )
