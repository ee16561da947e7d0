"""Follows: records, reads and writes. A follow is two items: the follower's side, and the edge on the followee's.

Other programs write and delete edges alone. `FollowEdges` makes the follower's side agree with them (FEED-P8).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record
from datastore.errors import Conflict, NotFound
from datastore.feeds.count_marks import CountMarks, marked_until, needs_mark
from datastore.feeds.users import no_profile
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import follows as keys
from datastore.keyspace.feeds import users as user_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, key_of, second_part, split
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span, read_page, read_pages
from datastore.session.store import Store
from datastore.session.writes import Action

UNFOLLOW_ATTEMPTS = RECONCILE_ATTEMPTS = 5
MAX_EDGES = 50  # from one follower to one user; a transaction has at most 100 actions
# Each followed author with fan-out on read costs a Query for every page of the feed.
MAX_FOLLOWED = 5000


class Follow(StoredItem, key=keys.following):
    """A follow, and the item of the follower's side. The follower's feed contains the followee's posts since `since`.

    The pipeline depends on the key of the item, which never changes.
    """

    follower_id: str = stored.part()
    followee_id: str = stored.part()
    since: datetime = stored.moment("since")
    #: Until then the follow is counted only if it has a mark (see `count_marks`).
    marked_until: datetime | None = stored.moment("marked_until", default=None)


is_following = keys.following.matches
#: Return whether the keys are of an edge, the followee's side of a follow.
is_edge = keys.edge.matches


def _moment_of(sort: str) -> datetime:
    _, _, moment = split(sort)
    return from_iso(moment)


# The decoder of edges.
edge_from = Follow.decoder.replacing(
    follower_id=stored.text("SK", second_part),
    followee_id=stored.text("PK", second_part),
    since=stored.text("SK", _moment_of),
)


class Follows(Repository):
    """One method for each access pattern."""

    async def followers(self, user_id: str, span: Span) -> Page:
        """FEED-008: return the edges of a user's followers, newest first."""
        return await read_page(self._store, keys.FOLLOWERS, [keys.edge_by_time.values_of(user_id)], span)

    def followers_of_each(
        self, user_ids: Sequence[str], spans: Sequence[Span], *, has_child_reads: bool
    ) -> Awaitable[list[Page | BaseException]]:
        """FEED-008: return a page for each of the users, or its error: see `followers`."""
        partitions = [*map(keys.edge_by_time.values_of, user_ids)]
        return read_pages(self._store, keys.FOLLOWERS, partitions, spans, has_child_reads=has_child_reads)

    async def followed_by(self, user_id: str, span: Span) -> Page:
        """FEED-008: return a user's follows, by the id of the followee."""
        return await read_page(self._store, keys.FOLLOWED, [keys.following.values_of(user_id)], span)

    def followed_by_each(
        self, user_ids: Sequence[str], spans: Sequence[Span], *, has_child_reads: bool
    ) -> Awaitable[list[Page | BaseException]]:
        """FEED-008: return for each of the users a page of the follows, by the id of the followee, or its error."""
        partitions = [*map(keys.following.values_of, user_ids)]
        return read_pages(self._store, keys.FOLLOWED, partitions, spans, has_child_reads=has_child_reads)

    async def follow(self, follower_id: str, followee_id: str) -> Follow:
        """FEED-W4: follow a user from now on. Return the existing follow, if there is one.

        Both users are read before the transaction: users are never deleted, and a condition check in the transaction
        would make concurrent follows of one user conflict with each other, and with the counting of followers.

        Raises `NotFound` if either user does not exist, `Conflict` if the follower's count is at its maximum.
        """
        existing = await self._check_follow(follower_id, followee_id)
        if existing is not None:
            return existing
        edges = await self._edges(follower_id, followee_id)
        since = edge_from(edges[0]).since if edges else from_iso(iso(self._now))
        follow = Follow(follower_id, followee_id, since, marked_until(self._now))
        try:
            await self._store.transact(keys.FOLLOW, adopt_actions(follow, edges) if edges else _follow_actions(follow))
        except TransactionCancelled as cancelled:
            existing = record(Follow.decoder, cancelled.items[0])
            if existing is not None:
                return existing
            if cancelled.reasons[-1] == "ConditionalCheckFailed":  # the edge was deleted meanwhile
                raise _changed_too_often() from cancelled
            raise
        return follow

    async def _check_follow(self, follower_id: str, followee_id: str) -> Follow | None:
        """Return the existing follow. If there is none, raise the error that forbids a new one, or return None."""
        items = (keys.following(follower_id, followee_id), user_keys.user(follower_id), user_keys.user(followee_id))
        following, follower, followee = await asyncio.gather(*[self._store.get(keys.FOLLOW, key) for key in items])
        if following is not None:
            return record(Follow.decoder, following)
        if follower is None:
            raise no_profile()
        if followee is None:
            raise NotFound(f"There is no user {followee_id!r}.")
        if follower.get("following", 0) >= MAX_FOLLOWED:
            raise Conflict(f"`userId` would exceed the maximum of {MAX_FOLLOWED:,} followed users.", field="userId")
        return None

    async def unfollow(self, follower_id: str, followee_id: str) -> Follow | None:
        """FEED-W4: delete a follow. Return it as it was, or None if there was none."""
        for _ in range(UNFOLLOW_ATTEMPTS):
            following = await self._store.get(keys.UNFOLLOW, keys.following(follower_id, followee_id))
            edges = await self._edges(follower_id, followee_id) if has_more_edges(following) else []
            follow = record(Follow.decoder, following) or (_uncounted(edges[0], self._now) if edges else None)
            if follow is None:
                return None
            if not needs_mark(follow.marked_until, self._now):
                await CountMarks(self._store, self._now).put(keys.following(follower_id, followee_id))
            try:
                await self._store.transact(keys.UNFOLLOW, _unfollow_actions(follow, following, edges))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[0] != "ConditionalCheckFailed":
                    raise
                continue  # another request deleted the follow meanwhile, and may have added it again
            return follow
        raise _changed_too_often()

    async def _edges(self, follower_id: str, followee_id: str) -> list[Item]:
        """FEED-W4: return the edges of one follower to one user, the oldest first."""
        return await edges_of(self._store, keys.EDGES_OF_FOLLOWER, follower_id, followee_id)


async def edges_of(store: Store, pattern: AccessPattern, follower_id: str, followee_id: str) -> list[Item]:
    """Return the edges of one follower to one user, the oldest first; at most as many as a transaction deletes."""
    values = {"partition": keys.edge.partition_of(followee_id), "prefix": keys.edges_prefix(follower_id)}
    page = await store.query(pattern, values, limit=MAX_EDGES)
    return sorted(page.items, key=lambda item: edge_from(item).since)


def edge_of(following: Mapping[str, Any]) -> Key:
    """Return the key of the edge that belongs to the follower's side of a follow."""
    follow = Follow.decoder(following)
    edge = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return Key(edge.partition, following.get("edge", edge.sort))


def has_more_edges(following: Mapping[str, Any] | None) -> bool:
    """Return whether there may be edges that the follower's side of a follow does not name."""
    return following is None or "more_edges" in following


def _uncounted(edge: Item, now: datetime) -> Follow:
    """Return the follow of an edge without the follower's side, which is not counted."""
    return replace(edge_from(edge), marked_until=marked_until(now))


def adopt_actions(follow: Follow, edges: Sequence[Item]) -> list[Action]:
    """Return the actions that write the follower's side of the first edge. Another program wrote the edges."""
    edge = key_of(FEED, edges[0])
    following = follow.item()
    if edge != edge_of(following):
        following["edge"] = edge.sort
    if len(edges) > 1:
        following["more_edges"] = True
    marked = {"since": iso(follow.since)}
    return [
        Action("Put", item=following, condition=keys.ADOPT_EDGE.condition),
        Action("Update", key=edge, update="SET since = :since", condition="attribute_exists(PK)", values=marked),
    ]


def _follow_actions(follow: Follow) -> list[Action]:
    return [Action("Put", item=follow.item(), condition=keys.FOLLOW.condition), Action("Put", item=edge_item(follow))]


def _unfollow_actions(follow: Follow, following: Item | None, edges: Sequence[Item]) -> list[Action]:
    edge_keys = [key_of(FEED, edge) for edge in edges]
    key = keys.following(follow.follower_id, follow.followee_id)
    if following is None:
        # There are edges only. A follow that was added since they were read must not lose only its edge.
        first = Action("Delete", key=key, condition=keys.FOLLOW.condition)
    else:
        first = Action("Delete", key=key, condition=keys.UNFOLLOW.condition, values={"since": following["since"]})
        edge_keys.append(edge_of(following))
    return [first, *[Action("Delete", key=edge_key) for edge_key in dict.fromkeys(edge_keys)]]


def edge_item(follow: Follow) -> Item:
    """Return the item of a follow's edge."""
    return {
        **keys.edge.item(follow.followee_id, follow.follower_id, follow.since),
        **keys.edge_by_time.item(follow.followee_id, follow.since, follow.follower_id),
        "since": iso(follow.since),
    }


@dataclass(frozen=True, slots=True)
class EdgePage:
    """A page of a Scan: the number of items scanned, and the follows of the edges without a follower's side."""

    scanned: int
    follows: list[Follow]


async def scan_edges(open_store: Callable[[], Store]) -> AsyncIterator[EdgePage]:
    """FEED-P8: yield the edges that may lack the follower's side in pages. `open_store` opens a store for each page."""
    start: Item | None = None
    while True:
        page = await open_store().scan_page(keys.SCAN_EDGES, {"prefix": keys.edge.prefix}, start=start)
        yield EdgePage(page.scanned, readable_records(edge_from, page.items))
        if (start := page.next_start) is None:
            return


def _changed_too_often() -> Conflict:
    return Conflict("This follow changes too often at the moment; try again.", retryable=True)


class FollowEdges:
    """The edge and the follower's side of follows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reconcile(self, follower_id: str, followee_id: str, *, inserted: bool) -> None:
        """Write or delete the follower's side so that it agrees with the stored edges. A repeat changes nothing.

        `inserted` means that an edge was added. If edges were only deleted and there is no follower's side, do nothing.

        Raises `Conflict` if other processes keep changing the same follow.
        """
        for _ in range(RECONCILE_ATTEMPTS):
            following = await self._store.get(keys.FOLLOW_EXISTS, keys.following(follower_id, followee_id))
            if following is None and not inserted:
                return
            edges = await edges_of(self._store, keys.EDGES, follower_id, followee_id)
            if await self._reconcile(following, edges):
                return
        raise _changed_too_often()

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
            follow = _uncounted(edges[0], self._store.now())
            await self._store.transact(keys.ADOPT_EDGE, adopt_actions(follow, edges))
        except TransactionCancelled as cancelled:
            if "ConditionalCheckFailed" not in cancelled.reasons:
                raise
            return False
        return True
