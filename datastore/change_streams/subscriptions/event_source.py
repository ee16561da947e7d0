"""Sources of a subscription's events."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from datastore.change_streams.replay.signed_resume_ids import ResumeRequest, Seal, not_an_id
from datastore.change_streams.subscriptions.delivery import Delivery, Phase, SourceStart, unsealed
from datastore.queues import QueueLimits

Event = TypeVar("Event")


def _one_key(_: object) -> None:
    """Return the same key for all events: a newer event replaces any other."""


def _no_state(_: object) -> str:
    return ""


async def _no_first_event() -> None:
    """Read no first event: the client has it, or the source begins without one."""


def _one_subscriber() -> int:
    return 1


@dataclass(frozen=True, eq=False)
class SourceReader(Generic[Event]):
    """The reader of a source's events: a broadcast group, or a replay for members that resume."""

    #: The context of the resolvers, in which the source reads. The reader closes it.
    context: Any
    #: The event after which the client resumes; None for events from now on.
    resume: ResumeRequest | None = None
    #: Signs a position and the client's state: returns the resume id.
    seal: Seal = unsealed
    #: Reads the first event. The source awaits it once no change can be missed any more, unless the client resumes.
    read_first: Callable[[], Awaitable[Event | None]] = _no_first_event
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
class EventStream(Generic[Event]):
    """The events of a source for one reader."""

    #: The events, to be iterated once and closed. The first delivery has the phase STARTED.
    deliveries: AsyncGenerator[Delivery[Event], None]
    #: Creates the filter of a member that joins. None if a new member receives every event.
    since: Callable[[], JoinFilter] | None = None
    #: The version of each record that the events have shown. The stream updates it; empty for records without versions.
    seen: Mapping[str, int] = field(default_factory=dict)
    #: The version at which each record has left the selection. The stream updates it.
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class EventSource(Generic[Event]):
    """A source of events, which a subscription's resolver returns. The server opens it.

    If the source `is_shared`, subscribers with the same arguments share one stream. If the resolver has read the
    identity of the caller, they also have the same rights. The stream of a shared source may not read the identity;
    `first` and `check` may, in the contexts that they receive.
    """

    #: Opens a stream of the events for a reader.
    open: Callable[[SourceReader[Event]], EventStream[Event]]
    #: The limits of the queue of a subscriber that reads too slowly. None: the next event is requested once the last
    #: one was sent, which needs a source that is not shared.
    limits: QueueLimits | None
    is_shared: bool = True
    #: Returns the key of an event, for conflation: a newer event replaces a queued one with the same key.
    key: Callable[[Event], Hashable] = _one_key
    #: Reads the present state, in the context of a subscriber: the first event of each subscriber. None if there is no
    #: first event.
    first: Callable[[Any], Awaitable[Event]] | None = None
    #: Raises the error of a subscriber, by its context, that may not receive an event. None if all may.
    check: Callable[[Any, Event], Awaitable[None]] | None = None
    #: Returns the state that the resume id of a first event contains besides the position: see `Delivery.known`.
    known: Callable[[Event], str] = _no_state
    #: Parses the state in a resume id. Raises `BadUserInput`. None if the resume ids of the source have no state.
    parse_known: Callable[[str], Any] | None = None

    def check_resume(self, resume: ResumeRequest) -> None:
        """Raise `BadUserInput` for a resume id with a state that this source never issued."""
        if resume.known and self.parse_known is None:
            raise not_an_id()
        if self.parse_known is not None:
            self.parse_known(resume.known)

    def __aiter__(self) -> NoReturn:
        """Raise `TypeError`. The method exists because graphql-core expects an `AsyncIterable` from the resolver."""
        raise TypeError("An EventSource is opened with a SourceReader, and cannot be iterated.")


def source_of(events: AsyncIterable[Event], limits: QueueLimits | None = None, **options: Any) -> EventSource[Event]:
    """Return the source of one subscriber's events without resume positions. `options` are those of `EventSource`."""
    return EventSource(lambda _: EventStream(live_deliveries(events)), limits, is_shared=False, **options)


async def live_deliveries(events: AsyncIterable[Event]) -> AsyncGenerator[Delivery[Event], None]:
    """Yield the events as live ones, without positions."""
    yield Delivery(Phase.STARTED, start=SourceStart())
    yield Delivery(Phase.CAUGHT_UP)
    async with aclosing(events) if isinstance(events, AsyncGenerator) else nullcontext():
        async for event in events:
            yield Delivery(Phase.LIVE, event)
