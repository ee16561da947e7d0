"""Entries of a search index."""

from datetime import timedelta

from datastore.change_streams.change import position_of
from datastore.feeds.search_entries import post_entry
from datastore.model.timestamps import iso
from datastore.search import Audience, Kind, Position, SearchEntry, SearchHit, SearchIndex
from datastore.search.opensearch_index import OpenSearchIndex
from datastore.search.queries import query_of
from tests.support.served import NOON


def search_entry(id: str, text: str, at: int = 0, *, version: int = 1, **more: object) -> SearchEntry:
    """Return the entry of a post that was written at this number of seconds after noon."""
    item = {"text": text, "created_at": iso(NOON + timedelta(seconds=at)), "author_id": "ada", "visibility": "public"}
    return post_entry(id, position_of(str(version)), item | more)


def gone(id: str, version: int) -> SearchEntry:
    return post_entry(id, position_of(str(version)), None)


async def put_entries(index: SearchIndex, *entries: SearchEntry) -> None:
    await index.write(Kind.POSTS, entries)
    await refresh(index)


async def refresh(index: SearchIndex) -> None:
    if isinstance(index, OpenSearchIndex):
        await index.refresh()


async def hits(
    index: SearchIndex, text: str, limit: int = 50, after: Position | None = None, audience: Audience | None = None
) -> list[SearchHit]:
    return await index.search(Kind.POSTS, query_of(text, tags=True), limit, after, audience)


async def find_ids(index: SearchIndex, text: str, audience: Audience | None = None) -> list[str]:
    return [hit.id for hit in await hits(index, text, audience=audience)]
