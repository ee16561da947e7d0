"""Metrics of the executor: what was compiled, and what graphql-core executed instead."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jit import CacheStatistics


class ExecutionMetrics(Collector):
    """The metrics of a schema's cache of compiled operations, read from `statistics` at each scrape."""

    def __init__(self, statistics: Callable[[], CacheStatistics]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        found = self._statistics()
        executions = CounterMetricFamily(
            "gateway_executions",
            "Executions of operations and of events, by executor, and the reason if graphql-core interpreted them.",
            labels=("executor", "reason"),
        )
        executions.add_metric(("compiled", ""), found.compiled)
        for reason, count in found.interpreted.items():
            executions.add_metric(("interpreted", reason), count)
        yield executions
        yield GaugeMetricFamily("gateway_compiled_operations", "Compiled operations in memory.", found.operations)
        yield GaugeMetricFamily("gateway_compiled_fields", "Fields of the compiled operations.", found.fields)
        yield CounterMetricFamily(
            "gateway_compiled_evictions", "Compiled operations that were dropped for others.", found.evicted
        )
