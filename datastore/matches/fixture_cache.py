"""The fixture cache: the provider's last snapshot of each match as compressed JSON, with a TTL (FXC-1 … FXC-6)."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record
from datastore.keyspace.matches import fixture_cache as keys
from datastore.matches.cricket import MatchPhase, MatchSnapshot
from datastore.matches.json_records import from_json, to_json
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store

UPCOMING_LIFETIME = timedelta(hours=12)
LIVE_LIFETIME = timedelta(minutes=30)
FINISHED_LIFETIME = timedelta(days=7)
COMPRESSION_LEVEL = 1  # zlib's fastest, for every change: the text shrinks to a twelfth


@dataclass(frozen=True, slots=True)
class CachedMatch:
    """A snapshot from the provider."""

    snapshot: MatchSnapshot
    #: The version of the live state that was made from it, 0 for none.
    version: int
    fetched_at: datetime


class FixtureCache:
    """One method for each access pattern. Expired snapshots are not returned."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def get(self, match_id: str, pattern: AccessPattern = keys.CACHED) -> CachedMatch | None:
        """FXC-1: return the snapshot of a match, or None. Batched with other point reads."""
        item = await self._store.get(pattern, keys.cached(match_id))
        if item is None or "snapshot" not in item or item.get("ttl", 0) <= self._now.timestamp():
            return None  # another program stores the provider's response in its own form
        return record(cached_from, item)

    async def get_many(self, match_ids: Sequence[str]) -> dict[str, CachedMatch]:
        """FXC-2: return the cached snapshots of these matches by id."""
        snapshots = await asyncio.gather(*[self.get(match_id, keys.CACHED_MANY) for match_id in match_ids])
        return {match_id: cached for match_id, cached in zip(match_ids, snapshots, strict=True) if cached is not None}

    async def of_league(self, league_id: str, span: Span) -> Page:
        """FXC-3: return the cached matches of a league, soonest first. The items have only keys and times."""
        values = {"partition": league_id, "now": self._now.timestamp()}
        return await read_page(self._store, keys.CACHED_OF_LEAGUE, [values], span)

    async def all(self) -> list[CachedMatch]:
        """FXC-4: return all snapshots."""
        items = await self._store.scan(keys.ALL_CACHED, now=self._now.timestamp())
        return readable_records(cached_from, [item for item in items if "snapshot" in item])

    async def put(self, snapshot: MatchSnapshot, version: int = 0) -> None:
        """FXC-5: store a snapshot."""
        await self._store.put(keys.CACHE, self._item(snapshot, version))

    async def put_all(self, snapshots: Sequence[MatchSnapshot]) -> None:
        """FXC-6: store snapshots from which no live state was made."""
        await self._store.write_all(keys.CACHE_MANY, puts=[self._item(snapshot, 0) for snapshot in snapshots])

    def _item(self, snapshot: MatchSnapshot, version: int) -> Item:
        match = snapshot.match
        return {
            "matchId": match.match_id,
            "leagueId": match.league_id,
            "startingAt": iso(match.start_time),
            "snapshot": zlib.compress(to_json(snapshot).encode(), COMPRESSION_LEVEL),
            "version": version,
            "fetchedAt": iso(self._now),
            "ttl": int((self._now + _lifetime(match.phase)).timestamp()),
        }


def _lifetime(phase: MatchPhase) -> timedelta:
    if phase.is_over:
        return FINISHED_LIFETIME
    return UPCOMING_LIFETIME if phase is MatchPhase.UPCOMING else LIVE_LIFETIME


def cached_from(item: Mapping[str, Any]) -> CachedMatch:
    try:
        text = zlib.decompress(item["snapshot"])
    except zlib.error as problem:
        raise ValueError(f"damaged: {problem}") from None
    return CachedMatch(from_json(text, MatchSnapshot), item["version"], from_iso(item["fetchedAt"]))
