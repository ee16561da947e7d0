"""Conflation of updates for slow clients: the newest state, all events, and no delay for urgent updates."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from datastore.change_streams.subscriptions.resume_position import ResumePosition, SubscriptionProgress
from resolvers.shared.event_source import close_reader


class ConflatableUpdate(Protocol):
    """An update of a match. `then` merges a later update of the same match into this one."""

    @property
    def match_id(self) -> str: ...
    @property
    def is_urgent(self) -> bool: ...
    def then(self, later: Any) -> Any: ...


U = TypeVar("U", bound=ConflatableUpdate)


async def conflated(
    updates: AsyncGenerator[Sequence[U], None],
    seconds: float,
    ahead: SubscriptionProgress,
    progress: SubscriptionProgress,
) -> AsyncGenerator[Sequence[U], None]:
    """Yield the first batch at once, then each match at most once in `seconds` unless its update is urgent.

    Waiting updates of a match are conflated. With 0 seconds every batch passes unchanged. `ahead` is the progress of
    `updates`. `progress` is that of the yielded batches: its position precedes all waiting updates.
    """
    loop = asyncio.get_running_loop()
    waiting = _WaitingUpdates[U](seconds)
    is_first = True
    next_batch = asyncio.ensure_future(anext(updates))
    try:
        while True:
            progress.has_emitted_all = not waiting
            await asyncio.wait([next_batch], timeout=waiting.seconds_until_due(loop.time()))
            progress.has_emitted_all = False
            urgent: set[str] = set()
            if next_batch.done():
                batch = next_batch.result()
                waiting.add(batch, ahead.position)
                urgent = {update.match_id for update in batch if update.is_urgent}
                next_batch = asyncio.ensure_future(anext(updates))
            ready = waiting.take(loop.time(), urgent)
            if ready or is_first:
                is_first = False
                progress.set_position(waiting.position)
                yield ready
    except StopAsyncIteration:
        if rest := waiting.take_all():
            progress.set_position(waiting.position)
            yield rest
    except Exception:
        if rest := waiting.take_all():
            progress.set_position(waiting.position)
            yield rest
        raise
    finally:
        await close_reader(next_batch, updates)


class _WaitingUpdates(Generic[U]):
    """The updates that wait for their interval, one for each match."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._updates: dict[str, U] = {}
        # By match id, the position before its first waiting update.
        self._positions: dict[str, ResumePosition | None] = {}
        # By match id, the earliest time of its next update.
        self._due: dict[str, float] = {}
        self._latest_position: ResumePosition | None = None

    def __bool__(self) -> bool:
        return bool(self._updates)

    @property
    def position(self) -> ResumePosition | None:
        """The latest position that precedes all waiting updates."""
        return min(filter(None, self._positions.values()), default=self._latest_position)

    def seconds_until_due(self, now: float) -> float | None:
        """Return the seconds until the first waiting update is due, or None if none waits."""
        return max(0.0, min(self._due[id] for id in self._updates) - now) if self._updates else None

    def add(self, batch: Sequence[U], position: ResumePosition | None) -> None:
        """Add a batch. `position` is the position after it."""
        for update in batch:
            earlier = self._updates.get(update.match_id)
            self._updates[update.match_id] = update if earlier is None else earlier.then(update)
            self._positions.setdefault(update.match_id, self._latest_position)
        self._latest_position = position

    def take(self, now: float, urgent: Collection[str]) -> list[U]:
        """Remove and return the updates that are due and those of the urgent matches."""
        ready = [id for id in self._updates if id in urgent or now >= self._due.get(id, now)]
        self._due |= dict.fromkeys(ready, now + self._seconds)
        for id in ready:
            del self._positions[id]
        return [self._updates.pop(id) for id in ready]

    def take_all(self) -> list[U]:
        """Remove and return all waiting updates."""
        rest = list(self._updates.values())
        self._updates.clear()
        self._positions.clear()
        return rest
