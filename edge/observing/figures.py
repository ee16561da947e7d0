"""Figures that are counted on the event loop, and told when somebody asks.

They are told as the counters and histograms of `prometheus_client` are, which take locks and look labels up at every
count: more than a small operation costs otherwise.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class Counts(Collector):
    """A counter for each combination of labels. Its name gets `_total` in the end."""

    def __init__(self, registry: CollectorRegistry, name: str, help_: str, labels: Sequence[str]) -> None:
        self._told = name, help_
        self._labels = labels
        self._counts: dict[Labels, float] = {}
        registry.register(self)

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Count for these values of the labels, in their order."""
        self._counts[labels] = self._counts.get(labels, 0.0) + amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._told, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class _Series:
    """How many were observed up to each bound and beyond the last, and what they come to."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class Spreads(Collector):
    """A histogram for each combination of labels: how many values are at most each of the `bounds`, which ascend."""

    def __init__(
        self, registry: CollectorRegistry, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str]
    ) -> None:
        self._told = name, help_
        self._labels = labels
        self._bounds = bounds
        self._names = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        self._series: dict[Labels, _Series] = {}
        registry.register(self)

    def observe(self, labels: Labels, value: float) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self._bounds))
        series.counts[bisect_left(self._bounds, value)] += 1
        series.total += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._told, labels=self._labels)
        for labels, series in self._series.items():
            buckets, below = [], 0
            for name, count in zip(self._names, series.counts, strict=True):
                below += count
                buckets.append((name, below))
            family.add_metric(labels, buckets, series.total)
        yield family
