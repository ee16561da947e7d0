"""One tick of one match: lock, ask the provider, compare, write what changed, unlock.

The order of the writes makes a tick that is cut off harmless at any point: the fixture first, then the active match.
Only with that write has anything happened; until then the next tick finds the same difference again, for the cache is
written last: it holds what the state was compared with.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.locks import match_lock
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import CricketEvent, Match, MatchSnapshot
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixture_items import tick_from
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch, ActiveStatus
from datastore.matches.locks import LIFETIME_SECONDS, Locks
from datastore.matches.operator_fields import OperatorConflict, with_operator_fields
from datastore.matches.teams import Teams
from datastore.session.store import Store
from pipelines.matches.live.diff import MatchDiff, MatchWatch
from pipelines.matches.live.throttle import cool
from pipelines.matches.providers.provider import Provider, ProviderError

# Of the life of a lock: so long a tick that changed nothing leaves the last one's time as it is.
HEARTBEAT = 0.35
MOST_EVENTS = 40  # in one version: an item holds 400 KB

logger = logging.getLogger(__name__)


class Tick(StrEnum):
    """How a tick ended."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    LOCKED = "locked"  # another instance is at it
    LOST = "lost"  # the match is no longer this poller's: it must stop
    OVERTAKEN = "overtaken"  # an operator changed the fixture meanwhile: the next tick uses the change
    FAILED = "failed"  # the provider gave nothing; the state stays
    UNKNOWN = "unknown"  # the provider does not have the match


@dataclass(frozen=True, slots=True)
class LiveChange:
    """A change that was written: the match with its scorecards, and its state at that version.

    `rings` are the ids of the events that may ring on phones. After a takeover the present version is told once more,
    without events: whoever wrote it may have died before it told.
    """

    match: Match
    active: ActiveMatch
    rings: frozenset[str] = frozenset()


class _NotMine(Exception):
    """A guarded write was refused: somebody else has taken the match over."""


class ScorePoller:
    """Ticks matches for one instance. `on_change` hears of each version once it is written.

    `open_store` gives a fresh store for each tick. A poller remembers of each match what it wrote last; whatever it
    cannot be sure of it forgets, and reads again.
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

    async def tick(self, match_id: str) -> Tick:
        """Raises what the store raises; the next tick goes on from what is stored."""
        store = self._open_store()
        if not await self._lock(store, match_id):
            return Tick.LOCKED
        try:
            return await self._tick(store, match_id)
        except _NotMine:
            self.forget(match_id)
            return Tick.LOST
        except OperatorConflict:
            self.forget(match_id)
            return Tick.OVERTAKEN
        except BaseException:
            self.forget(match_id)  # what was written of this tick is not known
            raise
        finally:
            await _to_its_end(self._unlock(match_id))

    async def _tick(self, store: Store, match_id: str) -> Tick:
        active, stored = await asyncio.gather(
            ActiveMatches(store, self._now()).latest(match_id),
            Fixtures(store, self._now()).by_id(match_id, keys.FIXTURE_FOR_TICK, tick_from),
        )
        if active is None or active.status is not ActiveStatus.ACTIVE or active.instance_id != self._instance_id:
            raise _NotMine
        snapshot = await self._ask(match_id)
        if snapshot is None or isinstance(snapshot, ProviderError):
            await self._heartbeat(store, active)
            return Tick.UNKNOWN if snapshot is None else Tick.FAILED
        watch = self._watches.get(match_id)
        if watch is None:
            watch = self._watches[match_id] = await self._remember(store, active)
        from_provider, snapshot = snapshot, replace(snapshot, match=with_operator_fields(snapshot.match, stored))
        found = watch.compare(active, snapshot)
        if found.nothing:
            await self._heartbeat(store, active)
            if not watch.settled and not found.doubtful:
                await self._repair(store, active, snapshot)
                watch.settled = True
            return Tick.UNCHANGED
        await self._write(store, active, snapshot, found, from_provider)
        watch.settled = True
        return Tick.CHANGED

    async def _repair(self, store: Store, active: ActiveMatch, snapshot: MatchSnapshot) -> None:
        """A tick that was cut off, or a poller that did not know it was late, may have left things wrong or untold."""
        match = _as_stored(snapshot.match, active, active.version)
        await self._write_fixture(store, match)
        await self._on_change(store, LiveChange(match, replace(active, events=(), changed=())))

    async def _ask(self, match_id: str) -> MatchSnapshot | ProviderError | None:
        """What the provider says, in less time than the lock lives."""
        try:
            async with asyncio.timeout(self._lock_seconds * 0.7):
                snapshot = await self._provider.match(match_id)
            self._problems.pop(match_id, None)
            return snapshot
        except ProviderError as problem:
            self._complain(match_id, str(problem))
            return problem
        except TimeoutError:
            self._complain(match_id, "no answer in time")
            return ProviderError("no answer in time")

    def _complain(self, match_id: str, problem: str) -> None:
        """Once for each trouble, not at each tick."""
        if self._problems.get(match_id) != problem:
            self._problems[match_id] = problem
            logger.warning("%s does not tell of match %s: %s", self._provider.name, match_id, problem)

    async def _remember(self, store: Store, active: ActiveMatch) -> MatchWatch:
        """What the provider had said when the state was written, if the cache still has it; and the teams' names."""
        match_id = active.match_id
        teams = Teams(store, self._now())
        cached, home, away = await asyncio.gather(
            FixtureCache(store, self._now()).get(match_id),
            teams.by_id(active.home_team_id),
            teams.by_id(active.away_team_id),
        )
        names = {team.team_id: team.name for team in (home, away) if team is not None}
        told = cached is not None and cached.version == active.version
        previous = cached.snapshot if cached is not None and told else await self._stored(store, active)
        return MatchWatch(match_id, previous, lambda team_id: names.get(team_id, team_id))

    async def _stored(self, store: Store, active: ActiveMatch) -> MatchSnapshot | None:
        """The last balls with the fixture as it was written with them: less than the cache had, and without a limit."""
        match = await Fixtures(store, self._now()).latest(active.match_id)
        if match is None or match.version != active.version:
            return None
        return MatchSnapshot(match, active.live.recent_balls)

    async def _heartbeat(self, store: Store, active: ActiveMatch) -> None:
        """Say that the match is looked after, well before others take it for abandoned: the item is written whole."""
        ticked = active.last_tick_at
        if ticked is not None and self._now() - ticked < timedelta(seconds=self._lock_seconds * HEARTBEAT):
            return
        if not await ActiveMatches(store, self._now()).record_tick(active.match_id, active.fence):
            raise _NotMine

    async def _write(
        self, store: Store, active: ActiveMatch, snapshot: MatchSnapshot, found: MatchDiff, from_provider: MatchSnapshot
    ) -> None:
        """Write the versions that were found. The cache keeps the provider's values, not an operator's."""
        now = self._now()
        cooled = cool(found.events, active.cooldowns, now)
        groups = _grouped(cooled.events)
        match = _as_stored(snapshot.match, active, active.version + len(groups), found.last_ball_id)
        await self._write_fixture(store, match)
        for number, group in enumerate(groups, 1):
            last = number == len(groups)
            active = replace(
                active,
                live=found.live,
                version=active.version + 1,
                previous_ball_id=found.last_ball_id if last else _last_ball(group, active.previous_ball_id),
                announced=found.announced if last else _announced(found, active, group),
                events=group,
                changed=found.parts,
                cooldowns=cooled.cooldowns,
                updated_at=max(now, active.updated_at),  # whatever the clock of the hand before
                last_tick_at=now,
            )
            if not await ActiveMatches(store, now).commit(active):
                raise _NotMine
            await self._on_change(store, LiveChange(match, active, cooled.rings))
        await FixtureCache(store, now).put(from_provider, match.version)

    async def _write_fixture(self, store: Store, match: Match) -> None:
        if not await Fixtures(store, self._now()).write_live(match):
            raise _NotMine

    async def _lock(self, store: Store, match_id: str) -> bool:
        try:
            return await self._locks(store).acquire(match_lock(match_id), self._lock_seconds)
        except BaseException:
            await _to_its_end(self._unlock(match_id))  # it may have been taken all the same
            raise

    async def _unlock(self, match_id: str) -> None:
        try:
            # A store of its own: the tick's time may be up.
            await self._locks(self._open_store()).release(match_lock(match_id))
        except Exception as problem:  # whatever it is, it must not take the place of how the tick ended
            logger.warning("The lock of match %s is left to expire: %r", match_id, problem)

    def _locks(self, store: Store) -> Locks:
        return Locks(store, self._instance_id, self._now())


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it, also when the waiting is cancelled: who stops must not leave a lock behind."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _as_stored(match: Match, active: ActiveMatch, version: int, last_ball_id: int | None = None) -> Match:
    """The provider's match with what the store knows of it."""
    last = active.previous_ball_id if last_ball_id is None else last_ball_id
    return replace(match, match_id=active.match_id, version=version, fence=active.fence, last_ball_id=last)


def _grouped(events: tuple[CricketEvent, ...]) -> list[tuple[CricketEvent, ...]]:
    """The events of one version each; those of one ball stay together."""
    groups: list[tuple[CricketEvent, ...]] = [()]
    for _, same_ball in groupby(events, key=lambda event: event.ball and event.ball.ball_id):
        bundle = tuple(same_ball)
        if groups[-1] and len(groups[-1]) + len(bundle) > MOST_EVENTS:
            groups.append(())
        groups[-1] += bundle
    return groups


def _announced(found: MatchDiff, active: ActiveMatch, group: tuple[CricketEvent, ...]) -> tuple[str, ...]:
    """What was announced with this group and before, and not what only the next ones tell."""
    told = {event.event_id for event in group}
    return tuple(key for key in found.announced if key in active.announced or f"{active.match_id}:{key}" in told)


def _last_ball(group: tuple[CricketEvent, ...], before: int) -> int:
    return max([before, *[event.ball.ball_id for event in group if event.ball is not None]])
