"""Who follows whom: what an edge is, and how the table keeps it twice, for both ends."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from datastore.attributes import Item
from datastore.client import TransactionCancelled
from datastore.decoding import Decoder, text
from datastore.errors import BadUserInput, Conflict, NotFound
from datastore.feeds.users import no_profile
from datastore.keyspace.feeds import follows as keys
from datastore.keyspace.feeds import users as user_keys
from datastore.keyspace.parts import second_part
from datastore.moments import from_iso, iso
from datastore.pages import Page, Span, read_page
from datastore.records import record
from datastore.store import Action, Store

UNFOLLOW_TRIES = 5
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


def _edge(followee_id: str, sort: str) -> Follow:
    follower_id, moment = keys.edge_parts(sort)
    return Follow(follower_id, followee_id, from_iso(moment))


# The follow in the follower's item, and in the followee's, which is all key.
following_from = Decoder(
    Follow,
    follower_id=text("PK", second_part),
    followee_id=text("SK", second_part),
    since=text("since", from_iso),
)
edge_from = Decoder(_edge, followee_id=text("PK", second_part), sort=text("SK"))


class Follows:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def followers(self, user_id: str, span: Span, *, leads_on: bool = False) -> Page:
        """FEED-008: the edges that lead to a user, newest first."""
        values = {"partition": keys.followee(user_id)}
        return await read_page(self._store, keys.FOLLOWERS, [values], span, leads_on=leads_on)

    async def followed(self, user_id: str, span: Span, *, leads_on: bool = False) -> Page:
        """FEED-008: the followings of a user, by the id of the followed."""
        values = {"partition": keys.follower(user_id), "prefix": keys.FOLLOWING_PREFIX}
        return await read_page(self._store, keys.FOLLOWED, [values], span, leads_on=leads_on)

    async def follow(self, follower_id: str, followee_id: str) -> Follow:
        """FEED-W4: follow from now on, or the follow there is.

        Raises `NotFound` where one of both is no user, `BadUserInput` for who follows too many by what is counted.

        Users are never deleted, so that they are there is read before: a check in the transaction would make those who
        follow one person at the same time conflict with each other, and with the counting of followers.
        """
        there = await self._before(follower_id, followee_id)
        if there is not None:
            return there
        follow = Follow(follower_id, followee_id, from_iso(iso(self._now)))
        try:
            await self._store.transact(keys.FOLLOW, _following(follow))
        except TransactionCancelled as cancelled:
            there = record(following_from, cancelled.items[0])
            if there is None:
                raise
            return there
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
            key = keys.following(follower_id, followee_id)
            follow = record(following_from, await self._store.get(keys.UNFOLLOW, key))
            if follow is None:
                return None
            try:
                await self._store.transact(keys.UNFOLLOW, _unfollowing(follow))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[0] != "ConditionalCheckFailed":
                    raise
                continue  # it was taken back meanwhile, and perhaps made anew
            return follow
        raise Conflict("This follow changes too often at the moment; try again.", retryable=True)


def _following(follow: Follow) -> list[Action]:
    return [
        Action("Put", item=following_item(follow), condition=keys.FOLLOW.condition),
        Action("Put", item=edge_item(follow)),
    ]


def _unfollowing(follow: Follow) -> list[Action]:
    since = {"since": iso(follow.since)}
    following = keys.following(follow.follower_id, follow.followee_id)
    edge = keys.edge(follow.followee_id, follow.follower_id, follow.since)
    return [
        Action("Delete", key=following, condition=keys.UNFOLLOW.condition, values=since),
        Action("Delete", key=edge),
    ]


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
    }
