"""Sources of a subscription's events: shared by the members of a broadcast group, or for one subscriber."""

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


def _one_key(_: object) -> None:
    """Return the same key for all events: a newer event replaces any other."""


def _no_state(_: object) -> str:
    return ""


async def _no_first_event() -> None:
    """Read no first event: the client has it, or the source begins without one."""


def _do_nothing() -> None: ...


def _one_subscriber() -> int:
    return 1


@dataclass(frozen=True, eq=False)
class SourceReader(Generic[Event]):
    """The reader of a source's events: a broadcast group, a replay, or a single subscription."""

    #: Reads the first event. The source awaits it once no change can be missed any more.
    read_first: Callable[[], Awaitable[Event | None]] = _no_first_event
    #: Called when the source follows its changes: the start has a resume position, and no later change is missed.
    on_started: Callable[[], None] = _do_nothing
    #: Called when all missed events were emitted, before the first live one.
    on_live: Callable[[], None] = _do_nothing
    #: Returns the number of subscribers that receive the events, for metrics.
    subscriber_count: Callable[[], int] = _one_subscriber


class JoinFilter(Protocol):
    """A filter for a member that joins a running group.

    It accepts the events that are newer than the first state of the member.
    """

    def begin(self, first: Any) -> None:
        """Set the first state that the member received."""

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        """Return whether a replay up to the versions `seen` has caught up with the group.

        `left` has the versions at which records left the selection.
        """

    def resume_from(self, seen: Mapping[str, int]) -> None:
        """Set the versions that a replay delivered, instead of calling `begin`."""

    def accepts(self, event: Any) -> bool:
        """Return whether the event is new to the member.

        Called in order, for each event since the filter was created.
        """

    @property
    def is_settled(self) -> bool:
        """Whether all later events are new to the member, so that the filter is no longer needed."""


@dataclass(frozen=True, eq=False)
class SharedSource(Generic[Event]):
    """A source whose events are the same for all members of a broadcast group, which share it.

    Resolvers may read the identity in the contexts passed to `first` and `check`, and before the source is created, but
    not in `events`.

    Iterating over the source yields the events for one subscriber, the owner of `context`.
    """

    #: The context of the subscriber for which the source was created.
    context: EventContext
    #: The limits of the queue of a subscriber that reads too slowly.
    limits: QueueLimits
    #: Returns a new iteration of the events, for one reader.
    events: Callable[[SourceReader[Event]], AsyncGenerator[Event, None]]
    #: Returns the key of an event, for conflation: a newer event replaces a queued one with the same key.
    key: Callable[[Event], Hashable] = _one_key
    #: Reads the present state, in the context of a subscriber: the first event of each subscriber. None if there is no
    #: first event.
    first: Callable[[Any], Awaitable[Event]] | None = None
    #: Creates the filter of a member that joins a running group. None if a new member receives every event.
    since: Callable[[], JoinFilter] | None = None
    #: Raises the error of a subscriber, by its context, that may not receive an event. None if all may.
    check: Callable[[Any, Event], Awaitable[None]] | None = None
    #: The version of each record that the events have shown. The source updates it; empty for records without versions.
    seen: Mapping[str, int] = field(default_factory=dict)
    #: The version at which each record has left the selection. The source updates it.
    left: Mapping[str, int] = field(default_factory=dict)
    #: Returns the state that the resume id of a first event contains besides the position: see
    #: `SubscriptionProgress.known`.
    known: Callable[[Event], str] = _no_state

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self.events(SourceReader(self._read_first))) as events:
            progress = self.context.progress
            is_first = self.first is not None and not (progress is not None and progress.resume is not None)
            async for event in events:
                if self.check is not None and not is_first:
                    await self.check(self.context, event)
                is_first = False
                yield event

    async def _read_first(self) -> Event | None:
        if self.first is None:
            return None
        event = await self.first(self.context)
        self.context.advance_watermark()
        return event


@dataclass(frozen=True, eq=False)
class UnsharedSource(Generic[Event]):
    """A source whose events are for one subscriber alone."""

    #: The limits of the queue while the subscriber does not read.
    limits: QueueLimits
    #: The events, to be iterated once.
    events: AsyncGenerator[Event, None]
    #: Returns the key of an event, for conflation.
    key: Callable[[Event], Hashable] = _one_key

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self.events
