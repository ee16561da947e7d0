"""A pipeline for tests: pollers on a gateway's tables, ticked by the test or running."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from datastore.session.store import Store
from pipelines.matches.live.metrics import PollMetrics
from pipelines.matches.live.orchestrator import MatchOrchestrator, PollIntervals
from pipelines.matches.live.poller import LiveChange, ScorePoller
from pipelines.matches.providers.provider import Provider
from tests.support.served import Served


class PipelineInstance:
    """An instance of the pipeline without Live Activities.

    `changes` are its written changes, `repeated` those of which only the callback was repeated.
    """

    def __init__(self, served: Served, provider: Provider, name: str = "one", **options: Any) -> None:
        self.name = name
        self.changes: list[LiveChange] = []
        self.repeated: list[LiveChange] = []
        self.ended: list[str] = []
        now: Callable[[], Any] = options.pop("now", served.clock)
        metrics: PollMetrics | None = options.pop("metrics", None)
        intervals = PollIntervals(**{"linger": timedelta(0), **options})
        self.poller = ScorePoller(provider, served.store, name, now, self._changed, lock_seconds=intervals.lock_seconds)
        self.orchestrator = MatchOrchestrator(
            provider, self.poller, served.store, name, now, self._ended, intervals=intervals, metrics=metrics
        )

    async def _changed(self, _: Store, change: LiveChange) -> None:
        is_new = change.active.changed or change.active.events
        (self.changes if is_new else self.repeated).append(change)

    async def _ended(self, active: Any) -> None:
        self.ended.append(active.match_id)
