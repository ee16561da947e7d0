"""The locks that instances of the cricket pipeline hold on matches and jobs (LOCK-4)."""

from datastore.keyspace.matches import locks as keys
from datastore.matches.locks import Lock, all_locks
from datastore.model.access_patterns import consistently
from resolvers.shared.arguments import Consistent
from resolvers.shared.authorization import require
from resolvers.shared.context import Info


async def locks(info: Info, consistent: Consistent = False) -> list[Lock]:
    require(info.context.identity, keys.ALL_LOCKS)
    return await all_locks(info.context.store, consistently(keys.ALL_LOCKS, consistent))
