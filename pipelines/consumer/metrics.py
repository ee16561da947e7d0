"""Prometheus metrics of the consumers of streams."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

LOCAL = "127.0.0.1"


class ShardLag:
    """The age of the oldest unhandled change of one shard."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._caught_up_at = now()
        self._since: datetime | None = None
        #: Whether the shard was read, so that its lag is known.
        self.is_known = False

    def set_oldest(self, since: datetime) -> None:
        """Set the time of the oldest unhandled change, or a little before it."""
        self._since = since
        self.is_known = True

    def caught_up(self) -> None:
        """Set the lag to 0: the shard was read to its end."""
        self._since = None
        self.is_known = True
        self._caught_up_at = self._now()

    def stream_unavailable(self) -> None:
        """Count the time since the shard was read to its end as lag, since newer changes are unknown."""
        self._since = self._since or self._caught_up_at

    def seconds(self) -> float:
        since = self._since
        return 0.0 if since is None else max(0.0, (self._now() - since).total_seconds())


class StreamMetrics:
    """The metrics of the consumers of one group in a process. `name` is the prefix of the metric names."""

    def __init__(self, registry: CollectorRegistry | None = None, name: str = "stream") -> None:
        self.registry = registry or CollectorRegistry()
        self._name = name
        self._lags: dict[tuple[str, str], ShardLag] = {}
        self._lag = self._gauge("lag_seconds", "Age of the oldest change not yet handled.", "table", "shard")
        self._leases = self._gauge("leases_held", "Shards this process reads.", "table")
        self._records = self._counter("records", "Changes by handler and outcome.", "table", "handler", "outcome")
        self._letters = self._counter("dead_letters", "Changes kept as dead letters.", "table", "handler")
        self._lost = self._counter("lost", "Times that changes were trimmed, or a position refused.", "table")

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"{self._name}_{name}", help_, labels, registry=self.registry)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"{self._name}_{name}", help_, labels, registry=self.registry)

    @contextmanager
    def shard(self, table: str, shard_id: str, now: Callable[[], datetime]) -> Iterator[ShardLag]:
        """Export the lag of a shard while this process reads it."""
        lag = ShardLag(now)
        self._lags[table, shard_id] = lag
        self._lag.labels(table, shard_id).set_function(lag.seconds)
        self._leases.labels(table).inc()
        try:
            yield lag
        finally:
            self._leases.labels(table).dec()
            self._lags.pop((table, shard_id), None)
            with suppress(KeyError):
                self._lag.remove(table, shard_id)

    def lag_of(self, table: str) -> float:
        """Return the largest lag of the table's shards that this process reads, in seconds.

        It is infinite while one of them is not read yet, and if this process reads none.
        """
        lags = [lag for (name, _), lag in self._lags.items() if name == table]
        if not lags or not all(lag.is_known for lag in lags):
            return math.inf
        return max(lag.seconds() for lag in lags)

    def handled(self, table: str, handler: str, changes: int) -> None:
        self._records.labels(table, handler, "handled").inc(changes)

    def retried(self, table: str, handler: str) -> None:
        """Count another attempt at a single change."""
        self._records.labels(table, handler, "retried").inc()

    def buried(self, table: str, handler: str) -> None:
        self._records.labels(table, handler, "buried").inc()
        self._letters.labels(table, handler).inc()

    def changes_lost(self, table: str) -> None:
        self._lost.labels(table).inc()

    @contextmanager
    def served(self, port: int, host: str = LOCAL) -> Iterator[None]:
        """Serve http://<host>:<port>/metrics. Raises `OSError` if the address cannot be bound."""
        server, thread = start_http_server(port, addr=host, registry=self.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
