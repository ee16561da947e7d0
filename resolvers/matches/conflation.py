"""Conflation of updates for slow clients: the newest state, all events, and no delay for urgent updates."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from datastore.change_streams.subscriptions.delivery import Delivery, Phase, ReadAhead, ResumePosition
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
    batches: AsyncGenerator[Delivery[Sequence[U]], None], seconds: float
) -> AsyncGenerator[Delivery[Sequence[U]], None]:
    """Yield the first batch at once, then each match at most once in `seconds` unless its update is urgent.

    Waiting updates of a match are conflated. With 0 seconds every batch passes unchanged. The position of a yielded
    batch precedes all waiting updates.
    """
    loop = asyncio.get_running_loop()
    waiting, ahead = _WaitingUpdates[U](seconds), ReadAhead()
    phase, is_first = Phase.LIVE, True
    next_batch = asyncio.ensure_future(anext(batches))

    def delivery_of(updates: Sequence[U]) -> Delivery[Sequence[U]]:
        return Delivery(phase, updates, waiting.position)

    try:
        while True:
            ahead.has_emitted_all = not waiting
            await asyncio.wait([next_batch], timeout=waiting.seconds_until_due(loop.time()))
            ahead.has_emitted_all = False
            urgent: set[str] = set()
            has_batch = False
            if next_batch.done():
                delivery = next_batch.result()
                if delivery.start is not None:
                    yield ahead.started(delivery, delivery.known)
                elif delivery.event is None:
                    phase = Phase.LIVE
                    yield delivery
                else:
                    phase, has_batch = delivery.phase, True
                    waiting.add(delivery.event, delivery.position)
                    urgent = {update.match_id for update in delivery.event if update.is_urgent}
                next_batch = asyncio.ensure_future(anext(batches))
            ready = waiting.take(loop.time(), urgent)
            if ready or (is_first and has_batch):
                is_first = False
                yield delivery_of(ready)
    except StopAsyncIteration:
        if rest := waiting.take_all():
            yield delivery_of(rest)
    except Exception:
        if rest := waiting.take_all():
            yield delivery_of(rest)
        raise
    finally:
        await close_reader(next_batch, batches)


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
        positions = filter(None, self._positions.values())
        return min(positions, key=attrgetter("number"), default=self._latest_position)

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
