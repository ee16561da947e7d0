"""One tick of one match: lock, fetch from the provider, compare, write the changes, unlock.

The order of the writes makes an interruption at any point harmless. The fixture is written first, then the active
match. The write of the active match is the commit: after an interruption before it, the next tick finds the same
difference again. The cache is written last, because it holds the snapshot that the state was compared with.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby

from msgspec.structs import replace

from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.locks import match_lock
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.cricket_events import CricketEvent
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixture_items import tick_from
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch, ActiveStatus
from datastore.matches.locks import LIFETIME_SECONDS, Locks
from datastore.matches.operator_fields import OperatorConflict, with_operator_fields
from datastore.matches.teams import Teams
from datastore.primitives.tasks import run_to_end
from datastore.session.store import Store
from pipelines.matches.live.diff import MatchDiff, MatchWatch
from pipelines.matches.live.throttle import throttle
from pipelines.matches.providers.provider import Provider, ProviderError

# The fraction of a lock's lifetime after which a tick without changes writes its time.
HEARTBEAT_FRACTION = 0.35
MAX_EVENTS = 40  # per version: an item holds 400 KB

logger = logging.getLogger(__name__)


class TickOutcome(StrEnum):
    """The outcome of a tick."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    LOCKED = "locked"  # another instance holds the lock
    LOST = "lost"  # another instance owns the match: this poller must stop
    OVERTAKEN = "overtaken"  # an operator changed the fixture meanwhile: the next tick uses the change
    FAILED = "failed"  # the provider failed; the state is unchanged
    UNKNOWN = "unknown"  # the provider does not have the match


@dataclass(frozen=True, slots=True)
class LiveChange:
    """A written change. After a takeover the present version is repeated without events.

    The previous owner may have stopped between its write and its callback.
    """

    #: The match with its scorecards.
    match: Match
    #: Its state at that version.
    active: ActiveMatch
    #: The ids of the events that may ring on phones.
    rings: frozenset[str] = frozenset()


class _MatchLost(Exception):
    """A fenced write was refused: another instance has taken over the match."""


class ScorePoller:
    """The ticks of the matches of one instance. `on_change` is called with each version after its write.

    `open_store` returns a new store for each tick. The poller caches its last write of each match, and drops the entry
    whenever it cannot be sure of it.
    """

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        on_change: Callable[[Store, LiveChange], Awaitable[None]],
        *,
        lock_seconds: float = LIFETIME_SECONDS,
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._on_change = on_change
        self._lock_seconds = lock_seconds
        self._watches: dict[str, MatchWatch] = {}
        self._problems: dict[str, str] = {}

    def forget(self, match_id: str) -> None:
        self._watches.pop(match_id, None)
        self._problems.pop(match_id, None)

    async def tick(self, match_id: str) -> TickOutcome:
        """Tick once. Raises the store's errors; the next tick continues from the stored state."""
        store = self._open_store()
        if not await self._lock(store, match_id):
            return TickOutcome.LOCKED
        try:
            return await self._tick(store, match_id)
        except _MatchLost:
            self.forget(match_id)
            return TickOutcome.LOST
        except OperatorConflict:
            self.forget(match_id)
            return TickOutcome.OVERTAKEN
        except BaseException:
            self.forget(match_id)  # an unknown part of the tick was written
            raise
        finally:
            await run_to_end(self._unlock(match_id))

    async def _tick(self, store: Store, match_id: str) -> TickOutcome:
        active, stored = await asyncio.gather(
            ActiveMatches(store, self._now()).latest(match_id),
            Fixtures(store, self._now()).by_id(match_id, keys.FIXTURE_FOR_TICK, tick_from),
        )
        if active is None or active.status is not ActiveStatus.ACTIVE or active.instance_id != self._instance_id:
            raise _MatchLost
        snapshot = await self._fetch(match_id)
        if snapshot is None or isinstance(snapshot, ProviderError):
            await self._heartbeat(store, active)
            return TickOutcome.UNKNOWN if snapshot is None else TickOutcome.FAILED
        watch = self._watches.get(match_id)
        if watch is None:
            watch = self._watches[match_id] = await self._load_watch(store, active)
        from_provider, snapshot = snapshot, replace(snapshot, match=with_operator_fields(snapshot.match, stored))
        diff = watch.compare(active, snapshot)
        if diff.is_empty:
            await self._heartbeat(store, active)
            if not watch.fixture_is_current and not diff.is_stale:
                await self._repair(store, active, snapshot)
                watch.fixture_is_current = True
            return TickOutcome.UNCHANGED
        await self._write(store, active, snapshot, diff, from_provider)
        watch.fixture_is_current = True
        return TickOutcome.CHANGED

    async def _repair(self, store: Store, active: ActiveMatch, snapshot: MatchSnapshot) -> None:
        """Write the fixture and repeat the callback, which an interrupted or a late tick may have missed."""
        match = _as_stored(snapshot.match, active, active.version)
        await self._write_fixture(store, match)
        await self._on_change(store, LiveChange(match, replace(active, events=(), changed=())))

    async def _fetch(self, match_id: str) -> MatchSnapshot | ProviderError | None:
        """Fetch the match in less than the lock's lifetime."""
        try:
            async with asyncio.timeout(self._lock_seconds * 0.7):
                snapshot = await self._provider.match(match_id)
            self._problems.pop(match_id, None)
            return snapshot
        except ProviderError as problem:
            self._warn_once(match_id, str(problem))
            return problem
        except TimeoutError:
            self._warn_once(match_id, "no answer in time")
            return ProviderError("no answer in time")

    def _warn_once(self, match_id: str, problem: str) -> None:
        """Log a problem once, not at each tick."""
        if self._problems.get(match_id) != problem:
            self._problems[match_id] = problem
            logger.warning("%s did not return match %s; retrying: %s", self._provider.name, match_id, problem)

    async def _load_watch(self, store: Store, active: ActiveMatch) -> MatchWatch:
        """Read the teams' names and, if it is still cached, the snapshot that the state was written from."""
        match_id = active.match_id
        teams = Teams(store, self._now())
        cached, home, away = await asyncio.gather(
            FixtureCache(store, self._now()).get(match_id),
            teams.by_id(active.home_team_id),
            teams.by_id(active.away_team_id),
        )
        names = {team.team_id: team.name for team in (home, away) if team is not None}
        is_current = cached is not None and cached.version == active.version
        previous = cached.snapshot if cached is not None and is_current else await self._stored_snapshot(store, active)
        return MatchWatch(match_id, previous, lambda team_id: names.get(team_id, team_id))

    async def _stored_snapshot(self, store: Store, active: ActiveMatch) -> MatchSnapshot | None:
        """Return the stored fixture with the last balls: it has less data than the cache, but does not expire."""
        match = await Fixtures(store, self._now()).latest(active.match_id)
        if match is None or match.version != active.version:
            return None
        return MatchSnapshot(match, active.live.recent_balls)

    async def _heartbeat(self, store: Store, active: ActiveMatch) -> None:
        """Write the time of the tick well before other instances consider the match abandoned.

        It is not written at each tick, because a write costs the units of the whole item.
        """
        ticked = active.last_tick_at
        if ticked is not None and self._now() - ticked < timedelta(seconds=self._lock_seconds * HEARTBEAT_FRACTION):
            return
        if not await ActiveMatches(store, self._now()).record_tick(active.match_id, active.fence):
            raise _MatchLost

    async def _write(
        self, store: Store, active: ActiveMatch, snapshot: MatchSnapshot, diff: MatchDiff, from_provider: MatchSnapshot
    ) -> None:
        """Write the versions of a diff. The cache keeps the provider's values, not an operator's."""
        now = self._now()
        throttled = throttle(diff.events, active.cooldowns, now)
        groups = _grouped(throttled.events)
        match = _as_stored(snapshot.match, active, active.version + len(groups), diff.last_ball_id)
        await self._write_fixture(store, match)
        for number, group in enumerate(groups, 1):
            is_last = number == len(groups)
            active = replace(
                active,
                live=diff.live,
                version=active.version + 1,
                previous_ball_id=diff.last_ball_id if is_last else _last_ball(group, active.previous_ball_id),
                announced=diff.announced if is_last else _announced_through(diff, active, group),
                events=group,
                changed=diff.parts,
                cooldowns=throttled.cooldowns,
                updated_at=max(now, active.updated_at),  # the previous owner's clock may be ahead
                last_tick_at=now,
            )
            if not await ActiveMatches(store, now).commit(active):
                raise _MatchLost
            await self._on_change(store, LiveChange(match, active, throttled.rings))
        await FixtureCache(store, now).put(from_provider, match.version)

    async def _write_fixture(self, store: Store, match: Match) -> None:
        if not await Fixtures(store, self._now()).write_live(match):
            raise _MatchLost

    async def _lock(self, store: Store, match_id: str) -> bool:
        try:
            return await self._locks(store).acquire(match_lock(match_id), self._lock_seconds)
        except BaseException:
            await run_to_end(self._unlock(match_id))  # the lock may have been acquired despite the error
            raise

    async def _unlock(self, match_id: str) -> None:
        try:
            # A new store: the deadline of the tick's store may have passed.
            await self._locks(self._open_store()).release(match_lock(match_id))
        except Exception as problem:  # must not replace the outcome of the tick
            logger.warning("Could not release the lock of match %s; it expires by itself: %r", match_id, problem)

    def _locks(self, store: Store) -> Locks:
        return Locks(store, self._instance_id, self._now())


def _as_stored(match: Match, active: ActiveMatch, version: int, last_ball_id: int | None = None) -> Match:
    """Return the provider's match with the fields that the store adds."""
    last = active.previous_ball_id if last_ball_id is None else last_ball_id
    return replace(match, match_id=active.match_id, version=version, fence=active.fence, last_ball_id=last)


def _grouped(events: tuple[CricketEvent, ...]) -> list[tuple[CricketEvent, ...]]:
    """Split the events by version; events of one ball stay together."""
    groups: list[tuple[CricketEvent, ...]] = [()]
    for _, same_ball in groupby(events, key=lambda event: event.ball and event.ball.ball_id):
        bundle = tuple(same_ball)
        if groups[-1] and len(groups[-1]) + len(bundle) > MAX_EVENTS:
            groups.append(())
        groups[-1] += bundle
    return groups


def _announced_through(diff: MatchDiff, active: ActiveMatch, group: tuple[CricketEvent, ...]) -> tuple[str, ...]:
    """Return the keys announced up to and including `group`, without those of later groups."""
    event_ids = {event.event_id for event in group}
    return tuple(key for key in diff.announced if key in active.announced or f"{active.match_id}:{key}" in event_ids)


def _last_ball(group: tuple[CricketEvent, ...], before: int) -> int:
    return max([before, *[event.ball.ball_id for event in group if event.ball is not None]])
