"""Global ids of earthquakes."""

import strawberry

from datastore.earthquakes.events import Earthquake
from resolvers.shared.context import Context
from resolvers.shared.node_ids import NodeReaders, global_id


def earthquake_id(parent: strawberry.Parent[Earthquake]) -> strawberry.ID:
    return global_id("Earthquake", parent.event_id)


async def _earthquake(context: Context, event_id: str) -> Earthquake | None:
    return await context.earthquakes.by_id(event_id)


NODE_READERS: NodeReaders = {
    "Earthquake": (1, _earthquake),
}
