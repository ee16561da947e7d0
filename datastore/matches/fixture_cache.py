"""The fixture cache: the provider's last snapshot of each match as compressed JSON, with a TTL (FXC-1 … FXC-6)."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from datastore.dynamodb.records import readable_records, record
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import fixture_cache as keys
from datastore.matches.cricket import Lifetimes, MatchSnapshot
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import iso
from datastore.session.pagination import Page, Span, read_page

LIFETIMES = Lifetimes(upcoming=timedelta(hours=12), live=timedelta(minutes=30), over=timedelta(days=7))


def _starting_at(cached: "CachedMatch") -> str:
    return iso(cached.snapshot.match.start_time)


def _ttl(cached: "CachedMatch") -> int:
    return int((cached.fetched_at + LIFETIMES.of(cached.snapshot.match.phase)).timestamp())


class CachedMatch(StoredItem, key=keys.cached):
    """A snapshot from the provider."""

    league_id = stored.computed("leagueId", attrgetter("snapshot.match.league_id"))
    starting_at = stored.computed("startingAt", _starting_at)
    ttl = stored.computed("ttl", _ttl)
    snapshot: MatchSnapshot = stored.compressed("snapshot", MatchSnapshot, typical=4250)
    #: The version of the live state that was made from it, 0 for none.
    version: int = stored.number("version")
    fetched_at: datetime = stored.moment("fetchedAt")

    @property
    def match_id(self) -> str:
        return self.snapshot.match.match_id


class FixtureCache(Repository):
    """One method for each access pattern. Expired snapshots are not returned."""

    async def get(self, match_id: str, pattern: AccessPattern = keys.CACHED) -> CachedMatch | None:
        """FXC-1: return the snapshot of a match, or None. Batched with other point reads."""
        item = await self._store.get(pattern, keys.cached(match_id))
        if item is None or "snapshot" not in item or "ttl" not in item:
            return None  # another program stores the provider's response in its own form
        return record(CachedMatch.decoder, item)

    async def get_many(self, match_ids: Sequence[str]) -> dict[str, CachedMatch]:
        """FXC-2: return the cached snapshots of these matches by id."""
        snapshots = await asyncio.gather(*[self.get(match_id, keys.CACHED_MANY) for match_id in match_ids])
        return {match_id: cached for match_id, cached in zip(match_ids, snapshots, strict=True) if cached is not None}

    async def of_league(self, league_id: str, span: Span) -> Page:
        """FXC-3: return the cached matches of a league, soonest first. The items have only keys and times."""
        values = {"partition": league_id}
        return await read_page(self._store, keys.CACHED_OF_LEAGUE, [values], span)

    async def all(self) -> list[CachedMatch]:
        """FXC-4: return all snapshots."""
        items = await self._store.scan(keys.ALL_CACHED)
        return readable_records(CachedMatch.decoder, [item for item in items if "snapshot" in item])

    async def put(self, snapshot: MatchSnapshot, version: int = 0) -> None:
        """FXC-5: store a snapshot."""
        await self._store.put(keys.CACHE, CachedMatch(snapshot, version, self._now).item())

    async def put_all(self, snapshots: Sequence[MatchSnapshot]) -> None:
        """FXC-6: store snapshots from which no live state was made."""
        puts = [CachedMatch(snapshot, 0, self._now).item() for snapshot in snapshots]
        await self._store.write_all(keys.CACHE_MANY, puts=puts)
