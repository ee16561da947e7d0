"""Follows: records, reads and writes. A follow is two items: the follower's side, and the edge on the followee's."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, text
from datastore.dynamodb.records import record
from datastore.errors import BadUserInput, Conflict, NotFound
from datastore.feeds.users import no_profile
from datastore.keyspace.feeds import follows as keys
from datastore.keyspace.feeds import users as user_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, key_of, second_part
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store
from datastore.session.writes import Action

UNFOLLOW_ATTEMPTS = 5
MAX_EDGES = 50  # from one follower to one user; a transaction has at most 100 actions
# Each followed author with fan-out on read costs a Query for every page of the feed.
MAX_FOLLOWED = 5000


class Follow(Struct, frozen=True, gc=False):
    """A follow. The follower's feed contains the followee's posts of `since` and later."""

    follower_id: str
    followee_id: str
    since: datetime


def is_following(item_keys: Mapping[str, str]) -> bool:
    """Return whether the keys are of the follower's side, on which the pipeline depends: its key never changes."""
    return item_keys["SK"].startswith(keys.FOLLOWING_PREFIX) and item_keys["PK"].startswith("USER#")


def is_edge(item_keys: Mapping[str, str]) -> bool:
    """Return whether the keys are of an edge, the followee's side of a follow."""
    return item_keys["SK"].startswith(keys.FOLLOWER_PREFIX) and item_keys["PK"].startswith("FOLLOWEE#")


def _edge(followee_id: str, sort: str) -> Follow:
    follower_id, moment = keys.edge_parts(sort)
    return Follow(follower_id, followee_id, from_iso(moment))


# The follow in the follower's item, and in the edge, which consists of its key.
following_from = RecordDecoder(
    Follow,
    follower_id=text("PK", second_part),
    followee_id=text("SK", second_part),
    since=text("since", from_iso),
)
edge_from = RecordDecoder(_edge, followee_id=text("PK", second_part), sort=text("SK"))


class Follows:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def followers(self, user_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-008: return the edges of a user's followers, newest first."""
        values = {"partition": keys.followee(user_id)}
        return await read_page(self._store, keys.FOLLOWERS, [values], span, has_child_reads=has_child_reads)

    async def followed(self, user_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-008: return the follows of a user, by the id of the followee."""
        values = {"partition": keys.follower(user_id), "prefix": keys.FOLLOWING_PREFIX}
        return await read_page(self._store, keys.FOLLOWED, [values], span, has_child_reads=has_child_reads)

    async def follow(self, follower_id: str, followee_id: str) -> Follow:
        """FEED-W4: follow a user from now on. Return the existing follow, if there is one.

        Both users are read before the transaction: users are never deleted, and a condition check in the transaction
        would make concurrent follows of one user conflict with each other, and with the counting of followers.

        Raises `NotFound` if either user does not exist, `BadUserInput` if the follower's count is at its maximum.
        """
        existing = await self._check_follow(follower_id, followee_id)
        if existing is not None:
            return existing
        edges = await self._edges(follower_id, followee_id)
        follow = edge_from(edges[0]) if edges else Follow(follower_id, followee_id, from_iso(iso(self._now)))
        try:
            await self._store.transact(keys.FOLLOW, adopt_actions(edges) if edges else _follow_actions(follow))
        except TransactionCancelled as cancelled:
            existing = record(following_from, cancelled.items[0])
            if existing is not None:
                return existing
            if cancelled.reasons[-1] == "ConditionalCheckFailed":  # the edge was deleted meanwhile
                raise Conflict("This follow changes too often at the moment; try again.", retryable=True) from cancelled
            raise
        return follow

    async def _check_follow(self, follower_id: str, followee_id: str) -> Follow | None:
        """Return the existing follow. If there is none, raise the error that forbids a new one, or return None."""
        items = (
            keys.following(follower_id, followee_id),
            user_keys.user(follower_id),
            user_keys.user(followee_id),
        )
        following, follower, followee = await asyncio.gather(*[self._store.get(keys.FOLLOW, key) for key in items])
        if following is not None:
            return record(following_from, following)
        if follower is None:
            raise no_profile()
        if followee is None:
            raise NotFound(f"There is no user {followee_id!r}.")
        if follower.get("following", 0) >= MAX_FOLLOWED:
            raise BadUserInput(f"`userId` would exceed the maximum of {MAX_FOLLOWED:,} followed users.", field="userId")
        return None

    async def unfollow(self, follower_id: str, followee_id: str) -> Follow | None:
        """FEED-W4: delete a follow. Return it as it was, or None if there was none."""
        for _ in range(UNFOLLOW_ATTEMPTS):
            following = await self._store.get(keys.UNFOLLOW, keys.following(follower_id, followee_id))
            edges = await self._edges(follower_id, followee_id) if has_more_edges(following) else []
            follow = record(following_from, following) or (edge_from(edges[0]) if edges else None)
            if follow is None:
                return None
            try:
                await self._store.transact(keys.UNFOLLOW, _unfollow_actions(follow, following, edges))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[0] != "ConditionalCheckFailed":
                    raise
                continue  # another request deleted the follow meanwhile, and may have added it again
            return follow
        raise Conflict("This follow changes too often at the moment; try again.", retryable=True)

    async def _edges(self, follower_id: str, followee_id: str) -> list[Item]:
        """FEED-W4: return the edges of one follower to one user, the oldest first."""
        return await edges_of(self._store, keys.EDGES_OF_FOLLOWER, follower_id, followee_id)


async def edges_of(store: Store, pattern: AccessPattern, follower_id: str, followee_id: str) -> list[Item]:
    """Return the edges of one follower to one user, the oldest first; at most as many as a transaction deletes."""
    values = {"partition": keys.followee(followee_id), "prefix": keys.edges_prefix(follower_id)}
    page = await store.query(pattern, values, limit=MAX_EDGES)
    return sorted(page.items, key=lambda item: edge_from(item).since)


def edge_of(following: Mapping[str, Any]) -> Key:
    """Return the key of the edge that belongs to the follower's side of a follow."""
    follow = following_from(following)
    edge = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return Key(edge.partition, following.get("edge", edge.sort))


def has_more_edges(following: Mapping[str, Any] | None) -> bool:
    """Return whether there may be edges that the follower's side of a follow does not name."""
    return following is None or "more_edges" in following


def adopt_actions(edges: Sequence[Item]) -> list[Action]:
    """Return the actions that write the follower's side of the first edge. Another program wrote the edges."""
    edge = key_of(FEED, edges[0])
    follow = edge_from(edges[0])
    following = following_item(follow)
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
    return [
        Action("Put", item=following_item(follow), condition=keys.FOLLOW.condition),
        Action("Put", item=edge_item(follow)),
    ]


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


def following_item(follow: Follow) -> Item:
    """Return the item of the follower's side of a follow."""
    key = keys.following(follow.follower_id, follow.followee_id)
    return {"PK": key.partition, "SK": key.sort, "since": iso(follow.since)}


def edge_item(follow: Follow) -> Item:
    """Return the item of a follow's edge."""
    key = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "GSI_FOLPK": key.partition,
        "GSI_FOLSK": keys.edge_position(follow.since, follow.follower_id),
        "since": iso(follow.since),
    }
