"""Figures about how the store is reached: the breaker of each endpoint, and what is left to repeat tries with."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datastore.dynamodb.retry.circuit_breaker import CircuitBreaker


class StoreClient(Protocol):
    """How the store is reached: the client."""

    breakers: Mapping[str, CircuitBreaker]


class StoreMetrics(Collector):
    """Read from the client when they are asked for; there are none before the store is open."""

    def __init__(self, registry: CollectorRegistry, client: Callable[[], StoreClient | None]) -> None:
        self._client = client
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "gateway_dynamodb_breaker",
            "Whether an endpoint is asked: 0 it is, 1 calls wait for it to come back, 2 they fail at once.",
            labels=["endpoint"],
        )
        openings = CounterMetricFamily(
            "gateway_dynamodb_breaker_openings", "How often calls began to fail at once.", labels=["endpoint"]
        )
        tokens = GaugeMetricFamily(
            "gateway_dynamodb_retry_tokens", "What is left to pay for repeated tries.", labels=["endpoint"]
        )
        refused = CounterMetricFamily(
            "gateway_dynamodb_retries_refused", "Tries that were not repeated, for want of tokens.", labels=["endpoint"]
        )
        client = self._client()
        if client is not None:
            for endpoint, breaker in client.breakers.items():
                state.add_metric([endpoint], breaker.state)
                openings.add_metric([endpoint], breaker.times_opened)
                tokens.add_metric([endpoint], breaker.budget.tokens)
                refused.add_metric([endpoint], breaker.budget.refused)
        yield from (state, openings, tokens, refused)
