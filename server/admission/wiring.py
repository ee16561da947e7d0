"""The admission control of the process, assembled from its settings."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from datastore.primitives.tasks import cancel
from server.admission.budgets import CallerBudgets, LocalBuckets
from server.admission.connection_limits import Connections
from server.admission.load_shedding import LoadShedder
from server.admission.quotas import KeyedQuota
from server.admission.settings import Capacity


class Admission:
    """The limits of the process: connections, load, quotas and budgets."""

    def __init__(self, capacity: Capacity, connections: Connections | None = None) -> None:
        self.capacity = capacity
        self.connections = connections or Connections(capacity)
        self.load = LoadShedder(
            capacity.concurrent, per_caller=capacity.concurrent_per_caller, lag_seconds=capacity.lag_seconds
        )
        # Documents in the table are looked up before their operation takes a slot of `load`.
        self.lookups = LoadShedder(capacity.concurrent, noun="documents to look up")
        self.websockets = KeyedQuota("WebSockets", capacity.websockets, capacity.websockets_per_caller)
        self.subscriptions = KeyedQuota("subscriptions", capacity.subscriptions, capacity.subscriptions_per_caller)
        self.redis = None
        if capacity.redis_url is not None:
            # Imported late: its library is only loaded if it is used.
            from server.admission.redis_budgets import RedisBuckets

            self.redis = RedisBuckets(capacity.redis_url)
        self.budgets = CallerBudgets(LocalBuckets(), capacity, shared=self.redis)

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """Return the gauges by name: the help text, and the function that reads the value."""
        return {
            "gateway_operations_running": ("Operations that are running.", lambda: self.load.running),
            "gateway_operations_waiting": ("Operations that wait for a slot.", lambda: self.load.waiting),
            "gateway_connections": ("Open connections.", lambda: self.connections.open),
            "gateway_websockets": ("Open WebSockets.", lambda: self.websockets.total),
            "gateway_subscriptions_most": ("The limit of running subscriptions.", lambda: self.subscriptions.limit),
            "gateway_subscriptions": ("Running subscriptions.", lambda: self.subscriptions.total),
            "gateway_budgets_shared": ("1 while budgets are kept in Redis.", self._shares_budgets),
        }

    @property
    def budgets_state(self) -> str | None:
        """The state of the shared budgets for `/readyz`: ok or away, None without Redis."""
        if self.redis is None:
            return None
        return "ok" if self.redis.is_available else "away"

    def shed(self) -> float:
        """Return the number of operations that were refused since the start."""
        return self.load.shed + self.lookups.shed

    def _shares_budgets(self) -> float:
        return float(self.redis is not None and self.redis.is_available)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the lag of the event loop and Redis for the duration of a block."""
        watching = asyncio.create_task(self.load.watch_lag()) if self.capacity.lag_seconds else None
        if self.redis is not None:
            await self.redis.start()
        try:
            yield
        finally:
            await cancel(watching)
            if self.redis is not None:
                await self.redis.aclose()
