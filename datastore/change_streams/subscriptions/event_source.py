"""Sources of a subscription's events, shared by the subscribers of a group or for one subscriber."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.queues import QueueLimits

Event = TypeVar("Event")


class EventContext(Protocol):
    """The part of a subscriber's context that a source of events uses."""

    @property
    def progress(self) -> SubscriptionProgress | None:
        """The subscription's resume position, if its events have one."""

    def advance_watermark(self) -> None:
        """Advance the freshness watermark: later reads return nothing older."""


def _any(_: object) -> None:
    """The key of all events, where a newer one replaces any."""


def _nothing(_: object) -> str:
    return ""


class JoinFilter(Protocol):
    """Which events come after how things stood for one who joins others. It is made when they join."""

    def begin(self, first: Any) -> None:
        """This is how things stand, as it was read since."""

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        """Whether one who has gone on from elsewhere up to these versions has all that the others had been told.

        What has `left` since was told up to that version.
        """

    def go_on(self, seen: Mapping[str, int]) -> None:
        """Instead of `begin`: these versions are known."""

    def is_news(self, event: Any) -> bool:
        """Whether an event comes after that. Asked about each that the others were told since this was made, in turn.

        Of some streams all do from some event on: see `is_settled`.
        """

    @property
    def is_settled(self) -> bool:
        """Whether all that come from now on are news."""


@dataclass(frozen=True, eq=False)
class SharedSource(Generic[Event]):
    """Events that are the same for all who ask alike: one source for as many as there are.

    `events` begins with what it is given, awaited once no change can be missed any more, where there is a `first`: that
    reads how things stand, in the context of whom it is told. Whoever joins later is told that too, and then what comes
    `since`. `check` raises for those who may not be told an event. `key` tells which waiting one a newer one replaces.
    `seen` are the versions that the events have told, where they have some, and `left` those at which something was
    told of for the last time; `known` is what goes with the place of a first event (see `resume_position`).

    Who asks may be asked in the contexts that `first` and `check` are given, and before this is made: not by `events`.

    Iterated, these are the events of one subscriber, of `context`.
    """

    context: EventContext
    keeping: QueueLimits
    events: Callable[[Callable[[], Awaitable[Event | None]]], AsyncGenerator[Event, None]]
    key: Callable[[Event], Hashable] = _any
    first: Callable[[Any], Awaitable[Event]] | None = None
    since: Callable[[], JoinFilter] | None = None
    check: Callable[[Any, Event], Awaitable[None]] | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    known: Callable[[Event], str] = _nothing

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self.events(self._begin)) as events:
            progress = self.context.progress
            is_told = self.first is not None and not (progress is not None and progress.resume is not None)
            async for event in events:
                if self.check is not None and not is_told:
                    await self.check(self.context, event)
                is_told = False
                yield event

    async def _begin(self) -> Event | None:
        if self.first is None:
            return None
        event = await self.first(self.context)
        self.context.advance_watermark()
        return event


@dataclass(frozen=True, eq=False)
class UnsharedSource(Generic[Event]):
    """Events for one subscriber alone, who does not hold them up: what waits for it is kept by `keeping` and `key`."""

    keeping: QueueLimits
    events: AsyncGenerator[Event, None]
    key: Callable[[Event], Hashable] = _any

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self.events
