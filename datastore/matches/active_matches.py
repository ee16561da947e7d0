"""Polled matches and their live state, with which the next tick is compared (AM-1 … AM-7).

A state is replaced only by its next version, and only by the holder of the fencing token (`fence`). The item contains
the parts that its version changed and the events since the version before, so the change feed carries everything that
a subscriber needs.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record, record_or_error
from datastore.dynamodb.requests import set_or_remove
from datastore.errors import Conflict, Internal
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures, no_match
from datastore.matches.live_list import read_live
from datastore.matches.live_state import (
    TICK_ATTRIBUTES,
    ActiveMatch,
    ActiveStatus,
    active_match_from,
    active_match_item,
    complete_from_fixture,
    initial_state,
)
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import iso
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from datastore.session.writes import WriteResult, is_stored

ENDED_LIFETIME = timedelta(hours=24)

logger = logging.getLogger(__name__)


class ActiveMatches:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime, scan_cache: ScanCache | None = None) -> None:
        self._store = store
        self._scan_cache = scan_cache
        self._now = now

    async def by_id(self, match_id: str, pattern: AccessPattern = keys.STATE) -> ActiveMatch | None:
        """AM-1: return an active match, or None. Batched with other point reads."""
        active = self._unexpired(await self._store.get(pattern, keys.active_match(match_id)))
        return None if active is None else await self._complete(active)

    async def latest(self, match_id: str) -> ActiveMatch | None:
        """AM-1: read an active match consistently, for a tick or a new subscription."""
        active = self._unexpired(await self._store.get(keys.STATE_FOR_TICK, keys.active_match(match_id)))
        return None if active is None else await self._complete(active, consistent=True)

    async def all(self) -> list[ActiveMatch]:
        """AM-2: return the matches in any status: active, idle, or ended."""
        return await self._complete_all(self._readable(await self._store.scan(keys.ALL_ACTIVE)))

    async def all_latest(self) -> list[ActiveMatch]:
        """AM-2: return the matches in any status, read consistently."""
        return self._readable(await self._store.scan(keys.RECONCILE))

    async def live(self, *, details: bool = False) -> list[ActiveMatch]:
        """AM-2: return the live matches, at most a second old.

        The index contains no lines and no balls. With `details` they are read for each match (AM-1), in one batch.
        """
        listed = await read_live(self._store, self._now, self._scan_cache)
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
        pattern, values = (
            (keys.ADD_TO_LIVE_INDEX, {"live": keys.LIVE}) if is_live else (keys.REMOVE_FROM_LIVE_INDEX, {})
        )
        key = keys.active_match(active.match_id)
        await self._store.update(pattern, key, active=ActiveStatus.ACTIVE.value, **values)

    async def live_in(self, league_code: str | None) -> list[ActiveMatch]:
        """CRIC-S2: return the live matches of a league, or of all leagues, read consistently."""
        items = await self._store.scan(keys.LIVE_SCORES, active=ActiveStatus.ACTIVE.value)
        live = await self._complete_all(self._readable(items), consistent=True)
        return [active for active in live if league_code in (None, active.league_code)]

    async def register(self, match: Match, *, instance_id: str | None = None) -> ActiveMatch:
        """AM-3: start polling a match. An idle match continues from its own state, another from its fixture.

        Registration creates no new version: the state is the same, and after its deletion only the version in the
        fixture can be continued.

        Raises `Conflict` if the match is active, or ended recently.
        """
        resting = await self.latest(match.match_id)
        if resting is not None and resting.status is ActiveStatus.ACTIVE and self._store.is_retry:
            return resting  # an earlier attempt of this mutation probably registered it
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
        values = {"idle": ActiveStatus.IDLE.value, "now": self._now.timestamp()}
        item = active_match_item(active)
        try:
            written = await self._store.put(keys.REGISTER, item, **values)
        finally:
            self._invalidate()
        if not (written.ok or (written.is_retry and is_stored(item, written.item))):
            raise _not_idle(match.match_id)
        return active

    async def claim(self, active: ActiveMatch, instance_id: str) -> ActiveMatch | None:
        """AM-4: take over a match in the given state. Return None if another instance was faster.

        This completes a partial state, so that every later write finds `version` and `fence`.
        """
        if active.is_partial:
            return await self._adopt(active, instance_id)
        values: dict[str, Any] = {
            "seen": active.fence,
            "active": ActiveStatus.ACTIVE.value,
            "me": instance_id,
            "now": iso(self._now),
            "live": keys.LIVE,
            "one": 1,
        }
        return _written_state(await self._store.update(keys.CLAIM, keys.active_match(active.match_id), **values))

    async def _adopt(self, active: ActiveMatch, instance_id: str) -> ActiveMatch | None:
        """Take over a partial state. Return None also for a match without a fixture, which could not be written."""
        if not active.league_code:
            logger.warning("Match %s has no fixture. Sync the fixtures to have it polled.", active.match_id)
            return None
        adopted = replace(
            active, instance_id=instance_id, fence=active.fence + 1, last_tick_at=self._now, is_partial=False
        )
        attributes = {name: value for name, value in active_match_item(adopted).items() if name != "matchId"}
        expression, values = set_or_remove(attributes)
        key = keys.active_match(active.match_id)
        written = await self._store.update(
            keys.ADOPT, key, update=expression, **values, active=ActiveStatus.ACTIVE.value
        )
        # After an ambiguous write, the first attempt's own write may fail the condition of the second.
        return adopted if written.ok or (written.is_retry and _is_same(written.item, adopted)) else None

    async def commit(self, active: ActiveMatch) -> bool:
        """AM-4: store the next version of a state. Return False if the fencing token or the version is outdated."""
        attributes = {name: value for name, value in active_match_item(active).items() if name in TICK_ATTRIBUTES}
        expression, values = set_or_remove(attributes)
        values |= {"fence": active.fence, "seen": active.version - 1, "active": ActiveStatus.ACTIVE.value}
        key = keys.active_match(active.match_id)
        written = await self._store.update(keys.COMMIT, key, update=expression, **values)
        # After an ambiguous write, the first attempt's own write may fail the condition of the second.
        return written.ok or (written.is_retry and _is_same(written.item, active))

    async def record_tick(self, match_id: str, fence: int) -> bool:
        """AM-4: record a tick without changes. Return False if the fencing token is outdated."""
        values: dict[str, Any] = {"fence": fence, "active": ActiveStatus.ACTIVE.value, "now": iso(self._now)}
        values["live"] = keys.LIVE
        return (await self._store.update(keys.RECORD_TICK, keys.active_match(match_id), **values)).ok

    async def set_idle(self, match_id: str, fence: int) -> bool:
        """AM-4: stop polling a match that has not ended. Return False if the fencing token is outdated."""
        values: dict[str, Any] = {
            "fence": fence,
            "active": ActiveStatus.ACTIVE.value,
            "idle": ActiveStatus.IDLE.value,
            "one": 1,
        }
        return (await self._store.update(keys.SET_IDLE, keys.active_match(match_id), **values)).ok

    async def reopen(self, active: ActiveMatch) -> bool:
        """AM-4: set an ended match idle, so that it can be registered again. Return False if its state changed."""
        values: dict[str, Any] = {
            "seen": active.fence,
            "ended": ActiveStatus.ENDED.value,
            "idle": ActiveStatus.IDLE.value,
            "one": 1,
        }
        return (await self._store.update(keys.REOPEN, keys.active_match(active.match_id), **values)).ok

    async def release(self, match_id: str, fence: int) -> bool:
        """AM-4: release a match for another instance. Return False if the fencing token is outdated."""
        values: dict[str, Any] = {"fence": fence, "active": ActiveStatus.ACTIVE.value, "one": 1}
        return (await self._store.update(keys.RELEASE, keys.active_match(match_id), **values)).ok

    async def finish(self, match_id: str, fence: int) -> bool:
        """AM-6: end the polling of a finished match. Return False if the fencing token is outdated."""
        values: dict[str, Any] = {"fence": fence, **self._ended_values()}
        return (await self._store.update(keys.FINISH, keys.active_match(match_id), **values)).ok

    async def deactivate(self, match_id: str) -> ActiveMatch:
        """AM-6: end the polling of a match by any instance. The state is kept for a day. Raises `NotFound`."""
        values = self._ended_values()
        try:
            active = _written_state(await self._store.update(keys.DEACTIVATE, keys.active_match(match_id), **values))
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
            raise Conflict(f"The match {match_id!r} is being polled: deactivate it first.")
        deleted = record_or_error(active_match_from, written.item) if written.item else None
        return None if isinstance(deleted, Internal) else deleted  # a damaged item is deleted too

    def _invalidate(self) -> None:
        if self._scan_cache is not None:
            self._scan_cache.invalidate(keys.ACTIVE_MATCHES)

    def _ended_values(self) -> dict[str, Any]:
        ttl = int((self._now + ENDED_LIFETIME).timestamp())
        return {"ended": ActiveStatus.ENDED.value, "ttl": ttl, "one": 1}

    async def _complete(self, active: ActiveMatch, *, consistent: bool = False) -> ActiveMatch:
        """Return the match, completed from its fixture if another program wrote the state."""
        if not active.is_partial:
            return active
        fixtures = Fixtures(self._store, self._now)
        match = await (fixtures.latest if consistent else fixtures.by_id)(active.match_id)
        return active if match is None else complete_from_fixture(active, match)

    async def _complete_all(self, actives: list[ActiveMatch], *, consistent: bool = False) -> list[ActiveMatch]:
        return await asyncio.gather(*[self._complete(active, consistent=consistent) for active in actives])

    def _unexpired(self, item: Item | None) -> ActiveMatch | None:
        active = record(active_match_from, item)
        return None if active is None or _has_expired(active, self._now) else active

    def _readable(self, items: list[Item]) -> list[ActiveMatch]:
        return self._sorted(readable_records(active_match_from, items))

    def _sorted(self, matches: list[ActiveMatch]) -> list[ActiveMatch]:
        matches = [active for active in matches if not _has_expired(active, self._now)]
        return sorted(matches, key=lambda active: active.match_id)


def _written_state(written: WriteResult) -> ActiveMatch | None:
    return record(active_match_from, written.item) if written.ok else None


def _has_expired(active: ActiveMatch, now: datetime) -> bool:
    return active.expires_at is not None and active.expires_at <= now


def _not_idle(match_id: str) -> Conflict:
    return Conflict(f"The match {match_id!r} is active or has ended: only an idle or unknown match can be registered.")


def _is_same(item: Item | None, active: ActiveMatch) -> bool:
    return item is not None and (item["version"], item["fence"]) == (active.version, active.fence)
