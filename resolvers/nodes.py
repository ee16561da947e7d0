"""The Relay fields `node` and `nodes`, which read objects by their global ids."""

import asyncio
from typing import Annotated, Any

import strawberry

from datastore.errors import BadUserInput
from datastore.model.access_patterns import MAX_PAGE_SIZE
from resolvers.earthquakes.nodes import NODE_READERS as EARTHQUAKE_READERS
from resolvers.feeds.nodes import NODE_READERS as FEED_READERS
from resolvers.matches.nodes import NODE_READERS as MATCH_READERS
from resolvers.photos.nodes import NODE_READERS as PHOTO_READERS
from resolvers.shared.context import Info
from resolvers.shared.node_ids import NodeReaders, read_node
from resolvers.sightings.nodes import NODE_READERS as SIGHTING_READERS

READERS: NodeReaders = {
    **EARTHQUAKE_READERS,
    **FEED_READERS,
    **MATCH_READERS,
    **PHOTO_READERS,
    **SIGHTING_READERS,
}

NodeId = Annotated[strawberry.ID, strawberry.argument(description="The global `id` of an object.")]
NodeIds = Annotated[list[strawberry.ID], strawberry.argument(description="The global ids of at most 100 objects.")]


async def node(info: Info, id: NodeId) -> Any:
    return await read_node(info.context, READERS, id, "id")


async def nodes(info: Info, ids: NodeIds) -> list[Any]:
    if len(ids) > MAX_PAGE_SIZE:
        raise BadUserInput(f"`ids` may contain at most {MAX_PAGE_SIZE} ids, not {len(ids)}.", field="ids")
    # An error affects only the entry of that id.
    return await asyncio.gather(
        *[read_node(info.context, READERS, id, f"ids[{index}]") for index, id in enumerate(ids)],
        return_exceptions=True,
    )
