"""Polled matches and their live state, with which the next tick is compared (AM-1 … AM-7).

A state is replaced only by its next version, and only by the holder of the fencing token (`fence`). The item contains
the parts that its version changed and the events since the version before, so the change feed carries everything that
a subscriber needs.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record, record_or_error
from datastore.dynamodb.requests import set_or_remove
from datastore.errors import Conflict, Internal
from datastore.items.repository import Repository
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures, no_match
from datastore.matches.live_state import (
    SETTLED,
    ActiveMatch,
    ActiveStatus,
    active_match_from,
    complete_from_fixture,
    initial_state,
)
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import iso
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from datastore.session.writes import WriteResult, is_stored

ENDED_LIFETIME = timedelta(hours=24)
# The values of expressions that are the same in all requests.
CONSTANTS = {"live": keys.LIVE, "one": 1, **{status.name.lower(): status.value for status in ActiveStatus}}

# The time for which a process uses the Scan before it tries the index again.
INDEX_RETRY_AFTER = timedelta(minutes=1)

logger = logging.getLogger(__name__)


class ActiveMatches(Repository):
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime, scan_cache: ScanCache | None = None) -> None:
        super().__init__(store, now)
        self._scan_cache = scan_cache

    async def by_id(self, match_id: str, pattern: AccessPattern = keys.STATE) -> ActiveMatch | None:
        """AM-1: return an active match, or None. Batched with other point reads."""
        active = record(active_match_from, await self._store.get(pattern, keys.active_match(match_id)))
        return None if active is None else await self._complete(active, consistent=pattern.consistent)

    async def latest(self, match_id: str) -> ActiveMatch | None:
        """AM-1: read an active match consistently, for a tick or a new subscription."""
        active = record(active_match_from, await self._store.get(keys.STATE_FOR_TICK, keys.active_match(match_id)))
        return None if active is None else await self._complete(active, consistent=True)

    async def all(self, pattern: AccessPattern = keys.ALL_ACTIVE) -> list[ActiveMatch]:
        """AM-2: return the matches in any status: active, idle, or ended, by id."""
        found = self._readable(await self._store.scan(pattern))
        return await self._complete_all(found, consistent=pattern.consistent)

    async def all_latest(self) -> list[ActiveMatch]:
        """AM-2: return the matches in any status, read consistently."""
        return self._readable(await self._store.scan(keys.RECONCILE))

    async def live(self, *, details: bool = False) -> list[ActiveMatch]:
        """AM-2: return the live matches, at most a second old.

        The index contains no lines and no balls. With `details` they are read for each match (AM-1), in one batch.
        """
        listed = await _read_live(self._store, self._now, self._scan_cache)
        live = self._sorted(listed.matches)
        return await (self._with_details(live) if details and not listed.has_details else self._complete_all(live))

    async def _with_details(self, live: list[ActiveMatch]) -> list[ActiveMatch]:
        """Return the matches with lines and balls, without damaged and deleted matches."""
        reads = [self.by_id(active.match_id, keys.LIVE_DETAILS) for active in live]
        results = await asyncio.gather(*reads, return_exceptions=True)
        for problem in results:
            if isinstance(problem, BaseException) and not isinstance(problem, Internal):
                raise problem
        return [active for active in results if isinstance(active, ActiveMatch)]

    async def update_live_index(self, active: ActiveMatch) -> None:
        """AM-4: add a match that another program stored to the index if it is live, else remove it from the index."""
        is_live = active.status is ActiveStatus.ACTIVE
        await self._update(keys.ADD_TO_LIVE_INDEX if is_live else keys.REMOVE_FROM_LIVE_INDEX, active.match_id)

    async def live_in(self, league_code: str | None) -> list[ActiveMatch]:
        """CRIC-S2: return the live matches of a league, or of all leagues, read consistently."""
        items = await self._store.scan(keys.LIVE_SCORES, active=ActiveStatus.ACTIVE.value)
        live = await self._complete_all(self._readable(items), consistent=True)
        return [active for active in live if league_code in (None, active.league_code)]

    async def register(self, match: Match, *, instance_id: str | None = None) -> ActiveMatch:
        """AM-3: start polling a match. An idle match continues from its own state, another from its fixture.

        Registration creates no new version: the state is the same, and after its deletion only the version in the
        fixture can be continued.

        Return a match that is active already as it is, unless the instance `instance_id` is to poll it.

        Raises `Conflict` if the match ended recently, or if the instance would be a second one.
        """
        resting = await self.latest(match.match_id)
        if resting is not None and resting.status is ActiveStatus.ACTIVE and instance_id is None:
            return resting
        if resting is not None and resting.status is not ActiveStatus.IDLE:
            raise _not_idle(match.match_id)
        active = initial_state(match) if resting is None else resting
        active = replace(
            active,
            status=ActiveStatus.ACTIVE,
            instance_id=instance_id,
            fence=max(active.fence, match.fence) + 1,
            last_tick_at=self._now if instance_id else None,
            events=(),
            changed=(),
            is_partial=False,
        )
        item = active.item()
        try:
            written = await self._store.put(keys.REGISTER, item, idle=ActiveStatus.IDLE.value)
        finally:
            self._invalidate()
        if written.ok or (written.is_retry and is_stored(item, written.item)):
            return active
        other = await self.latest(match.match_id)
        if other is not None and other.status is ActiveStatus.ACTIVE and instance_id is None:
            return other  # a concurrent request registered it
        raise _not_idle(match.match_id)

    async def claim(self, active: ActiveMatch, instance_id: str) -> ActiveMatch | None:
        """AM-4: take over a match in the given state. Return None if another instance was faster.

        This completes a partial state, so that every later write finds `version` and `fence`.
        """
        if active.is_partial:
            return await self._adopt(active, instance_id)
        values = {"seen": active.fence, "me": instance_id, "now": iso(self._now)}
        return _written_state(await self._update(keys.CLAIM, active.match_id, **values))

    async def _adopt(self, active: ActiveMatch, instance_id: str) -> ActiveMatch | None:
        """Take over a partial state. Return None also for a match without a fixture, which could not be written."""
        if not active.league_code:
            logger.warning("Match %s has no fixture. Sync the fixtures to have it polled.", active.match_id)
            return None
        adopted = replace(
            active, instance_id=instance_id, fence=active.fence + 1, last_tick_at=self._now, is_partial=False
        )
        return adopted if await self._write(keys.ADOPT, adopted, frozenset({"matchId"})) else None

    async def commit(self, active: ActiveMatch) -> bool:
        """AM-4: store the next version of a state. Return False if the fencing token or the version is outdated."""
        return await self._write(keys.COMMIT, active, SETTLED, fence=active.fence, seen=active.version - 1)

    async def _write(self, pattern: AccessPattern, active: ActiveMatch, kept: frozenset[str], **values: Any) -> bool:
        """Write the attributes of a state except those in `kept`. Return whether the condition held."""
        attributes = {name: value for name, value in active.item().items() if name not in kept}
        expression, more = set_or_remove(attributes)
        written = await self._update(pattern, active.match_id, update=expression, **more | values)
        # After an ambiguous write, the first attempt's own write may fail the condition of the second.
        return written.ok or (written.is_retry and _is_same(written.item, active))

    async def record_tick(self, match_id: str, fence: int) -> bool:
        """AM-4: record a tick without changes. Return False if the fencing token is outdated."""
        return (await self._update(keys.RECORD_TICK, match_id, fence=fence, now=iso(self._now))).ok

    async def set_idle(self, match_id: str, fence: int) -> bool:
        """AM-4: stop polling a match that has not ended. Return False if the fencing token is outdated."""
        return (await self._update(keys.SET_IDLE, match_id, fence=fence)).ok

    async def reopen(self, active: ActiveMatch) -> bool:
        """AM-4: set an ended match idle, so that it can be registered again. Return False if its state changed."""
        return (await self._update(keys.REOPEN, active.match_id, seen=active.fence)).ok

    async def release(self, match_id: str, fence: int) -> bool:
        """AM-4: release a match for another instance. Return False if the fencing token is outdated."""
        return (await self._update(keys.RELEASE, match_id, fence=fence)).ok

    async def finish(self, match_id: str, fence: int) -> bool:
        """AM-6: end the polling of a finished match. Return False if the fencing token is outdated."""
        return (await self._update(keys.FINISH, match_id, fence=fence, ttl=self._ttl())).ok

    async def deactivate(self, match_id: str) -> ActiveMatch:
        """AM-6: end the polling of a match by any instance. The state is kept for a day. Raises `NotFound`."""
        try:
            active = _written_state(await self._update(keys.DEACTIVATE, match_id, ttl=self._ttl()))
        finally:
            self._invalidate()
        if active is None:
            raise no_match(match_id)
        return active

    async def delete(self, match_id: str) -> ActiveMatch | None:
        """AM-7: delete a state. Return it as it was; None if there was none, or after an ambiguous write.

        Raises `Conflict` while the match is polled.
        """
        active = ActiveStatus.ACTIVE.value
        written = await self._store.delete(keys.DELETE, keys.active_match(match_id), active=active)
        if not written.ok:
            raise Conflict(f"The match {match_id!r} is being polled: end it first.")
        deleted = record_or_error(active_match_from, written.item) if written.item else None
        return None if isinstance(deleted, Internal) else deleted  # a damaged item is deleted too

    def _invalidate(self) -> None:
        if self._scan_cache is not None:
            self._scan_cache.invalidate(keys.ACTIVE_MATCHES)

    def _ttl(self) -> int:
        return int((self._now + ENDED_LIFETIME).timestamp())

    async def _update(self, pattern: AccessPattern, match_id: str, **values: Any) -> WriteResult:
        return await self._store.update(pattern, keys.active_match(match_id), **CONSTANTS | values)

    async def _complete(self, active: ActiveMatch, *, consistent: bool = False) -> ActiveMatch:
        """Return the match, completed from its fixture if another program wrote the state."""
        if not active.is_partial:
            return active
        fixtures = Fixtures(self._store, self._now)
        match = await (fixtures.latest if consistent else fixtures.by_id)(active.match_id)
        return active if match is None else complete_from_fixture(active, match)

    async def _complete_all(self, actives: list[ActiveMatch], *, consistent: bool = False) -> list[ActiveMatch]:
        return await asyncio.gather(*[self._complete(active, consistent=consistent) for active in actives])

    def _readable(self, items: list[Item]) -> list[ActiveMatch]:
        return self._sorted(readable_records(active_match_from, items))

    def _sorted(self, matches: list[ActiveMatch]) -> list[ActiveMatch]:
        return sorted(matches, key=lambda active: active.match_id)


def _written_state(written: WriteResult) -> ActiveMatch | None:
    return record(active_match_from, written.item) if written.ok else None


def _not_idle(match_id: str) -> Conflict:
    return Conflict(f"The match {match_id!r} is active or has ended: only an idle or unknown match can be registered.")


def _is_same(item: Item | None, active: ActiveMatch) -> bool:
    return item is not None and (item["version"], item["fence"]) == (active.version, active.fence)


class LiveMatchList(NamedTuple):
    """Live matches. `has_details` means that they include the lines and balls, which the index does not project."""

    matches: list[ActiveMatch]
    has_details: bool


async def _read_live(store: Store, now: datetime, scan_cache: ScanCache | None) -> LiveMatchList:
    """AM-2: return the live matches, from the scan cache at most a second old, without it newly read."""
    if scan_cache is None:
        listed = await _by_index(store)
        return listed if listed is not None else await _by_scan(store)
    refused_at = scan_cache.refused_at.get(keys.LIVE_MATCHES)
    if refused_at is None or not timedelta(0) <= now - refused_at < INDEX_RETRY_AFTER:
        listed = await scan_cache.read(store, keys.LIVE_MATCHES, _by_index)
        if listed is not None:
            return listed
        scan_cache.refused_at[keys.LIVE_MATCHES] = now
    return await scan_cache.read(store, keys.LIVE_MATCHES_BY_SCAN, _by_scan)


async def _by_index(store: Store) -> LiveMatchList | None:
    """Return None if the index is missing or in backfill."""
    values = {"live": keys.LIVE, "active": ActiveStatus.ACTIVE.value}
    try:
        items = [item async for item in store.query_all(keys.LIVE_MATCHES, values)]
    except RequestRefused as refused:
        if not _is_unavailable(refused):
            raise
        logger.warning(
            "The index %s of %s cannot be read (%s). Live matches are read by a Scan. Add the index with `tables "
            "create --update`, or wait for the end of its backfill.",
            keys.LIVE_MATCHES.index,
            store.prefix + keys.ACTIVE_MATCHES.name,
            refused.message,
        )
        return None
    return LiveMatchList(readable_records(active_match_from, items), has_details=False)


async def _by_scan(store: Store) -> LiveMatchList:
    items = await store.scan(keys.LIVE_MATCHES_BY_SCAN, active=ActiveStatus.ACTIVE.value)
    return LiveMatchList(readable_records(active_match_from, items), has_details=True)


def _is_unavailable(refused: RequestRefused) -> bool:
    """Return whether an index is missing or in backfill. DynamoDB has no error code for either."""
    texts = ("the specified index", "backfilling")
    return refused.code == "ValidationException" and any(text in refused.message for text in texts)
