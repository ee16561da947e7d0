"""What the API says about livestreams: the shape only."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.photos import livestreams as patterns
from datastore.photos import livestreams as records
from resolvers.photos import livestreams as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import VERSION, ask, listen

strawberry.enum(records.LivestreamState, description="Where a livestream is in its time.")


@strawberry.type(description="Something that is, was or will be shown as it happens.")
class Livestream(Node):
    id = strawberry.field(resolver=nodes.livestream_id, graphql_type=strawberry.ID, description="Globally unique.")
    livestream_id: strawberry.ID = strawberry.field(
        description="Unique among livestreams; sorts by the time it was made."
    )
    title: str = strawberry.field(description="What it is called.")
    description: str | None = strawberry.field(description="What there is to see.")
    stream_url: str = strawberry.field(description="Where it can be watched.")
    start_time: datetime = strawberry.field(description="When it begins.")
    end_time: datetime | None = strawberry.field(description="When it ends; null where that is not known.")
    created_at: datetime = strawberry.field(description="When it was announced.")
    version: int = strawberry.field(description=VERSION)
    state = strawberry.field(
        resolver=resolve.state,
        graphql_type=records.LivestreamState,
        description="UPCOMING before `startTime`, LIVE from then on, ENDED from `endTime` on; in an event, at its "
        "moment.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Livestream)


@strawberry.type
class LivestreamQueries:
    latest_livestream = ask(
        patterns.LATEST_LIVESTREAM,
        resolver=resolve.latest_livestream,
        graphql_type=Livestream | None,
        description="The livestream that was made last, or null.",
    )
    livestream = ask(
        patterns.LIVESTREAM,
        resolver=resolve.livestream,
        graphql_type=Livestream | None,
        description="A livestream by its id, or null.",
    )
    livestreams = ask(
        patterns.LIVESTREAMS,
        resolver=resolve.livestreams,
        graphql_type=Connection[Livestream],
        description="All livestreams, the last made first.",
    )


@strawberry.type
class LivestreamMutations:
    create_livestream = ask(
        patterns.CREATE_LIVESTREAM,
        resolver=resolve.create_livestream,
        graphql_type=Livestream,
        description="Announce a livestream. Asked for again with the same id, it answers the livestream there is and "
        "changes nothing.",
    )
    update_livestream = ask(
        patterns.UPDATE_LIVESTREAM,
        resolver=resolve.update_livestream,
        graphql_type=Livestream,
        description="Change a livestream. CONFLICT when others change its times again and again meanwhile.",
    )
    end_livestream = ask(
        patterns.END_LIVESTREAM,
        resolver=resolve.end_livestream,
        graphql_type=Livestream,
        description="End a livestream that is live: now is its `endTime`. One that has ended stays as it is; CONFLICT "
        "for one that has not begun.",
    )


@strawberry.type
class LivestreamSubscriptions:
    livestream_changed = listen(
        patterns.LIVESTREAM_CHANGED,
        resolver=resolve.livestream_changed,
        graphql_type=AsyncGenerator[Livestream, None],
        description="Livestreams as they are announced or changed, and as they begin and end: the hundred made last, "
        "and all that are announced or changed meanwhile. With an `id` that one alone, first as it stands; NOT_FOUND "
        "when there is none.",
    )
