"""Matches that are polled, and the state that the next tick is compared with (AM-1 … AM-7).

A state is replaced only by the next version of it, and only by whoever holds the match (`fence`). What a version
changed, and the events since the one before, stand in the item: the change feed brings a subscriber all there is.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import parsed, readable, record
from datastore.dynamodb.requests import set_or_remove
from datastore.errors import Conflict, Internal
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures, no_match
from datastore.matches.live_list import read_live
from datastore.matches.live_state import (
    WRITTEN_BY_A_TICK,
    ActiveMatch,
    ActiveStatus,
    active_match_from,
    active_match_item,
    begun,
    completed,
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

    def __init__(self, store: Store, now: datetime, remembered: ScanCache | None = None) -> None:
        self._store = store
        self._remembered = remembered
        self._now = now

    async def by_id(self, match_id: str, pattern: AccessPattern = keys.STATE) -> ActiveMatch | None:
        """AM-1: reads of one tick go out together."""
        active = self._alive(await self._store.get(pattern, keys.active_match(match_id)))
        return None if active is None else await self._completed(active)

    async def latest(self, match_id: str) -> ActiveMatch | None:
        """AM-1, read consistently: for a tick, and for a subscription that has attached."""
        active = self._alive(await self._store.get(keys.TICK, keys.active_match(match_id)))
        return None if active is None else await self._completed(active, consistent=True)

    async def all(self) -> list[ActiveMatch]:
        """AM-2: those that are polled, that rest, and that have ended a while ago."""
        return await self._all_completed(self._readable(await self._store.scan(keys.ALL_ACTIVE)))

    async def reconciled(self) -> list[ActiveMatch]:
        """AM-2, read consistently."""
        return self._readable(await self._store.scan(keys.RECONCILE))

    async def live(self, *, details: bool = False) -> list[ActiveMatch]:
        """AM-2: return the live matches, at most a second old.

        The index holds no lines and no balls. With `details` they are read for each match (AM-1), in one batch.
        """
        listed = await read_live(self._store, self._now, self._remembered)
        live = self._sorted(listed.matches)
        return await (self._detailed(live) if details and not listed.is_whole else self._all_completed(live))

    async def _detailed(self, live: list[ActiveMatch]) -> list[ActiveMatch]:
        """Omit damaged matches, as other lists do, and deleted ones."""
        reads = [self.by_id(active.match_id, keys.LIVE_DETAILS) for active in live]
        found = await asyncio.gather(*reads, return_exceptions=True)
        for problem in found:
            if isinstance(problem, BaseException) and not isinstance(problem, Internal):
                raise problem
        return [active for active in found if isinstance(active, ActiveMatch)]

    async def list_as_live(self, active: ActiveMatch) -> None:
        """AM-4: add a match that another program stored to the index if it is live, else remove it from the index."""
        is_live = active.status is ActiveStatus.ACTIVE
        pattern, values = (keys.LIST_AS_LIVE, {"live": keys.LIVE}) if is_live else (keys.UNLIST, {})
        key = keys.active_match(active.match_id)
        await self._store.update(pattern, key, active=ActiveStatus.ACTIVE.value, **values)

    async def live_in(self, league_code: str | None) -> list[ActiveMatch]:
        """CRIC-S2: those that are live in a league, or in any, read consistently."""
        items = await self._store.scan(keys.LIVE_SCORES, active=ActiveStatus.ACTIVE.value)
        live = await self._all_completed(self._readable(items), consistent=True)
        return [active for active in live if league_code in (None, active.league_code)]

    async def register(self, match: Match, *, instance_id: str | None = None) -> ActiveMatch:
        """AM-3: begin to poll a match from where it stands. Raises `Conflict` when it is active, or has just ended.

        What rests goes on from its own state; else the fixture's is the state. It is no new version: the state is the
        same, and only what a fixture has heard of can go on when the state is gone.
        """
        resting = await self.latest(match.match_id)
        if resting is not None and resting.status is ActiveStatus.ACTIVE and self._store.is_retry:
            return resting  # by this mutation itself, as far as anybody can tell
        if resting is not None and resting.status is not ActiveStatus.IDLE:
            raise _not_idle(match.match_id)
        active = begun(match) if resting is None else resting
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
            self._forget()
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
        return _written(await self._store.update(keys.CLAIM, keys.active_match(active.match_id), **values))

    async def _adopt(self, active: ActiveMatch, instance_id: str) -> ActiveMatch | None:
        """Take over a partial state. Return None also for a match without a fixture, which could not be written."""
        if not active.league_code:
            logger.warning("Match %s has no fixture: sync the fixtures, then it is polled", active.match_id)
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
        # When the answer to a first try was lost, its own write is what stands in the way of the second.
        return adopted if written.ok or (written.is_retry and _is_same(written.item, adopted)) else None

    async def commit(self, active: ActiveMatch) -> bool:
        """AM-4: the next version of a state. False when the match is no longer its writer's, or has moved on."""
        attributes = {name: value for name, value in active_match_item(active).items() if name in WRITTEN_BY_A_TICK}
        expression, values = set_or_remove(attributes)
        values |= {"fence": active.fence, "seen": active.version - 1, "active": ActiveStatus.ACTIVE.value}
        key = keys.active_match(active.match_id)
        written = await self._store.update(keys.COMMIT, key, update=expression, **values)
        # When the answer to a first try was lost, its own write is what stands in the way of the second.
        return written.ok or (written.is_retry and _is_same(written.item, active))

    async def ticked(self, match_id: str, fence: int) -> bool:
        """AM-4: a tick that changed nothing. False when the match is no longer its writer's."""
        values: dict[str, Any] = {"fence": fence, "active": ActiveStatus.ACTIVE.value, "now": iso(self._now)}
        values["live"] = keys.LIVE
        return (await self._store.update(keys.TICKED, keys.active_match(match_id), **values)).ok

    async def rest(self, match_id: str, fence: int) -> bool:
        """AM-4: stop polling a match that is not over. False when it is no longer its writer's."""
        values: dict[str, Any] = {
            "fence": fence,
            "active": ActiveStatus.ACTIVE.value,
            "idle": ActiveStatus.IDLE.value,
            "one": 1,
        }
        return (await self._store.update(keys.REST, keys.active_match(match_id), **values)).ok

    async def reopen(self, active: ActiveMatch) -> bool:
        """AM-4: let an ended match be registered again, with all that is known of it. False when it moved on."""
        values: dict[str, Any] = {
            "seen": active.fence,
            "ended": ActiveStatus.ENDED.value,
            "idle": ActiveStatus.IDLE.value,
            "one": 1,
        }
        return (await self._store.update(keys.REOPEN, keys.active_match(active.match_id), **values)).ok

    async def leave(self, match_id: str, fence: int) -> bool:
        """AM-4: leave a match to whoever takes it over. False when it is no longer its writer's."""
        values: dict[str, Any] = {"fence": fence, "active": ActiveStatus.ACTIVE.value, "one": 1}
        return (await self._store.update(keys.LEAVE, keys.active_match(match_id), **values)).ok

    async def finish(self, match_id: str, fence: int) -> bool:
        """AM-6: end the polling of a match that is over. False when it changed hands meanwhile."""
        values: dict[str, Any] = {"fence": fence, **self._ended()}
        return (await self._store.update(keys.FINISH, keys.active_match(match_id), **values)).ok

    async def deactivate(self, match_id: str) -> ActiveMatch:
        """AM-6: end the polling, whoever does it; the state stays for a day. Raises `NotFound`."""
        values = self._ended()
        try:
            active = _written(await self._store.update(keys.DEACTIVATE, keys.active_match(match_id), **values))
        finally:
            self._forget()
        if active is None:
            raise no_match(match_id)
        return active

    async def delete(self, match_id: str) -> ActiveMatch | None:
        """AM-7: the state that was deleted, None when there is none. Raises `Conflict` while the match is polled.

        None, too, where the answer to the try that deleted it was lost.
        """
        active = ActiveStatus.ACTIVE.value
        written = await self._store.delete(keys.DELETE, keys.active_match(match_id), active=active)
        if not written.ok:
            raise Conflict(f"The match {match_id!r} is polled: deactivate it first.")
        deleted = parsed(active_match_from, written.item) if written.item else None
        return None if isinstance(deleted, Internal) else deleted  # it is gone all the same

    def _forget(self) -> None:
        if self._remembered is not None:
            self._remembered.invalidate(keys.ACTIVE_MATCHES)

    def _ended(self) -> dict[str, Any]:
        ttl = int((self._now + ENDED_LIFETIME).timestamp())
        return {"ended": ActiveStatus.ENDED.value, "ttl": ttl, "one": 1}

    async def _completed(self, active: ActiveMatch, *, consistent: bool = False) -> ActiveMatch:
        """Return the match, completed from its fixture if another program wrote the state."""
        if not active.is_partial:
            return active
        fixtures = Fixtures(self._store, self._now)
        match = await (fixtures.latest if consistent else fixtures.by_id)(active.match_id)
        return active if match is None else completed(active, match)

    async def _all_completed(self, actives: list[ActiveMatch], *, consistent: bool = False) -> list[ActiveMatch]:
        return await asyncio.gather(*[self._completed(active, consistent=consistent) for active in actives])

    def _alive(self, item: Item | None) -> ActiveMatch | None:
        active = record(active_match_from, item)
        return None if active is None or _has_expired(active, self._now) else active

    def _readable(self, items: list[Item]) -> list[ActiveMatch]:
        return self._sorted(readable(active_match_from, items))

    def _sorted(self, found: list[ActiveMatch]) -> list[ActiveMatch]:
        found = [active for active in found if not _has_expired(active, self._now)]
        return sorted(found, key=lambda active: active.match_id)


def _written(written: WriteResult) -> ActiveMatch | None:
    return record(active_match_from, written.item) if written.ok else None


def _has_expired(active: ActiveMatch, now: datetime) -> bool:
    return active.expires_at is not None and active.expires_at <= now


def _not_idle(match_id: str) -> Conflict:
    return Conflict(f"The match {match_id!r} is active, or has ended: only an idle or unknown one can be registered.")


def _is_same(item: Item | None, active: ActiveMatch) -> bool:
    return item is not None and (item["version"], item["fence"]) == (active.version, active.fence)
