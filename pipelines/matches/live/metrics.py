"""Metrics of the poller of live matches, for Prometheus."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.matches.live.poller import TickOutcome

# The label of a tick that raised; the log has the error.
RAISED = "broken"
# Outcomes of ticks in which the provider returned the match.
ANSWERED = (TickOutcome.CHANGED, TickOutcome.UNCHANGED)


class PollMetrics(Collector):
    """The metrics of one process. It exports samples from the first `record_live_list` on."""

    def __init__(self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks = Counter[str]({outcome: 0 for outcome in (*TickOutcome, RAISED)})
        self._answered_at: dict[str, float] = {}  # by match id
        self._listed_at: float | None = None
        if registry is not None:
            registry.register(self)

    def record_live_list(self) -> None:
        """Record that the provider returned the live matches. At the start of polling, begin the age of the list."""
        self._listed_at = self._clock()

    def polling_started(self, match_id: str) -> None:
        """Begin the age of a match at zero."""
        self._answered_at[match_id] = self._clock()

    def tick_ended(self, match_id: str, outcome: TickOutcome | None) -> None:
        """Count a tick. `outcome` is None if it raised."""
        self._ticks[outcome or RAISED] += 1
        if outcome in ANSWERED:
            self._answered_at[match_id] = self._clock()

    def polling_stopped(self, match_id: str) -> None:
        """Remove a match that this process no longer polls."""
        self._answered_at.pop(match_id, None)

    def collect(self) -> Iterator[Metric]:
        ticks = CounterMetricFamily("cricket_ticks", "Ticks of matches by outcome.", labels=["outcome"])
        polled = GaugeMetricFamily("cricket_matches_polled", "Matches that this process polls.")
        age = GaugeMetricFamily(
            "cricket_tick_age_seconds", "Seconds since the provider last answered, for the match that waits longest."
        )
        listed = GaugeMetricFamily(
            "cricket_live_age_seconds", "Seconds since the provider last listed the live matches."
        )
        if self._listed_at is not None:
            now = self._clock()
            for outcome, count in self._ticks.items():
                ticks.add_metric([outcome], count)
            polled.add_metric([], len(self._answered_at))
            age.add_metric([], now - min(self._answered_at.values(), default=now))
            listed.add_metric([], now - self._listed_at)
        yield from (ticks, polled, age, listed)
