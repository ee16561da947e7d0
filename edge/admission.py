"""What decides whether a client is let in, and what it asks for is executed: put together from what is set up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edge.budgets import CallersBudgets, LocalBuckets
from edge.capacity import Capacity
from edge.connections import Connections
from edge.load import Load
from edge.places import Places


class Admission:
    """One of each for the process."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.connections = Connections(capacity)
        self.load = Load(capacity.concurrent, lag_seconds=capacity.lag_seconds)
        self.websockets = Places("WebSockets", capacity.websockets, capacity.websockets_per_caller)
        self.subscriptions = Places("subscriptions", capacity.subscriptions, capacity.subscriptions_per_caller)
        self.redis = None
        if capacity.redis_url is not None:
            from edge.redis_budgets import RedisBuckets  # its library, for those only who use it

            self.redis = RedisBuckets(capacity.redis_url)
        self.budgets = CallersBudgets(self.redis or LocalBuckets(), capacity)

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
