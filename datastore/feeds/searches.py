"""Searches of posts and users: the index returns candidates, and the stored items decide (FEED-N5, FEED-N6)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct

from datastore.errors import Internal
from datastore.feeds.posts import Post, Posts
from datastore.feeds.users import User, Users
from datastore.feeds.visibility import Visibility, VisibilityPolicy
from datastore.keyspace.feeds import follows as follow_keys
from datastore.keyspace.feeds import search as keys
from datastore.model.composite_keys import second_part
from datastore.search import Audience, Kind, Position, SearchHit, SearchIndex
from datastore.search.queries import Query
from datastore.session.store import Store

Record = TypeVar("Record")

# The maximum number of index queries for one page, each for one candidate more than the page takes. A page that is
# still not full is cut off. A search therefore reads at most three times the posts of its estimate.
MAX_ROUNDS = 3
# The maximum number of a caller's followees, which one Query reads: as many as a user may follow.
MAX_FOLLOWED = 5000
# The estimate of a search in read units: the search itself, which is charged although it calls no DynamoDB, and the
# Query of the caller's followees, which takes 4 units for 250.
SEARCH_UNITS = 1.0
FOLLOWED_UNITS = 4.0


class SearchPage(Struct, Generic[Record], frozen=True):
    """A page of results, each with its position, and its record or the error of a damaged item."""

    results: list[tuple[Position, Record | Internal]]
    has_next: bool
    #: The position after which the next page begins. None for an empty last page.
    end: Position | None = None
    #: The rounds ended before the page was full: `end` is the last candidate examined, which may be hidden from the
    #: caller.
    is_cut_off: bool = False


class Searches:
    """One method for each access pattern. The index omits most hidden posts; the stored items decide."""

    def __init__(self, index: SearchIndex, store: Store, now: datetime, policy: VisibilityPolicy) -> None:
        self._index = index
        self._store = store
        self._posts = Posts(store, now, policy)
        self._users = Users(store, now)
        self._policy = policy
        self._following: Audience | None = None
        self._following_lock = asyncio.Lock()

    async def posts(self, query: Query, size: int, after: Position | None) -> SearchPage[Post]:
        """FEED-N5: return the matching posts that the viewer may see, the most relevant first."""
        return await self._page(Kind.POSTS, query, size, after, await self._audience(), self._visible)

    async def users(self, query: Query, size: int, after: Position | None) -> SearchPage[User]:
        """FEED-N6: return the users whose names match, the most relevant first."""
        return await self._page(Kind.USERS, query, size, after, None, self._user)

    async def _audience(self) -> Audience | None:
        """FEED-N5: return the audience of the viewer. The viewer's follows are read once per request."""
        viewer = self._policy.viewer
        if viewer.sees_all:
            return None
        if viewer.user_id is None:
            return Audience(None)
        async with self._following_lock:
            if self._following is None:
                self._following = Audience(viewer.user_id, await self._followees(viewer.user_id))
        return self._following

    async def _followees(self, user_id: str) -> frozenset[str] | None:
        """FEED-N5: return the users whom a user follows; None if there are too many."""
        values = follow_keys.following.values_of(user_id)
        page = await self._store.query(keys.SEARCH_FOLLOWED, values, limit=MAX_FOLLOWED + 1, attributes=("SK",))
        if page.next_start is not None or len(page.items) > MAX_FOLLOWED:
            return None
        return frozenset(second_part(item["SK"]) for item in page.items)

    async def _page(
        self,
        kind: Kind,
        query: Query,
        size: int,
        after: Position | None,
        audience: Audience | None,
        read: Callable[[SearchHit], Awaitable[Record | None]],
    ) -> SearchPage[Record]:
        """Query the index until the page has one result too many, the candidates end, or `MAX_ROUNDS` is reached."""
        self._store.meter.charge(SEARCH_UNITS)
        results: list[tuple[Position, Record | Internal]] = []
        for _ in range(MAX_ROUNDS):
            hits = await self._index.search(kind, query, size + 1, after, audience)
            results += await _read(hits, read)
            if len(results) > size:
                return SearchPage(results[:size], True, results[size - 1][0])
            if len(hits) <= size:
                return SearchPage(results, False, results[-1][0] if results else None)
            after = hits[-1].position
        return SearchPage(results, True, after, is_cut_off=True)

    async def _visible(self, hit: SearchHit) -> Post | None:
        if hit.visibility == Visibility.FOLLOWERS and hit.author:
            self._policy.prefetch_follow(hit.author, keys.SEARCH_POSTS)
        return await self._posts.visible(hit.id, keys.SEARCH_POSTS)

    async def _user(self, hit: SearchHit) -> User | None:
        return await self._users.by_id(hit.id, keys.SEARCH_USERS)


async def _read(
    hits: Sequence[SearchHit], read: Callable[[SearchHit], Awaitable[Record | None]]
) -> list[tuple[Position, Record | Internal]]:
    """Return the results that the caller may see. All items are read in one batch."""
    records = await asyncio.gather(*[_or_damage(read(hit)) for hit in hits])
    return [(hit.position, record) for hit, record in zip(hits, records, strict=True) if record is not None]


async def _or_damage(reading: Awaitable[Record | None]) -> Record | Internal | None:
    """Return the record, or the error of a damaged item, which replaces it as in other lists."""
    try:
        return await reading
    except Internal as damage:
        return damage
