"""Cancellations from below: what a resolver waited for was cancelled, and not whoever waits for the resolver."""

import asyncio


class CutOff(Exception):
    """A resolver, or the source of a subscription, was cut off in the middle of its work."""


def cut_off(cancelled: asyncio.CancelledError) -> CutOff:
    """What to tell of it, for the task that caught it. Raises it again where it is that task which was cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise cancelled
    problem = CutOff("What was waited for was cancelled.")
    problem.__context__ = cancelled
    return problem
