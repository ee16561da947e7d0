"""Metrics of the store's client: the circuit breaker and the retry budget of each endpoint."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datastore.dynamodb.retry.circuit_breaker import CircuitBreaker
from datastore.dynamodb.retry.disk_state import DiskState


class StoreClient(Protocol):
    """The client of the store."""

    breakers: Mapping[str, CircuitBreaker]
    disk: DiskState


class StoreMetrics(Collector):
    """A collector that reads the client at each scrape. Before the store is open, the metrics have no values."""

    def __init__(self, registry: CollectorRegistry, client: Callable[[], StoreClient | None]) -> None:
        self._client = client
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "gateway_dynamodb_breaker",
            "The state of an endpoint's circuit breaker: 0 closed, 1 calls wait for a probe, 2 calls fail at once.",
            labels=["endpoint"],
        )
        openings = CounterMetricFamily(
            "gateway_dynamodb_breaker_openings",
            "The number of times that the circuit breaker opened.",
            labels=["endpoint"],
        )
        tokens = GaugeMetricFamily(
            "gateway_dynamodb_retry_tokens", "The tokens that are left in the retry budget.", labels=["endpoint"]
        )
        refused = CounterMetricFamily(
            "gateway_dynamodb_retries_refused",
            "Retries that were refused because the retry budget was empty.",
            labels=["endpoint"],
        )
        full = GaugeMetricFamily(
            "gateway_store_disk_full", "1 after a write that the store refused because its disk is full or read-only."
        )
        client = self._client()
        if client is not None:
            full.add_metric([], client.disk.is_full)
            for endpoint, breaker in client.breakers.items():
                state.add_metric([endpoint], breaker.state)
                openings.add_metric([endpoint], breaker.times_opened)
                tokens.add_metric([endpoint], breaker.budget.tokens)
                refused.add_metric([endpoint], breaker.budget.refused)
        yield from (state, openings, tokens, refused, full)
