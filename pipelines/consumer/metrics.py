"""What the consumers of streams tell of themselves, for Prometheus."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

LOCAL = "127.0.0.1"


class ShardLag:
    """How far the handling of one shard is behind its writes. It `is_known` once the shard was read."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._caught_up_at = now()
        self._since: datetime | None = None
        self.is_known = False

    def behind(self, since: datetime) -> None:
        """Not all is handled: the oldest change that waits is from `since`, or a little later."""
        self._since = since
        self.is_known = True

    def caught_up(self) -> None:
        self._since = None
        self.is_known = True
        self._caught_up_at = self._now()

    def in_doubt(self) -> None:
        """The stream does not answer: what came since nobody knows."""
        self._since = self._since or self._caught_up_at

    def seconds(self) -> float:
        since = self._since
        return 0.0 if since is None else max(0.0, (self._now() - since).total_seconds())


class StreamMetrics:
    """The figures of the consumers of a process, those of one group. `name` begins the names of all figures."""

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
        """While the shard is worked by this process."""
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

        It is infinite while one of them was not read yet, and where this process reads none.
        """
        lags = [lag for (name, _), lag in self._lags.items() if name == table]
        if not lags or not all(lag.is_known for lag in lags):
            return math.inf
        return max(lag.seconds() for lag in lags)

    def handled(self, table: str, handler: str, changes: int) -> None:
        self._records.labels(table, handler, "handled").inc(changes)

    def retried(self, table: str, handler: str) -> None:
        """One change was tried once more by itself."""
        self._records.labels(table, handler, "retried").inc()

    def buried(self, table: str, handler: str) -> None:
        self._records.labels(table, handler, "buried").inc()
        self._letters.labels(table, handler).inc()

    def lost(self, table: str) -> None:
        self._lost.labels(table).inc()

    @contextmanager
    def served(self, port: int, host: str = LOCAL) -> Iterator[None]:
        """Answer Prometheus at http://<host>:<port>/metrics. Raises `OSError` when that cannot be had."""
        server, thread = start_http_server(port, addr=host, registry=self.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
