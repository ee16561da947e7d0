"""The search index of the feed: its entries, and the protocol of its two implementations.

The index holds words and ids, and is derived from the table `feed`: it can be built again at any time. Search results
are candidates. The caller of a search reads the items themselves and checks their visibility.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NoReturn, Protocol

from msgspec import Struct

from datastore.errors import Unavailable
from datastore.search.queries import Query

# The version of entries from a scan: any change in the stream is newer.
SCANNED = ""


class Kind(StrEnum):
    """The kinds of entries that can be searched."""

    POSTS = "posts"
    USERS = "users"


class SearchEntry(Struct, frozen=True):
    """The state of one post or user in the index.

    `version` orders the states of one id: the padded sequence number of the change that led to it, or `SCANNED`.
    `order` sorts equally relevant entries, the highest first (see `feeds.search_entries.order_of`). No search finds a
    `removed` entry. It is kept for its version, so that a late change does not restore it.
    """

    id: str
    version: str
    order: int = 0
    words: str = ""
    tags: str = ""
    author: str = ""
    visibility: str = ""
    removed: bool = False


class Position(Struct, frozen=True):
    """The position of a result: its relevance, its order, and its id as the tie-breaker."""

    score: int
    order: int
    id: str


class SearchHit(Struct, frozen=True):
    """A search result: its position, and the author and visibility in the index, known before the item is read."""

    position: Position
    author: str
    visibility: str

    @property
    def id(self) -> str:
        return self.position.id


class Audience(Struct, frozen=True):
    """The viewer of a search. It only narrows the candidates; the caller still checks each post's visibility.

    Other users' private posts are excluded, and their posts for followers unless the author is in `followees`.
    """

    #: None for a caller who is not signed in, and follows no user.
    user_id: str | None
    #: The users whom the caller follows. None if they are unknown: posts for followers are then candidates.
    followees: frozenset[str] | None = frozenset()


class Status(Struct, frozen=True):
    """The state of the index."""

    #: The number of entries by kind.
    entries: dict[Kind, int]
    #: The ARN of the stream that the index follows.
    source: str | None = None
    #: The end of the last rebuild.
    built_at: datetime | None = None
    #: The id of an unfinished rebuild.
    building: str | None = None


class SearchIndex(Protocol):
    """An index that any number of processes share. Each method raises `Unavailable` while the index cannot be used.

    A rebuild fills a second index and then swaps the two. `begin_rebuild` creates it. From then on `write` applies to
    both indexes. `fill` adds scanned entries to the new index unless it has a newer version. `finish_rebuild` replaces
    the first index with it. The caller scans the table after `begin_rebuild` with consistent reads, so the scan finds
    all changes that `write` applied to the first index alone.
    """

    async def write(self, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        """Write each entry unless the index has the same or a later version of it."""

    async def search(
        self, kind: Kind, query: Query, limit: int, after: Position | None = None, audience: Audience | None = None
    ) -> list[SearchHit]:
        """Return up to `limit` results after `after`, the most relevant first. No audience: no result is excluded."""

    async def begin_rebuild(self) -> str:
        """Begin a rebuild and abandon any unfinished one. Return its id."""

    async def fill(self, build: str, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        """Add scanned entries to the index that is being built. Raises `BuildReplaced`."""

    async def finish_rebuild(self, build: str, source: str, now: datetime) -> None:
        """Replace the current index with the built one. Raises `BuildReplaced`."""

    async def status(self) -> Status:
        """Return the state of the index."""

    async def aclose(self) -> None:
        """Release files and connections."""


class BuildReplaced(Exception):
    """Another rebuild has begun and replaced the index that this one was filling."""

    def __init__(self) -> None:
        super().__init__("Another rebuild of the search index has begun: this one has stopped.")


class NoIndex(SearchIndex):
    """The index of an installation on AWS without GATEWAY_SEARCH_URL: every call raises `Unavailable`."""

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Unavailable("Search is not configured: the operator sets GATEWAY_SEARCH_URL.")

    write = search = begin_rebuild = fill = finish_rebuild = status = _refuse

    async def aclose(self) -> None:
        pass
