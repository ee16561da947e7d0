"""The live score pipeline: sync jobs, orchestrator, poller, display states and Live Activities."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from msgspec.structs import replace

from datastore.errors import Unavailable
from datastore.matches.cricket import Match
from datastore.matches.display import MatchNames
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from datastore.primitives.lru_cache import LruCache
from datastore.primitives.tasks import every
from datastore.session.store import Store
from pipelines.matches.live.metrics import PollMetrics
from pipelines.matches.live.orchestrator import MatchOrchestrator, PollIntervals
from pipelines.matches.live.poller import LiveChange, ScorePoller
from pipelines.matches.providers.provider import Provider
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_queue import MatchChange
from pipelines.matches.push.push_service import PushOutcome, PushService
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncJob, TeamSyncJob

MAX_CACHED_NAMES = 1000
FIRST_SYNC_SECONDS = 10.0
# How long the end of a match is resent to phones that could not be reached.
END_RETRY_LIMIT = timedelta(minutes=10)

logger = logging.getLogger(__name__)


class CricketPipeline:
    """One instance of the pipeline. Any number may run on the same tables.

    `on_change` is called with each version that this instance wrote, `on_sync` after each sync of teams, leagues and
    fixtures. `open_store` returns a new store for each piece of work.
    """

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        delivery: PushService,
        *,
        instance_id: str,
        now: Callable[[], datetime],
        intervals: PollIntervals = PollIntervals(),  # noqa: B008 - frozen
        on_change: Callable[[LiveChange], None] = lambda _: None,
        on_sync: Callable[[], None] = lambda: None,
        metrics: PollMetrics | None = None,
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._now = now
        self._intervals = intervals
        self._on_change = on_change
        self._on_sync = on_sync
        self._delivery = delivery
        self._coordinator = LACoordinator(open_store, delivery, now)
        self._names = LruCache[str, MatchNames](MAX_CACHED_NAMES)
        self._synced = asyncio.Event()
        self.poller = ScorePoller(
            provider, open_store, instance_id, now, self._changed, lock_seconds=intervals.lock_seconds
        )
        self.orchestrator = MatchOrchestrator(
            provider,
            self.poller,
            open_store,
            instance_id,
            now,
            self._ended,
            intervals=intervals,
            metrics=metrics,
        )
        jobs = (LeagueSyncJob, TeamSyncJob, FixtureSyncJob)
        self._jobs: list[SyncJob] = [job(provider, open_store, instance_id, now) for job in jobs]

    async def run(self) -> None:
        """Sync and poll until cancelled; then release the matches.

        Polling waits for the first sync, which reads the names, but only for a limited time.
        """
        async with self.open(), asyncio.TaskGroup() as tasks:
            tasks.create_task(every(self._intervals.sync_seconds, self._sync_and_signal))
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SYNC_SECONDS):
                    await self._synced.wait()
            tasks.create_task(self.orchestrator.run())

    @asynccontextmanager
    async def open(self) -> AsyncIterator["CricketPipeline"]:
        """Close the pipeline at the end of the block. For a caller that starts matches itself."""
        try:
            yield self
        finally:
            await self.orchestrator.aclose()
            await self._coordinator.aclose()
            await self._delivery.aclose()

    async def sync(self) -> None:
        """Sync leagues, then teams, then fixtures: each step depends on the previous ones."""
        for job in self._jobs:
            result = await job.run()
            if result.written or result.rejected or result.error:
                logger.info("Sync of %s: %s", job.name, result)
        self._on_sync()

    async def _sync_and_signal(self) -> None:
        try:
            await self.sync()
        finally:
            self._synced.set()

    async def _changed(self, store: Store, change: LiveChange) -> None:
        """Send a written version to widgets and phones. A failure to do so does not affect the match."""
        self._on_change(change)
        try:
            display = DisplayStates(store, self._now())
            # When several versions are written together, each carries the match of the last one.
            match = replace(change.match, version=change.active.version)
            states = await display.refresh(match, change.active, names=await self._names_of(display, change))
            await self._coordinator.deliver(MatchChange(match, states, change.active.events, change.rings))
        except Exception:
            logger.exception(
                "Could not update widgets to version %d of match %s", change.active.version, change.match.match_id
            )

    async def _names_of(self, display: DisplayStates, change: LiveChange) -> MatchNames:
        """Return the names, read once per match: they do not change while it is played."""
        match_id = change.match.match_id
        names = self._names.get(match_id)
        if names is None:
            names = await display.names(change.match)
            self._names.put(match_id, names)
        return names

    async def _ended(self, active: ActiveMatch) -> None:
        match: Match | None = await Fixtures(self._open_store(), self._now()).by_id(active.match_id)
        if match is not None:
            unreached = (await self._coordinator.end(match)).outcomes[PushOutcome.FAILED]
            if unreached and self._now() - active.updated_at < self._intervals.linger + END_RETRY_LIMIT:
                # The match stays on the list, so the orchestrator calls this again.
                raise Unavailable(f"{unreached} sessions have not received the end of the match; retrying.")
        self._names.pop(active.match_id)
