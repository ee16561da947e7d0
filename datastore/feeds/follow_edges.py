"""Follow edges that other programs write or delete, and the follower's side that must agree with them (FEED-P8)."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.errors import Conflict
from datastore.feeds.follows import Follow, adopt_actions, edge_from, edge_of, edges_of, has_more_edges
from datastore.keyspace.feeds import follows as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import key_of
from datastore.session.store import Store

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class EdgePage:
    """A page of a Scan: the number of items scanned, and the follows of the edges without a follower's side."""

    scanned: int
    follows: list[Follow]


async def scan_edges(open_store: Callable[[], Store]) -> AsyncIterator[EdgePage]:
    """FEED-P8: yield the edges that may lack the follower's side in pages. `open_store` opens a store for each page."""
    start: Item | None = None
    while True:
        page = await open_store().scan_page(keys.SCAN_EDGES, {"prefix": keys.FOLLOWER_PREFIX}, start=start)
        yield EdgePage(page.scanned, readable_records(edge_from, page.items))
        if (start := page.next_start) is None:
            return


class FollowEdges:
    """The edge and the follower's side of follows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reconcile(self, follower_id: str, followee_id: str, *, inserted: bool) -> None:
        """Write or delete the follower's side so that it agrees with the stored edges. A repeat changes nothing.

        `inserted` means that an edge was added. If edges were only deleted and there is no follower's side, do nothing.

        Raises `Conflict` if other processes keep changing the same follow.
        """
        for _ in range(ATTEMPTS):
            following = await self._store.get(keys.FOLLOW_EXISTS, keys.following(follower_id, followee_id))
            if following is None and not inserted:
                return
            edges = await edges_of(self._store, keys.EDGES, follower_id, followee_id)
            if await self._reconcile(following, edges):
                return
        raise Conflict("This follow changes too often at the moment; try again.", retryable=True)

    async def _reconcile(self, following: Item | None, edges: list[Item]) -> bool:
        """Write or delete the follower's side. Return False if either side changed meanwhile."""
        if following is None:
            return not edges or await self._adopt(edges)
        if not edges:
            key = key_of(FEED, following)
            return (await self._store.delete(keys.DELETE_FOLLOWING, key, since=following["since"])).ok
        own = edge_of(following)
        if has_more_edges(following) or all(key_of(FEED, edge) == own for edge in edges):
            return True
        return (await self._store.update(keys.MARK_MORE_EDGES, key_of(FEED, following), yes=True)).ok

    async def _adopt(self, edges: list[Item]) -> bool:
        try:
            await self._store.transact(keys.ADOPT_EDGE, adopt_actions(edges))
        except TransactionCancelled as cancelled:
            if "ConditionalCheckFailed" not in cancelled.reasons:
                raise
            return False
        return True
