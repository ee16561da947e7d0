"""Metrics of the poller of live matches, for Prometheus."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.matches.live.poller import Tick

# The outcome of a tick that raised; the log has the error.
BROKEN = "broken"
ANSWERED = (Tick.CHANGED, Tick.UNCHANGED)


class PollMetrics(Collector):
    """The metrics of one process. A process that does not poll exports no sample."""

    def __init__(self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks = Counter[str]({outcome: 0 for outcome in (*Tick, BROKEN)})
        self._answered_at: dict[str, float] = {}  # by match id
        self._listed_at: float | None = None
        if registry is not None:
            registry.register(self)

    def live_list_read(self) -> None:
        """Record that the provider returned the live matches, or that polling begins."""
        self._listed_at = self._clock()

    def poll_started(self, match_id: str) -> None:
        self._answered_at[match_id] = self._clock()

    def tick_ended(self, match_id: str, outcome: Tick | None) -> None:
        """Count a tick. `outcome` is None if it raised."""
        self._ticks[outcome or BROKEN] += 1
        if outcome in ANSWERED:
            self._answered_at[match_id] = self._clock()

    def poll_ended(self, match_id: str) -> None:
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
