"""The events of a source's deliveries, for tests that need no positions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from datastore.change_streams.subscriptions.delivery import Delivery

Event = TypeVar("Event")


async def events_in(deliveries: AsyncGenerator[Delivery[Event], None]) -> AsyncGenerator[Event, None]:
    async with aclosing(deliveries):
        async for delivery in deliveries:
            if delivery.event is not None:
                yield delivery.event
