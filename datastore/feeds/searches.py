"""Searches of posts and users: the index names candidates, and the items themselves decide (FEED-N5, FEED-N6)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct

from datastore.errors import Internal
from datastore.feeds.posts import Post, Posts
from datastore.feeds.users import User, Users
from datastore.feeds.visibility import Sight, Visibility
from datastore.keyspace.feeds import search as keys
from datastore.metering import Meter
from datastore.search import Audience, Hit, Kind, Position, SearchIndex
from datastore.search.queries import Query
from datastore.store import Store

Record = TypeVar("Record")

# How often the index is asked for one page, and for how many candidates at a time. A caller's list ends where so many
# in a row are hidden from them.
MOST_ROUNDS = 3
MOST_CANDIDATES = 200
# What a search is charged with, in read units: so many, and for each result that the page may have.
SEARCH_UNITS = 1.0
POST_UNITS, USER_UNITS = 1.0, 0.5


class Found(Struct, Generic[Record], frozen=True):
    """A page of results: each with its place, as it is now or as the error that its damaged item makes of it."""

    results: list[tuple[Position, Record | Internal]]
    has_next: bool


class Searches:
    """One method for each access pattern.

    `meter` is charged with the same units whatever a search finds: a budget that followed the reads would tell a caller
    how many posts with some words are hidden from them. So `store` has a meter of its own.
    """

    def __init__(self, index: SearchIndex, store: Store, now: datetime, sight: Sight, meter: Meter) -> None:
        self._index = index
        self._posts = Posts(store, now, sight)
        self._users = Users(store, now)
        self._sight = sight
        self._meter = meter

    async def posts(self, query: Query, size: int, after: Position | None) -> Found[Post]:
        """FEED-N5: the posts that match and that the viewer may see, the most relevant first."""
        self._meter.charge(SEARCH_UNITS + size * POST_UNITS)
        viewer = self._sight.viewer
        audience = None if viewer.sees_all else Audience(viewer.user_id)
        return await self._page(Kind.POSTS, query, size, after, audience, self._visible)

    async def users(self, query: Query, size: int, after: Position | None) -> Found[User]:
        """FEED-N6: the users whose names match, the most relevant first."""
        self._meter.charge(SEARCH_UNITS + size * USER_UNITS)
        return await self._page(Kind.USERS, query, size, after, None, self._user)

    async def _page(
        self,
        kind: Kind,
        query: Query,
        size: int,
        after: Position | None,
        audience: Audience | None,
        read: Callable[[Hit], Awaitable[Record | None]],
    ) -> Found[Record]:
        """Ask for candidates until one more is shown than the page takes, they end, or the rounds do."""
        found: list[tuple[Position, Record | Internal]] = []
        limit = size + 1
        for _ in range(MOST_ROUNDS):
            hits = await self._index.search(kind, query, limit, after, audience)
            found += await _read(hits, read)
            if len(found) > size or len(hits) < limit:
                break
            after, limit = hits[-1].position, min(2 * limit, MOST_CANDIDATES)
        return Found(found[:size], len(found) > size)

    async def _visible(self, hit: Hit) -> Post | None:
        if hit.visibility == Visibility.FOLLOWERS and hit.author:
            self._sight.will_ask(hit.author, keys.SEARCH_POSTS)
        return await self._posts.visible(hit.id, keys.SEARCH_POSTS)

    async def _user(self, hit: Hit) -> User | None:
        return await self._users.by_id(hit.id, keys.SEARCH_USERS)


async def _read(
    hits: Sequence[Hit], read: Callable[[Hit], Awaitable[Record | None]]
) -> list[tuple[Position, Record | Internal]]:
    """Return the results that are there for the caller: all are read in one batch."""
    records = await asyncio.gather(*[_settled(read(hit)) for hit in hits])
    return [(hit.position, record) for hit, record in zip(hits, records, strict=True) if record is not None]


async def _settled(reading: Awaitable[Record | None]) -> Record | Internal | None:
    """Return what is read, or the error that a damaged item makes of it, as in other lists."""
    try:
        return await reading
    except Internal as damage:
        return damage
