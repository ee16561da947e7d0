"""Which matches are polled, and by whom: put on the active list when they go live, taken off when they are over.

Any number of instances reconcile side by side: every step is one conditional write, and done again it does nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from datastore.dynamodb.client import RequestRefused
from datastore.errors import Conflict, DomainError, NotFound
from datastore.keyspace.matches.locks import match_lock
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match, MatchPhase
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch, ActiveStatus
from datastore.matches.locks import LIFETIME_SECONDS, Locks
from datastore.matches.match_follows import MatchFollows
from datastore.session.store import Store
from pipelines.matches.live.metrics import PollFigures
from pipelines.matches.live.poller import ScorePoller, Tick
from pipelines.matches.providers.provider import Provider, ProviderError

TICK_SECONDS = 2.0
RECONCILE_SECONDS = 5.0
# A finished match stays on the list for a while: scorers correct, and the player of the match is named late.
LINGER = timedelta(minutes=5)
# A match that is in play, as it says itself, and not in the live scores.
QUIET = timedelta(minutes=15)
# A provider that no longer lists a match may have a bad moment.
MISSING_TICKS = 30
LEFT_AT_ONCE = 16
TICKS_TO_BELIEVE = 2
# How often the provider is asked for a match that rests, and when one that it does not know is given up.
LOOK_AGAIN = timedelta(minutes=5)
FORGOTTEN = timedelta(days=1)
# So far the clocks of two instances may be apart.
CLOCKS_DIFFER = timedelta(seconds=10)

T = TypeVar("T")

logger = logging.getLogger(__name__)


class MatchOrchestrator:
    """Runs the pollers of one instance. `on_end` is awaited when a match is over, before it leaves the list."""

    def __init__(
        self,
        provider: Provider,
        poller: ScorePoller,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        on_end: Callable[[ActiveMatch], Awaitable[None]],
        *,
        tick_seconds: float = TICK_SECONDS,
        reconcile_seconds: float = RECONCILE_SECONDS,
        lock_seconds: float = LIFETIME_SECONDS,
        linger: timedelta = LINGER,
        figures: PollFigures | None = None,
    ) -> None:
        self._figures = figures or PollFigures()
        self._provider = provider
        self._poller = poller
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._on_end = on_end
        self._tick_seconds = tick_seconds
        self._reconcile_seconds = reconcile_seconds
        self._lock_seconds = lock_seconds
        self._linger = linger
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._ticks: dict[str, int] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._look_again_at: dict[str, datetime] = {}
        # The fence and the last tick of matches that others poll, and since when they have been seen so.
        self._seen: dict[str, tuple[tuple[int, datetime | None], datetime]] = {}

    @property
    def polled(self) -> set[str]:
        """The matches that this instance polls."""
        return set(self._polls)

    async def run(self) -> None:
        """Reconcile now and again and again, until cancelled; then leave the matches to others."""
        self._figures.listed()
        try:
            while True:
                await self._safely("reconcile", self.reconcile)
                await asyncio.sleep(self._reconcile_seconds)
        finally:
            await self.aclose()

    async def reconcile(self) -> None:
        """Compare the provider's live matches with the active list and with who polls; put right what differs."""
        live = await self._live()  # before the list is read: this may take long, and the list shall not be old
        listed = {active.match_id: active for active in await self._matches().all_latest()}
        self._seen = {match_id: seen for match_id, seen in self._seen.items() if match_id in listed}
        self._look_again_at = {match_id: at for match_id, at in self._look_again_at.items() if match_id in listed}
        known = listed.keys() | self._polls.keys()
        self._ticks = {match_id: ticks for match_id, ticks in self._ticks.items() if match_id in known}
        for active in listed.values():
            if active.is_listed is not (active.status is ActiveStatus.ACTIVE):
                await self._safely(active.match_id, self._matches().update_live_index, active)
        for match in live or ():
            await self._safely(match.match_id, self._start_if_new, match, listed.get(match.match_id))
        live_ids = None if live is None else {match.match_id for match in live}
        for active in listed.values():
            if active.status is ActiveStatus.ACTIVE:
                await self._safely(active.match_id, self._look_after, active, live_ids)
            elif active.status is ActiveStatus.IDLE and live_ids is not None and active.match_id not in live_ids:
                await self._safely(active.match_id, self._look_again, active)

    async def _live(self) -> Sequence[Match] | None:
        """None when the provider does not tell: nothing begins then, and nothing ends for not being listed."""
        try:
            live = await self._provider.live()
        except ProviderError as problem:
            logger.warning("%s does not tell which matches are live: %s", self._provider.name, problem)
            return None
        self._figures.listed()
        return live

    async def _start_if_new(self, match: Match, active: ActiveMatch | None) -> None:
        """A match that goes live, or is back in the live scores, begins to be polled.

        One that was over goes on after all; one that was taken off the list by hand stays off it.
        """
        if match.phase.is_over or (active is not None and not _may_start(active)):
            return
        await self.start(match)

    async def start(self, match: Match) -> None:
        """Put a match on the list and poll it, also one that had ended: then what the provider says now corrects it."""
        store = self._open_store()
        fixtures = Fixtures(store, self._now())
        stored = await fixtures.latest(match.match_id)
        if stored is None:
            await fixtures.sync([match])
            stored = await fixtures.latest(match.match_id)
        assert stored is not None
        matches = ActiveMatches(store, self._now())
        before = await matches.latest(match.match_id)
        try:
            if before is not None and before.status is ActiveStatus.ENDED:
                await matches.reopen(before)
            await matches.register(stored, instance_id=self._instance_id)
        except Conflict:
            return  # another instance was faster
        logger.info("Match %s is polled from now on", match.match_id)
        self._begin(match.match_id)

    async def _look_after(self, active: ActiveMatch, live_ids: set[str] | None) -> None:
        mine = active.instance_id == self._instance_id and not active.is_partial
        if mine and active.match_id not in self._polls:
            self._begin(active.match_id)
        elif not mine and self._is_abandoned(active):
            await self._take_over(active)
        elif mine and self._is_settled(active):
            self._end(active)
        elif mine and live_ids is not None and active.match_id not in live_ids and self._rests(active):
            await self._rest(active)

    def _is_abandoned(self, active: ActiveMatch) -> bool:
        """Not ticked for the life of a lock as it is seen here, by one clock; or by the times it was ticked at for
        as much longer as two clocks may differ, which whoever has just begun need not wait for.
        """
        life, now = timedelta(seconds=self._lock_seconds), self._now()
        sight, since = self._seen.get(active.match_id, (None, now))
        if sight != (active.fence, active.last_tick_at):
            since = now
            self._seen[active.match_id] = (active.fence, active.last_tick_at), since
        return now - since > life or active.is_abandoned(now, life + CLOCKS_DIFFER)

    async def _take_over(self, seen: ActiveMatch) -> None:
        """Whoever polled it has died, if its lock is free too, and it has not been ticked since it was seen."""
        name = match_lock(seen.match_id)
        if not await self._locks().acquire(name, self._lock_seconds):
            return
        try:
            active = await self._matches().latest(seen.match_id)
            if active is None or active.fence != seen.fence or not self._is_abandoned(active):
                return
            claimed = await self._matches().claim(active, self._instance_id)
        finally:
            await self._locks().release(name)
        if claimed is not None:
            logger.info("Match %s is taken over from %s", seen.match_id, seen.instance_id)
            self._begin(seen.match_id)

    def _is_settled(self, active: ActiveMatch) -> bool:
        """Over for long enough, and asked for since we began: what goes back is believed the second time only."""
        asked = self._ticks.get(active.match_id, 0) >= TICKS_TO_BELIEVE
        return asked and active.live.phase.is_over and self._now() - active.updated_at >= self._linger

    def _rests(self, active: ActiveMatch) -> bool:
        """Of a match that is not in the live scores: between two days, not begun, or nothing happened for long."""
        waits = active.live.phase in (MatchPhase.STUMPS, MatchPhase.UPCOMING)
        return waits or self._now() - active.updated_at >= QUIET

    async def _rest(self, active: ActiveMatch) -> None:
        await self._end_poll(active.match_id)
        if await self._matches().set_idle(active.match_id, active.fence):
            logger.info("Match %s rests until it is in the live scores again", active.match_id)

    async def _look_again(self, active: ActiveMatch) -> None:
        """A match that rests may have been abandoned, or decided, without coming back to the live scores.

        One that its provider has not known for a day is over too: rescheduled under another id, or cancelled.
        """
        now = self._now()
        if now < self._look_again_at.get(active.match_id, now):
            return
        self._look_again_at[active.match_id] = now + LOOK_AGAIN
        try:
            snapshot = await self._provider.match(active.match_id)
        except ProviderError as problem:
            logger.info("%s does not tell of match %s: %s", self._provider.name, active.match_id, problem)
            return
        if snapshot is None and now - active.updated_at >= FORGOTTEN:
            logger.warning("%s does not know match %s any more", self._provider.name, active.match_id)
            self._end(active)
        elif snapshot is not None and _has_moved(active, snapshot.match):
            await self.start(snapshot.match)

    def _end(self, active: ActiveMatch) -> None:
        """In a task of its own: phones may be hard to reach. The match is ticked meanwhile, so that it stays ours."""
        if active.match_id not in self._endings:
            task = asyncio.create_task(
                self._safely(active.match_id, self.finish, active), name=f"end {active.match_id}"
            )
            self._endings[active.match_id] = task
            task.add_done_callback(lambda _: self._endings.pop(active.match_id, None))

    async def finish(self, active: ActiveMatch) -> None:
        """End the sessions, remove the follows, end the polling, archive the fixture, and only then take the match off.

        Cut off in between, it is done again: every step is harmless twice. A match that changed hands, or goes on,
        while its sessions were ended keeps the rest.
        """
        await self._on_end(active)
        now = await self._matches().latest(active.match_id)
        if now is None or (now.fence, now.version) != (active.fence, active.version):
            return
        removed = await MatchFollows(self._open_store(), self._now()).remove_all(active.match_id)
        # A tick that is under way may write the fixture, which takes it out of the archive.
        await self._end_poll(active.match_id)
        await Fixtures(self._open_store(), self._now()).archive(active.match_id)
        if await self._matches().finish(active.match_id, active.fence):
            logger.info("Match %s is over; %d follows were removed", active.match_id, removed)

    def _begin(self, match_id: str) -> None:
        if match_id not in self._polls:
            self._poller.forget(match_id)
            self._ticks[match_id] = 0
            self._figures.begun(match_id)
            self._polls[match_id] = asyncio.create_task(self._poll(match_id), name=f"match {match_id}")

    async def _poll(self, match_id: str) -> None:
        """Tick until the match is no longer ours. What fails is told, and tried again at the next tick."""
        missing = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + self._tick_seconds
                ended = await self._safely(match_id, self._poller.tick, match_id)
                self._figures.ticked(match_id, ended)
                if ended is Tick.LOST:
                    return
                self._ticks[match_id] += ended in (Tick.CHANGED, Tick.UNCHANGED)
                missing = missing + 1 if ended is Tick.UNKNOWN else 0
                if missing == MISSING_TICKS:
                    await self._safely(match_id, self._give_up, match_id)
                    return
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            self._poller.forget(match_id)
            if self._polls.get(match_id) is asyncio.current_task():
                del self._polls[match_id]
                self._figures.left(match_id)

    async def _give_up(self, match_id: str) -> None:
        """The provider does not know the match, for now: it rests, and is asked for again."""
        logger.warning("%s does not know match %s", self._provider.name, match_id)
        active = await self._matches().latest(match_id)
        if active is not None and active.instance_id == self._instance_id:
            await self._matches().set_idle(match_id, active.fence)

    async def _end_poll(self, match_id: str) -> None:
        task = self._polls.pop(match_id, None)
        if task is not None:
            self._figures.left(match_id)
            task.cancel()
            await asyncio.wait([task])

    async def aclose(self) -> None:
        """Leave all matches: whoever comes next need not wait until these locks expire."""
        polls, self._polls = self._polls, {}
        for match_id in polls:
            self._figures.left(match_id)
        stopped = [*polls.values(), *self._endings.values()]
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)
        at_once = asyncio.Semaphore(LEFT_AT_ONCE)

        async def leave(match_id: str) -> None:
            async with at_once:
                await self._safely(match_id, self._leave, match_id)

        await asyncio.gather(*[leave(match_id) for match_id in polls])

    async def _leave(self, match_id: str) -> None:
        active = await self._matches().latest(match_id)
        if active is not None and active.instance_id == self._instance_id:
            await self._matches().release(match_id, active.fence)

    async def _safely(self, what: str, act: Callable[..., Awaitable[T]], *args: object) -> T | None:
        """What goes wrong with one match is its own affair; it is tried again."""
        try:
            return await act(*args)
        except NotFound as gone:
            logger.info("%s: %s", what, gone)
        except (DomainError, RequestRefused) as problem:
            logger.warning("%s: %s", what, problem)
        except Exception:
            logger.exception("%s went wrong", what)
        return None

    def _matches(self) -> ActiveMatches:
        return ActiveMatches(self._open_store(), self._now())

    def _locks(self) -> Locks:
        return Locks(self._open_store(), self._instance_id, self._now())


def _has_moved(active: ActiveMatch, match: Match) -> bool:
    return (match.phase, match.innings) != (active.live.phase, active.live.innings)


def _may_start(active: ActiveMatch) -> bool:
    ended_by_itself = active.status is ActiveStatus.ENDED and active.live.phase.is_over
    return active.status is ActiveStatus.IDLE or ended_by_itself
