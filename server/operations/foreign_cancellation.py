"""Foreign cancellations: the awaitable of a resolver was cancelled, but not the task that runs the resolver."""

import asyncio


class ForeignCancellation(Exception):
    """An awaitable of a resolver, or of the source of a subscription, was cancelled."""


def translate_cancellation(cancelled: asyncio.CancelledError) -> ForeignCancellation:
    """Return the error for a caught cancellation; raise it again if the current task itself was cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise cancelled
    problem = ForeignCancellation("An awaitable of the resolver was cancelled.")
    problem.__context__ = cancelled
    return problem
