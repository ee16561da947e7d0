"""Deliveries: the events of a source, each with the position from which a client that has received it may resume."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.replay.signed_resume_ids import Seal

Event = TypeVar("Event")
Other = TypeVar("Other")


def unsealed(token: ResumeToken, known: str) -> str:
    """Return an empty resume id. It is for events that no client receives, so that no client resumes after them."""
    return ""


class ResumePosition(Struct, frozen=True):
    """A position up to which every event was delivered."""

    #: The number of the change in this process's replay log.
    number: int
    #: The position in the stream, which is valid in every process.
    token: ResumeToken
    #: Signs the position and the client's state: returns the resume id.
    seal: Seal = unsealed

    def id(self, known: str) -> str:
        """Return the resume id of an event at this position. `known` is the client's state after the event."""
        return self.seal(self.token, known)

    def id_after(self, event_id: str) -> str:
        """Return the resume id for a client that received `event_id` last, and no later event."""
        return self.id(event_id.partition("~")[2])


class Phase(Enum):
    """The phase of a stream of events in which a delivery occurs, in the order of the phases."""

    #: The source follows its changes: it misses no later change. The delivery has a `start` and no event.
    STARTED = auto()
    #: The present state, or a part of it.
    FIRST = auto()
    #: An event that the client missed before it resumed.
    MISSED = auto()
    #: All missed events were emitted. The delivery has no event.
    CAUGHT_UP = auto()
    #: A new event.
    LIVE = auto()


def _no_position() -> ResumePosition | None:
    return None


class SourceStart(Struct, frozen=True):
    """The start of a stream of events."""

    #: Whether the missed changes are no longer available. The client then receives RESYNC.
    is_too_old: bool = False
    #: Whether the stream begins with the present state.
    has_first: bool = False
    #: Returns the position of the latest change while the stream awaits the next one; None while it produces an event.
    settled_position: Callable[[], ResumePosition | None] = _no_position


class Delivery(Struct, Generic[Event], frozen=True):
    """An event on its way from the change feed to the subscribers, or the start of a phase without an event."""

    phase: Phase
    event: Event | None = None
    #: The position after the event; None for a source without positions.
    position: ResumePosition | None = None
    #: The client's state after the event, such as versions. Resume ids contain it; a resuming client sends it back.
    known: str = ""
    #: The number of earlier events that this event has replaced, or that were dropped before it.
    dropped: int = 0
    start: SourceStart | None = None

    def with_event(self, event: Other, known: str, dropped: int = 0) -> "Delivery[Other]":
        """Return the delivery of another event at the same position, which has replaced `dropped` further events."""
        return Delivery(self.phase, event, self.position, known, self.dropped + dropped)

    def without_event(self) -> "Delivery[Any]":
        """Return the start of the same phase for a stream of other events."""
        return Delivery(self.phase, None, self.position, self.known, start=self.start)


class ReadAhead:
    """The state of a stream that reads its changes before it emits the events of the earlier ones."""

    def __init__(self) -> None:
        #: Whether the stream has emitted everything that it has read.
        self.has_emitted_all = False

    def started(self, delivery: Delivery[Any], known: str) -> Delivery[Any]:
        """Return the STARTED delivery of the stream: its position is settled only while `has_emitted_all`."""
        start = delivery.start or SourceStart()

        def settled_position() -> ResumePosition | None:
            return start.settled_position() if self.has_emitted_all else None

        return structs.replace(delivery, start=structs.replace(start, settled_position=settled_position), known=known)
