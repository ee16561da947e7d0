"""Counters and histograms that are updated on the event loop only.

They are exported like those of `prometheus_client`. The latter take a lock and look up labels at every update, which
would cost more than the rest of a small operation.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class CounterValue:
    """The value of a counter for one combination of labels."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0.0


class CounterFamily(Collector):
    """A counter for each combination of labels. The suffix `_total` is added to its name."""

    def __init__(self, registry: CollectorRegistry, name: str, help_: str, labels: Sequence[str]) -> None:
        self._name_and_help = name, help_
        self._labels = labels
        self._values: dict[Labels, CounterValue] = {}
        registry.register(self)

    def labelled(self, labels: Labels) -> CounterValue:
        """Return the value for these labels, in their order. A caller may keep the value to save the lookup."""
        count = self._values.get(labels)
        if count is None:
            count = self._values[labels] = CounterValue()
        return count

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Increase the value for these labels."""
        self.labelled(labels).amount += amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._name_and_help, labels=self._labels)
        for labels, count in self._values.items():
            family.add_metric(labels, count.amount)
        yield family


class HistogramValue:
    """The counts of a histogram, one per bound and one beyond the last bound, and the sum of the observed values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class HistogramFamily(Collector):
    """A histogram for each combination of labels, with ascending `bounds`."""

    def __init__(
        self, registry: CollectorRegistry, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str]
    ) -> None:
        self._name_and_help = name, help_
        self._labels = labels
        self._bounds = bounds
        self._names = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        self._histograms: dict[Labels, HistogramValue] = {}
        registry.register(self)

    def labelled(self, labels: Labels) -> HistogramValue:
        """Return the histogram for these labels, in their order. A caller may keep the histogram to save the lookup."""
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = HistogramValue(self._bounds)
        return histogram

    def observe(self, labels: Labels, value: float) -> None:
        self.labelled(labels).observe(value)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._name_and_help, labels=self._labels)
        for labels, histogram in self._histograms.items():
            buckets, cumulative = [], 0
            for name, count in zip(self._names, histogram.counts, strict=True):
                cumulative += count
                buckets.append((name, cumulative))
            family.add_metric(labels, buckets, histogram.total)
        yield family
