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


class CounterValue:
    """What was counted for one combination of labels."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0.0


class CounterFamily(Collector):
    """A counter for each combination of labels. Its name gets `_total` in the end."""

    def __init__(self, registry: CollectorRegistry, name: str, help_: str, labels: Sequence[str]) -> None:
        self._told = name, help_
        self._labels = labels
        self._counts: dict[Labels, CounterValue] = {}
        registry.register(self)

    def labelled(self, labels: Labels) -> CounterValue:
        """The count for these values of the labels, in their order: who keeps it need not look it up again."""
        count = self._counts.get(labels)
        if count is None:
            count = self._counts[labels] = CounterValue()
        return count

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Count for these values of the labels."""
        self.labelled(labels).amount += amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._told, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count.amount)
        yield family


class HistogramValue:
    """How many were observed up to each bound and beyond the last, and what they come to."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class HistogramFamily(Collector):
    """A histogram for each combination of labels: how many values are at most each of the `bounds`, which ascend."""

    def __init__(
        self, registry: CollectorRegistry, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str]
    ) -> None:
        self._told = name, help_
        self._labels = labels
        self._bounds = bounds
        self._names = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        self._spreads: dict[Labels, HistogramValue] = {}
        registry.register(self)

    def labelled(self, labels: Labels) -> HistogramValue:
        """That for these values of the labels, in their order: who keeps it need not look it up again."""
        spread = self._spreads.get(labels)
        if spread is None:
            spread = self._spreads[labels] = HistogramValue(self._bounds)
        return spread

    def observe(self, labels: Labels, value: float) -> None:
        self.labelled(labels).observe(value)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._told, labels=self._labels)
        for labels, spread in self._spreads.items():
            buckets, below = [], 0
            for name, count in zip(self._names, spread.counts, strict=True):
                below += count
                buckets.append((name, below))
            family.add_metric(labels, buckets, spread.total)
        yield family
