"""The live score pipeline as one thing: sync jobs, orchestrator, pollers, display states and Live Activities."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from datastore.errors import Unavailable
from datastore.matches.cricket import Match
from datastore.matches.display import MatchNames
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from datastore.matches.locks import LIFETIME_SECONDS
from datastore.session.store import Store
from pipelines.consumer.periodic import every
from pipelines.matches.live.metrics import PollFigures
from pipelines.matches.live.orchestrator import LINGER, RECONCILE_SECONDS, TICK_SECONDS, MatchOrchestrator
from pipelines.matches.live.poller import LiveChange, ScorePoller
from pipelines.matches.providers.provider import Provider
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_delivery import PushDelivery, PushOutcome
from pipelines.matches.push.push_queue import MatchChange
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncJob, TeamSyncJob

NAMES_KEPT = 1000
FIRST_SYNC_SECONDS = 10.0
# Phones that cannot be reached when a match ends are tried again for so long.
REACHED_WITHIN = timedelta(minutes=10)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """How often what is done. `linger`: how long a finished match is still polled."""

    tick_seconds: float = TICK_SECONDS
    reconcile_seconds: float = RECONCILE_SECONDS
    lock_seconds: float = LIFETIME_SECONDS
    linger: timedelta = LINGER
    sync_seconds: float = 900.0


class CricketPipeline:
    """One instance. Any number may run on the same tables; `on_change` hears of what this one wrote, `on_sync` that
    teams, leagues or fixtures may differ now.

    `open_store` gives a fresh store for each piece of work.
    """

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        delivery: PushDelivery,
        *,
        instance_id: str,
        now: Callable[[], datetime],
        pace: PollIntervals = PollIntervals(),
        on_change: Callable[[LiveChange], None] = lambda _: None,
        on_sync: Callable[[], None] = lambda: None,
        figures: PollFigures | None = None,
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._now = now
        self._pace = pace
        self._on_change = on_change
        self._on_sync = on_sync
        self._delivery = delivery
        self._coordinator = LACoordinator(open_store, delivery, now)
        self._names: dict[str, MatchNames] = {}
        self._synced = asyncio.Event()
        self.poller = ScorePoller(provider, open_store, instance_id, now, self._changed, lock_seconds=pace.lock_seconds)
        self.orchestrator = MatchOrchestrator(
            provider,
            self.poller,
            open_store,
            instance_id,
            now,
            self._ended,
            tick_seconds=pace.tick_seconds,
            reconcile_seconds=pace.reconcile_seconds,
            lock_seconds=pace.lock_seconds,
            linger=pace.linger,
            figures=figures,
        )
        jobs = (LeagueSyncJob, TeamSyncJob, FixtureSyncJob)
        self._jobs: list[SyncJob] = [job(provider, open_store, instance_id, now) for job in jobs]

    async def run(self) -> None:
        """Sync and poll until cancelled; then leave the matches to others.

        The first sync goes ahead, for it brings the names; but a provider that is slow holds up no match.
        """
        async with self.open(), asyncio.TaskGroup() as tasks:
            tasks.create_task(every(self._pace.sync_seconds, self._sync_and_tell))
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SYNC_SECONDS):
                    await self._synced.wait()
            tasks.create_task(self.orchestrator.run())

    @asynccontextmanager
    async def open(self) -> AsyncIterator["CricketPipeline"]:
        """For whoever starts matches by hand; closes what deliveries hold."""
        try:
            yield self
        finally:
            await self.orchestrator.aclose()
            await self._coordinator.aclose()
            await self._delivery.aclose()

    async def sync(self) -> None:
        """Leagues, then teams, then fixtures: each needs those before it."""
        for job in self._jobs:
            done = await job.run()
            if done.written or done.rejected or done.error:
                logger.info("Sync of %s: %s", job.name, done)
        self._on_sync()

    async def _sync_and_tell(self) -> None:
        try:
            await self.sync()
        finally:
            self._synced.set()

    async def _changed(self, store: Store, change: LiveChange) -> None:
        """A version was written: widgets and phones are told. Their trouble is no trouble of the match."""
        self._on_change(change)
        try:
            display = DisplayStates(store, self._now())
            # A match that changed by several versions at once has the last of them already.
            match = replace(change.match, version=change.active.version)
            states = await display.refresh(match, change.active, names=await self._names_of(display, change))
            await self._coordinator.deliver(MatchChange(match, states, change.active.events, change.rings))
        except Exception:
            logger.exception(
                "Version %d of match %s is not shown on widgets", change.active.version, change.match.match_id
            )

    async def _names_of(self, display: DisplayStates, change: LiveChange) -> MatchNames:
        """Read once a match: names do not change while one is played."""
        match_id = change.match.match_id
        if match_id not in self._names:
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            self._names[match_id] = await display.names(change.match)
        return self._names[match_id]

    async def _ended(self, active: ActiveMatch) -> None:
        match: Match | None = await Fixtures(self._open_store(), self._now()).by_id(active.match_id)
        if match is not None:
            unreached = (await self._coordinator.end(match)).outcomes[PushOutcome.FAILED]
            if unreached and self._now() - active.updated_at < self._pace.linger + REACHED_WITHIN:
                # The match stays on the list, and its end is tried again for those.
                raise Unavailable(f"{unreached} sessions do not know yet that the match is over.")
        self._names.pop(active.match_id, None)
