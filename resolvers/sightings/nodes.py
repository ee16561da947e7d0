"""Global ids of sightings."""

import strawberry

from datastore.keyspace import sightings as sighting_keys
from datastore.sightings.reporters import UserProfile
from datastore.sightings.sightings import Sighting
from datastore.sightings.watches import Watch
from resolvers.shared.authorization import require
from resolvers.shared.context import Context
from resolvers.shared.node_ids import NodeReaders, global_id


def sighting_id(parent: strawberry.Parent[Sighting]) -> strawberry.ID:
    return global_id("Sighting", *sighting_keys.sighting_parts(parent.key))


def user_profile_id(parent: strawberry.Parent[UserProfile]) -> strawberry.ID:
    return global_id("UserProfile", parent.user_id)


def watch_id(parent: strawberry.Parent[Watch]) -> strawberry.ID:
    return global_id("Watch", parent.user_id, parent.area, parent.category, parent.watch_id)


async def _sighting(context: Context, area: str, moment: str, sighting_id: str) -> Sighting | None:
    return await context.sightings.by_key(sighting_keys.sighting(area, moment, sighting_id))


async def _user_profile(context: Context, user_id: str) -> UserProfile | None:
    return await context.reporters.by_id(user_id)


async def _watch(context: Context, user_id: str, area: str, category: str, watch_id: str) -> Watch | None:
    require(context.identity, sighting_keys.WATCH_NODE, owner=user_id)
    return await context.watches.by_key(sighting_keys.watch(user_id, area, category, watch_id))


NODE_READERS: NodeReaders = {
    "Sighting": (3, _sighting),
    "UserProfile": (1, _user_profile),
    "Watch": (4, _watch),
}
