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
    """Return the key of all events, where a newer event replaces any other."""


def _nothing(_: object) -> str:
    return ""


class JoinFilter(Protocol):
    """A filter for a member that joins a running group.

    It passes the events newer than the first state the member received.
    """

    def begin(self, first: Any) -> None:
        """Set the first state that the member received."""

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        """Return whether a replay up to the versions `seen` has caught up with the group.

        `left` are the versions at which records left the selection.
        """

    def resume_from(self, seen: Mapping[str, int]) -> None:
        """Set the versions that a replay delivered, instead of calling `begin`."""

    def accepts(self, event: Any) -> bool:
        """Return whether the member has to receive `event`.

        Called in order, for each event since the filter was created.
        """

    @property
    def is_settled(self) -> bool:
        """Whether all later events are news, so that the filter is no longer needed."""


@dataclass(frozen=True, eq=False)
class SharedSource(Generic[Event]):
    """Events that are the same for all members of a broadcast group, which share this source.

    An argument of `events` is awaited once no change can be missed any more; it reads the first event. Resolvers may
    read the identity in the contexts passed to `first` and `check`, and before the source is created, but not in
    `events`.

    Iterating over the source yields the events for one subscriber, the owner of `context`.
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
            is_first = self.first is not None and not (progress is not None and progress.resume is not None)
            async for event in events:
                if self.check is not None and not is_first:
                    await self.check(self.context, event)
                is_first = False
                yield event

    async def _begin(self) -> Event | None:
        if self.first is None:
            return None
        event = await self.first(self.context)
        self.context.advance_watermark()
        return event


@dataclass(frozen=True, eq=False)
class UnsharedSource(Generic[Event]):
    """Events for one subscriber alone. They are queued by `keeping` and `key` while the subscriber does not read."""

    keeping: QueueLimits
    events: AsyncGenerator[Event, None]
    key: Callable[[Event], Hashable] = _any

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self.events
