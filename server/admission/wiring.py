"""What decides whether a client is let in, and what it asks for is executed: put together from what is set up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from server.admission.budgets import CallersBudgets, LocalBuckets
from server.admission.connection_limits import Connections
from server.admission.load_shedding import LoadShedder
from server.admission.quotas import KeyedQuota
from server.admission.settings import Capacity


class Admission:
    """One of each for the process."""

    def __init__(self, capacity: Capacity, connections: Connections | None = None) -> None:
        self.capacity = capacity
        self.connections = connections or Connections(capacity)
        self.load = LoadShedder(
            capacity.concurrent, each=capacity.concurrent_per_caller, lag_seconds=capacity.lag_seconds
        )
        # Documents in the table are looked up before there is an operation that could take its turn.
        self.lookups = LoadShedder(capacity.concurrent, what="documents to look up")
        self.websockets = KeyedQuota("WebSockets", capacity.websockets, capacity.websockets_per_caller)
        self.subscriptions = KeyedQuota("subscriptions", capacity.subscriptions, capacity.subscriptions_per_caller)
        self.redis = None
        if capacity.redis_url is not None:
            from server.admission.redis_budgets import RedisBuckets  # its library, for those only who use it

            self.redis = RedisBuckets(capacity.redis_url)
        self.budgets = CallersBudgets(self.redis or LocalBuckets(), capacity)

    def figures(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """What can be seen of it: the name of each figure, what it is, and how it is read."""
        return {
            "gateway_operations_running": ("Operations that are executed.", lambda: self.load.running),
            "gateway_operations_waiting": ("Operations that wait for their turn.", lambda: self.load.waiting),
            "gateway_connections": ("Open connections.", lambda: self.connections.open),
            "gateway_websockets": ("Open WebSockets.", lambda: self.websockets.total),
            "gateway_subscriptions_most": ("How many may run.", lambda: self.subscriptions.most),
            "gateway_subscriptions": ("Subscriptions that run.", lambda: self.subscriptions.total),
            "gateway_budgets_shared": ("1 while budgets are kept in Redis.", self._shares_budgets),
        }

    def shed(self) -> float:
        """How many operations were refused since the start: too many."""
        return self.load.shed + self.lookups.shed

    def _shares_budgets(self) -> float:
        return float(self.redis is not None and self.redis.is_there)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the event loop, and let go of Redis in the end."""
        watching = asyncio.create_task(self.load.watched()) if self.capacity.lag_seconds else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            if self.redis is not None:
                await self.redis.aclose()
