"""The active list of matches: a match is listed when it goes live, polled by one instance, and removed when it ends.

Any number of instances reconcile concurrently. Every step is one conditional write and harmless when repeated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
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
from datastore.primitives.tasks import bounded_gather, cancel
from datastore.session.store import Store
from pipelines.matches.live.metrics import PollMetrics
from pipelines.matches.live.poller import ScorePoller, TickOutcome
from pipelines.matches.providers.provider import Provider, ProviderError

# A match in play without a change for this long is suspended once the provider does not list it as live.
QUIET_AFTER = timedelta(minutes=15)
# Consecutive ticks without the match before it is suspended: a provider may omit it for a moment.
MISSING_TICKS = 30
CONCURRENT_RELEASES = 16
CONFIRMING_TICKS = 2
# The interval at which a suspended match is fetched, and the age at which a match that the provider lost is ended.
RECHECK_INTERVAL = timedelta(minutes=5)
UNKNOWN_LIMIT = timedelta(days=1)
# The greatest difference of two instances' clocks.
CLOCK_SKEW = timedelta(seconds=10)

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """The intervals of the pipeline's periodic work."""

    tick_seconds: float = 2.0
    reconcile_seconds: float = 5.0
    lock_seconds: float = LIFETIME_SECONDS
    #: How long a finished match is still polled: scorers make corrections, and the player of the match is named late.
    linger: timedelta = timedelta(minutes=5)
    sync_seconds: float = 900.0


class MatchOrchestrator:
    """The pollers of one instance. `on_end` is awaited when a match has ended, before it leaves the list."""

    def __init__(
        self,
        provider: Provider,
        poller: ScorePoller,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        on_end: Callable[[ActiveMatch], Awaitable[None]],
        *,
        intervals: PollIntervals = PollIntervals(),
        metrics: PollMetrics | None = None,
    ) -> None:
        self._metrics = metrics or PollMetrics()
        self._provider = provider
        self._poller = poller
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._on_end = on_end
        self._intervals = intervals
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._ticks: dict[str, int] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._recheck_at: dict[str, datetime] = {}
        # By match of another instance: its fence and last tick, and the time at which this instance saw them change.
        self._seen: dict[str, tuple[tuple[int, datetime | None], datetime]] = {}

    @property
    def polled(self) -> set[str]:
        """The matches that this instance polls."""
        return set(self._polls)

    async def run(self) -> None:
        """Reconcile periodically until cancelled; then release the matches."""
        self._metrics.record_live_list()
        try:
            while True:
                await self._guarded("reconcile", self.reconcile)
                await asyncio.sleep(self._intervals.reconcile_seconds)
        finally:
            await self.aclose()

    async def reconcile(self) -> None:
        """Compare the provider's live matches with the active list and the running polls, and correct differences."""
        live = await self._live()  # before the list is read: the list must not age while a slow provider answers
        listed = {active.match_id: active for active in await self._matches().all_latest()}
        self._seen = {match_id: seen for match_id, seen in self._seen.items() if match_id in listed}
        self._recheck_at = {match_id: at for match_id, at in self._recheck_at.items() if match_id in listed}
        known = listed.keys() | self._polls.keys()
        self._ticks = {match_id: ticks for match_id, ticks in self._ticks.items() if match_id in known}
        for active in listed.values():
            if active.is_listed is not (active.status is ActiveStatus.ACTIVE):
                await self._guarded(active.match_id, self._matches().update_live_index, active)
        for match in live or ():
            await self._guarded(match.match_id, self._start_if_new, match, listed.get(match.match_id))
        live_ids = None if live is None else {match.match_id for match in live}
        for active in listed.values():
            if active.status is ActiveStatus.ACTIVE:
                await self._guarded(active.match_id, self._reconcile_active, active, live_ids)
            elif active.status is ActiveStatus.IDLE and live_ids is not None and active.match_id not in live_ids:
                await self._guarded(active.match_id, self._recheck, active)

    async def _live(self) -> Sequence[Match] | None:
        """Return the live matches, or None when the provider fails.

        In that case no match starts, and no match is suspended because it is not listed.
        """
        try:
            live = await self._provider.live()
        except ProviderError as problem:
            logger.warning("%s did not list the live matches; retrying: %s", self._provider.name, problem)
            return None
        self._metrics.record_live_list()
        return live

    async def _start_if_new(self, match: Match, active: ActiveMatch | None) -> None:
        """Poll a match that goes live or returns to the live scores.

        A match that had ended is started again; a match that an operator removed from the list is not.
        """
        if match.phase.is_over or (active is not None and not _may_start(active)):
            return
        await self.start(match)

    async def start(self, match: Match) -> None:
        """List a match and poll it. A match that had ended is reopened and corrected."""
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
            return  # another instance registered it first
        logger.info("Started to poll match %s", match.match_id)
        self._start_poll(match.match_id)

    async def _reconcile_active(self, active: ActiveMatch, live_ids: set[str] | None) -> None:
        is_own = active.instance_id == self._instance_id and not active.is_partial
        if is_own and active.match_id not in self._polls:
            # A tick between the end of the poll and that of the match would take the fixture out of the archive.
            if active.match_id not in self._endings:
                self._start_poll(active.match_id)
        elif not is_own and self._is_abandoned(active):
            await self._take_over(active)
        elif is_own and self._may_finish(active):
            self._start_finish(active)
        elif is_own and live_ids is not None and active.match_id not in live_ids and self._may_suspend(active):
            await self._suspend(active)

    def _is_abandoned(self, active: ActiveMatch) -> bool:
        """Return whether no tick was seen for one lock lifetime by this instance's clock.

        An instance that has just started need not wait: a `lastTickAt` older than that plus the clock skew suffices.
        """
        life, now = timedelta(seconds=self._intervals.lock_seconds), self._now()
        before, since = self._seen.get(active.match_id, (None, now))
        if before != (active.fence, active.last_tick_at):
            since = now
            self._seen[active.match_id] = (active.fence, active.last_tick_at), since
        return now - since > life or active.is_abandoned(now, life + CLOCK_SKEW)

    async def _take_over(self, seen: ActiveMatch) -> None:
        """Claim an abandoned match if its lock is free too and it was not ticked since it was read."""
        name = match_lock(seen.match_id)
        if not await self._locks().acquire(name, self._intervals.lock_seconds):
            return
        try:
            active = await self._matches().latest(seen.match_id)
            if active is None or active.fence != seen.fence or not self._is_abandoned(active):
                return
            claimed = await self._matches().claim(active, self._instance_id)
        finally:
            await self._locks().release(name)
        if claimed is not None:
            logger.info("Took over match %s from %s", seen.match_id, seen.instance_id)
            self._start_poll(seen.match_id)

    def _may_finish(self, active: ActiveMatch) -> bool:
        """Return whether the match ended long enough ago and was polled since: a reversal needs two ticks."""
        is_confirmed = self._ticks.get(active.match_id, 0) >= CONFIRMING_TICKS
        return is_confirmed and active.live.phase.is_over and self._now() - active.updated_at >= self._intervals.linger

    def _may_suspend(self, active: ActiveMatch) -> bool:
        """Return whether an unlisted match is between two days, not started, or without a change for long."""
        waits = active.live.phase in (MatchPhase.STUMPS, MatchPhase.UPCOMING)
        return waits or self._now() - active.updated_at >= QUIET_AFTER

    async def _suspend(self, active: ActiveMatch) -> None:
        await self._stop_poll(active.match_id)
        if await self._matches().set_idle(active.match_id, active.fence):
            logger.info("Suspended match %s until it is in the live scores again", active.match_id)

    async def _recheck(self, active: ActiveMatch) -> None:
        """Fetch a suspended match: it may have been abandoned or decided without returning to the live scores.

        A match that the provider has not had for a day is ended: it was cancelled, or rescheduled under another id.
        """
        now = self._now()
        if now < self._recheck_at.get(active.match_id, now):
            return
        self._recheck_at[active.match_id] = now + RECHECK_INTERVAL
        try:
            snapshot = await self._provider.match(active.match_id)
        except ProviderError as problem:
            logger.info("%s did not return match %s: %s", self._provider.name, active.match_id, problem)
            return
        if snapshot is None and now - active.updated_at >= UNKNOWN_LIMIT:
            logger.warning("%s no longer has match %s; ending it", self._provider.name, active.match_id)
            self._start_finish(active)
        elif snapshot is not None and _has_moved(active, snapshot.match):
            await self.start(snapshot.match)

    def _start_finish(self, active: ActiveMatch) -> None:
        """Finish in a task, because pushes may be slow. Ticks continue meanwhile and keep the match owned."""
        if active.match_id not in self._endings:
            task = asyncio.create_task(
                self._guarded(active.match_id, self.finish, active), name=f"end {active.match_id}"
            )
            self._endings[active.match_id] = task
            task.add_done_callback(lambda _: self._endings.pop(active.match_id, None))

    async def finish(self, active: ActiveMatch) -> None:
        """End the sessions, remove the follows, stop the poll, archive the fixture, and only then unlist the match.

        Every step is harmless when repeated after an interruption. A match that changed owner or version while its
        sessions were ended is not finished.
        """
        await self._on_end(active)
        now = await self._matches().latest(active.match_id)
        if now is None or (now.fence, now.version) != (active.fence, active.version):
            return
        removed = await MatchFollows(self._open_store(), self._now()).remove_all(active.match_id)
        # A running tick may write the fixture, which would take it out of the archive.
        await self._stop_poll(active.match_id)
        await Fixtures(self._open_store(), self._now()).archive(active.match_id)
        if await self._matches().finish(active.match_id, active.fence):
            logger.info("Match %s ended; removed %d follows", active.match_id, removed)

    def _start_poll(self, match_id: str) -> None:
        if match_id not in self._polls:
            self._poller.forget(match_id)
            self._ticks[match_id] = 0
            self._metrics.polling_started(match_id)
            self._polls[match_id] = asyncio.create_task(self._poll(match_id), name=f"match {match_id}")

    async def _poll(self, match_id: str) -> None:
        """Tick until the match is no longer owned. A failed tick is logged and the next tick retries."""
        missing = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                next_at = loop.time() + self._intervals.tick_seconds
                outcome = await self._guarded(match_id, self._poller.tick, match_id)
                self._metrics.tick_ended(match_id, outcome)
                if outcome is TickOutcome.LOST:
                    return
                self._ticks[match_id] += outcome in (TickOutcome.CHANGED, TickOutcome.UNCHANGED)
                missing = missing + 1 if outcome is TickOutcome.UNKNOWN else 0
                if missing == MISSING_TICKS:
                    await self._guarded(match_id, self._suspend_missing, match_id)
                    return
                await asyncio.sleep(max(0.0, next_at - loop.time()))
        finally:
            self._poller.forget(match_id)
            if self._polls.get(match_id) is asyncio.current_task():
                del self._polls[match_id]
                self._metrics.polling_stopped(match_id)

    async def _suspend_missing(self, match_id: str) -> None:
        """Suspend a match that the provider does not have for now."""
        logger.warning("%s does not have match %s; suspending it", self._provider.name, match_id)
        active = await self._matches().latest(match_id)
        if active is not None and active.instance_id == self._instance_id:
            await self._matches().set_idle(match_id, active.fence)

    async def _stop_poll(self, match_id: str) -> None:
        task = self._polls.pop(match_id, None)
        if task is not None:
            self._metrics.polling_stopped(match_id)
            await cancel(task)

    async def aclose(self) -> None:
        """Stop all polls and release the matches, so that another instance need not wait for their locks to expire."""
        polls, self._polls = self._polls, {}
        for match_id in polls:
            self._metrics.polling_stopped(match_id)
        await cancel(*polls.values(), *self._endings.values())
        releases = [partial(self._guarded, match_id, self._release, match_id) for match_id in polls]
        await bounded_gather(releases, CONCURRENT_RELEASES)

    async def _release(self, match_id: str) -> None:
        active = await self._matches().latest(match_id)
        if active is not None and active.instance_id == self._instance_id:
            await self._matches().release(match_id, active.fence)

    async def _guarded(self, subject: str, action: Callable[..., Awaitable[T]], *args: object) -> T | None:
        """Log a failure and return None, so that one match does not stop the others; the next cycle retries."""
        try:
            return await action(*args)
        except NotFound as gone:
            logger.info("%s: %s", subject, gone)
        except (DomainError, RequestRefused) as problem:
            logger.warning("%s failed; retrying in the next cycle: %s", subject, problem)
        except Exception:
            logger.exception("%s failed; retrying in the next cycle", subject)
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
