"""Change feeds on an engine of their own, or on a scripted stream."""

import asyncio
from typing import Any

from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.model.access_patterns import Table
from tests.support.scripted_stream import Script

BLIP = Table("Blip", "pk", "sk", stream="NEW_AND_OLD_IMAGES")


async def take_changes(events: ChangeSubscription[Any], number: int) -> list[Any]:
    async with asyncio.timeout(50):
        return [await anext(events) for _ in range(number)]


def every(change: Change) -> Change:
    """Return the change unchanged."""
    return change


def reader_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "StreamReader." in getattr(task.get_coro(), "__qualname__", "")]


# Scripted streams.


Told = list[Exception]


def scripted(script: Script, received: Told | None = None) -> ChangeFeed:
    heard: Told = received if received is not None else []
    return ChangeFeed(
        script, poll_interval=0.001, discover_interval=0.02, linger=0, on_error=lambda _, problem: heard.append(problem)
    )
