"""What the poller of live matches tells of itself, for Prometheus."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.matches.live.poller import Tick

# A tick that went wrong, which the log has.
BROKEN = "broken"
ANSWERED = (Tick.CHANGED, Tick.UNCHANGED)


class PollFigures(Collector):
    """Those of one process. Nothing is told before it begins to poll: what is missing is polled by nobody here."""

    def __init__(self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks = Counter[str]({outcome: 0 for outcome in (*Tick, BROKEN)})
        self._answered: dict[str, float] = {}  # by match
        self._listed: float | None = None
        if registry is not None:
            registry.register(self)

    def listed(self) -> None:
        """The provider told which matches are live, or polling begins."""
        self._listed = self._clock()

    def begun(self, match_id: str) -> None:
        self._answered[match_id] = self._clock()

    def ticked(self, match_id: str, outcome: Tick | None) -> None:
        """A tick came to this; None is one that went wrong."""
        self._ticks[outcome or BROKEN] += 1
        if outcome in ANSWERED:
            self._answered[match_id] = self._clock()

    def left(self, match_id: str) -> None:
        self._answered.pop(match_id, None)

    def collect(self) -> Iterator[Metric]:
        ticks = CounterMetricFamily("cricket_ticks", "Ticks of matches by outcome.", labels=["outcome"])
        polled = GaugeMetricFamily("cricket_matches_polled", "Matches that this process polls.")
        age = GaugeMetricFamily("cricket_tick_age_seconds", "Since the match that waits longest was last answered for.")
        listed = GaugeMetricFamily("cricket_live_age_seconds", "Since the provider last told which matches are live.")
        if self._listed is not None:
            now = self._clock()
            for outcome, count in self._ticks.items():
                ticks.add_metric([outcome], count)
            polled.add_metric([], len(self._answered))
            age.add_metric([], now - min(self._answered.values(), default=now))
            listed.add_metric([], now - self._listed)
        yield from (ticks, polled, age, listed)
