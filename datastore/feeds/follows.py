"""Who follows whom: what an edge is, and how the table keeps it twice, for both ends."""

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
from datastore.session.store import Action, Store

UNFOLLOW_TRIES = 5
MOST_EDGES = 50  # of one follower to one user; a transaction has at most 100 actions
# Each followed author who is merged costs a Query for every page of the feed.
MOST_FOLLOWED = 5000


class Follow(Struct, frozen=True, gc=False):
    """`follower_id` follows `followee_id` since then. Its feed holds the followee's posts of that moment and later."""

    follower_id: str
    followee_id: str
    since: datetime


def is_following(item_keys: Mapping[str, str]) -> bool:
    """Whether it is the follower's side of an edge: the pipeline goes by it, since it is one item for all time."""
    return item_keys["SK"].startswith(keys.FOLLOWING_PREFIX) and item_keys["PK"].startswith("USER#")


def is_edge(item_keys: Mapping[str, str]) -> bool:
    """Whether the keys are those of the followee's side of a follow."""
    return item_keys["SK"].startswith(keys.FOLLOWER_PREFIX) and item_keys["PK"].startswith("FOLLOWEE#")


def _edge(followee_id: str, sort: str) -> Follow:
    follower_id, moment = keys.edge_parts(sort)
    return Follow(follower_id, followee_id, from_iso(moment))


# The follow in the follower's item, and in the followee's, which is all key.
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

    async def followers(self, user_id: str, span: Span, *, leads_on: bool = False) -> Page:
        """FEED-008: the edges that lead to a user, newest first."""
        values = {"partition": keys.followee(user_id)}
        return await read_page(self._store, keys.FOLLOWERS, [values], span, has_child_reads=leads_on)

    async def followed(self, user_id: str, span: Span, *, leads_on: bool = False) -> Page:
        """FEED-008: the followings of a user, by the id of the followed."""
        values = {"partition": keys.follower(user_id), "prefix": keys.FOLLOWING_PREFIX}
        return await read_page(self._store, keys.FOLLOWED, [values], span, has_child_reads=leads_on)

    async def follow(self, follower_id: str, followee_id: str) -> Follow:
        """FEED-W4: follow from now on, or the follow there is.

        Raises `NotFound` where one of both is no user, `BadUserInput` for who follows too many by what is counted.

        Users are never deleted, so that they are there is read before: a check in the transaction would make those who
        follow one person at the same time conflict with each other, and with the counting of followers.
        """
        there = await self._before(follower_id, followee_id)
        if there is not None:
            return there
        edges = await self._edges(follower_id, followee_id)
        follow = edge_from(edges[0]) if edges else Follow(follower_id, followee_id, from_iso(iso(self._now)))
        try:
            await self._store.transact(keys.FOLLOW, adoption(edges) if edges else _following(follow))
        except TransactionCancelled as cancelled:
            there = record(following_from, cancelled.items[0])
            if there is not None:
                return there
            if cancelled.reasons[-1] == "ConditionalCheckFailed":  # the edge was deleted meanwhile
                raise Conflict("This follow changes too often at the moment; try again.", retryable=True) from cancelled
            raise
        return follow

    async def _before(self, follower_id: str, followee_id: str) -> Follow | None:
        """The follow there is already. Where there is none, raises what stands in the way of one."""
        wanted = (
            keys.following(follower_id, followee_id),
            user_keys.user(follower_id),
            user_keys.user(followee_id),
        )
        following, follower, followee = await asyncio.gather(*[self._store.get(keys.FOLLOW, key) for key in wanted])
        if following is not None:
            return record(following_from, following)
        if follower is None:
            raise no_profile()
        if followee is None:
            raise NotFound(f"There is no user {followee_id!r}.")
        if follower.get("following", 0) >= MOST_FOLLOWED:
            raise BadUserInput(
                f"`userId` would be one more than the {MOST_FOLLOWED:,} whom one may follow.", field="userId"
            )
        return None

    async def unfollow(self, follower_id: str, followee_id: str) -> Follow | None:
        """FEED-W4: the follow that was taken back, or None if there was none."""
        for _ in range(UNFOLLOW_TRIES):
            following = await self._store.get(keys.UNFOLLOW, keys.following(follower_id, followee_id))
            edges = await self._edges(follower_id, followee_id) if has_more_edges(following) else []
            follow = record(following_from, following) or (edge_from(edges[0]) if edges else None)
            if follow is None:
                return None
            try:
                await self._store.transact(keys.UNFOLLOW, _unfollowing(follow, following, edges))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[0] != "ConditionalCheckFailed":
                    raise
                continue  # it was taken back meanwhile, and perhaps made anew
            return follow
        raise Conflict("This follow changes too often at the moment; try again.", retryable=True)

    async def _edges(self, follower_id: str, followee_id: str) -> list[Item]:
        """FEED-W4: the edges of one follower to one user, the oldest first."""
        return await edges_of(self._store, keys.EDGES_OF_FOLLOWER, follower_id, followee_id)


async def edges_of(store: Store, pattern: AccessPattern, follower_id: str, followee_id: str) -> list[Item]:
    """Return the edges of one follower to one user, the oldest first; at most as many as a transaction deletes."""
    values = {"partition": keys.followee(followee_id), "prefix": keys.edges_prefix(follower_id)}
    page = await store.query(pattern, values, limit=MOST_EDGES)
    return sorted(page.items, key=lambda item: edge_from(item).since)


def edge_of(following: Mapping[str, Any]) -> Key:
    """Return the key of the edge that belongs to the follower's side of a follow."""
    follow = following_from(following)
    edge = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return Key(edge.partition, following.get("edge", edge.sort))


def has_more_edges(following: Mapping[str, Any] | None) -> bool:
    """Whether there may be edges that the follower's side of a follow does not name."""
    return following is None or "more_edges" in following


def adoption(edges: Sequence[Item]) -> list[Action]:
    """Return the follower's side of the first edge, which makes edges of another program a follow."""
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


def _following(follow: Follow) -> list[Action]:
    return [
        Action("Put", item=following_item(follow), condition=keys.FOLLOW.condition),
        Action("Put", item=edge_item(follow)),
    ]


def _unfollowing(follow: Follow, following: Item | None, edges: Sequence[Item]) -> list[Action]:
    places = [key_of(FEED, edge) for edge in edges]
    key = keys.following(follow.follower_id, follow.followee_id)
    if following is None:
        # There are edges only: a follow that was made since they were read must not lose only its edge.
        first = Action("Delete", key=key, condition=keys.FOLLOW.condition)
    else:
        first = Action("Delete", key=key, condition=keys.UNFOLLOW.condition, values={"since": following["since"]})
        places.append(edge_of(following))
    return [first, *[Action("Delete", key=place) for place in dict.fromkeys(places)]]


def following_item(follow: Follow) -> Item:
    """The follower's side of a follow, as it is stored."""
    key = keys.following(follow.follower_id, follow.followee_id)
    return {"PK": key.partition, "SK": key.sort, "since": iso(follow.since)}


def edge_item(follow: Follow) -> Item:
    """The followee's side of a follow, as it is stored."""
    key = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "GSI_FOLPK": key.partition,
        "GSI_FOLSK": keys.edge_position(follow.since, follow.follower_id),
        "since": iso(follow.since),
    }
