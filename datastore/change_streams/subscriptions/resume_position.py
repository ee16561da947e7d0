"""The resume position of a subscription, from which a client can resume after a lost connection."""

import asyncio
from typing import Any, NamedTuple

from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.replay.signed_resume_ids import ResumeRequest, Seal, not_an_id


def unsealed(token: ResumeToken, known: str) -> str:
    """Return an empty resume id. It is for events that no client receives, so that no client resumes after them."""
    return ""


class ResumePosition(NamedTuple):
    """A position up to which every event was delivered."""

    #: The number of the change in this process's replay log.
    number: int
    #: The position in the stream, which is valid in every process.
    token: ResumeToken
    #: Signs the position and the client's state: returns the resume id.
    seal: Seal = unsealed

    def id(self, known: str) -> str:
        """Return the resume id of an event at this position."""
        return self.seal(self.token, known)

    def id_after(self, event_id: str) -> str:
        """Return the resume id for a client that received `event_id` last, and no later event."""
        return self.id(event_id.partition("~")[2])


class SubscriptionProgress:
    """The progress of a subscription, which its source updates and the server reads."""

    #: The event after which the client resumes; None for a new subscription.
    resume: ResumeRequest | None
    #: Signs a position and the client's state: returns the resume id.
    seal: Seal
    #: The position of the event that the source emitted last; None before the source follows its changes.
    position: ResumePosition | None
    #: The client's state after that event, such as versions. Resume ids contain it; a resuming client sends it back.
    known: str
    #: Set once the source follows its changes: no later change is missed.
    started: asyncio.Event
    #: Set once all missed events were emitted.
    is_live: asyncio.Event
    #: The number of the last change when the source went live.
    live_at: int
    #: Whether the missed changes are no longer available. The client then receives RESYNC.
    is_too_old: bool
    #: Whether a source that does not resume begins with the present state.
    sends_first_event: bool
    #: Whether the client has received RESYNC.
    is_resync_sent: bool
    #: The number of events replaced by newer ones since the last call of `take_dropped`.
    dropped: int
    #: Whether a source that reads ahead has emitted everything that it has read.
    has_emitted_all: bool

    def __init__(self, resume: ResumeRequest | None = None, seal: Seal = unsealed) -> None:
        self.resume = resume
        self.seal = seal
        self.position = None
        self.known = ""
        self.started = asyncio.Event()
        self.is_live = asyncio.Event()
        self.live_at = 0
        self.is_too_old = self.sends_first_event = self.is_resync_sent = False
        self.dropped = 0
        self.has_emitted_all = False
        self._is_known_taken = False
        # The progress of the change subscription of a source that reads ahead.
        self._ahead: SubscriptionProgress | None = None
        # The number of the latest change when the source began, just before it read the present state.
        self._read_at = -1
        self._following: ChangeSubscription[Any] | None = None

    def take_known(self) -> str:
        """Return the state in the resume id, and note that this subscription issues ids with such a state."""
        self._is_known_taken = True
        return "" if self.resume is None else self.resume.known

    def check_known(self) -> None:
        """Raise `BadUserInput` if the resume id contains a state and this subscription issues none."""
        if self.resume is not None and self.resume.known and not self._is_known_taken:
            raise not_an_id()

    @property
    def is_resumed(self) -> bool:
        """Whether the missed events were replayed, or will be."""
        return self.resume is not None and not self.is_too_old

    @property
    def is_past(self) -> bool:
        """Whether the change that is being selected precedes the present state that was read, which includes it."""
        following = self._following
        return following is not None and following.is_replaying and following.number <= self._read_at

    @property
    def id(self) -> str | None:
        """The resume id of the event that was emitted last; None before the source follows its changes."""
        return None if self.position is None else self.position.id(self.known)

    def begin(self, following: ChangeSubscription[Any], read_at: int, *, sends_first_event: bool) -> None:
        """Start to follow changes; `read_at` is the latest change delivered to any subscriber."""
        self._following, self._read_at = following, read_at
        self.is_too_old, self.sends_first_event = following.is_too_old, sends_first_event
        if self.is_resumed and self.resume is not None:
            self.known = self.resume.known
        self.advance()
        self.started.set()

    def advance(self) -> None:
        """Advance to the current change: its event is emitted now, or it has no event."""
        if self._following is not None:
            self.position = ResumePosition(self._following.number, self._following.token, self.seal)

    def add_dropped(self, dropped: int) -> None:
        """Count events that were replaced by the event just emitted."""
        self.dropped += dropped

    def take_dropped(self) -> int:
        """Return the number of dropped events since the last call, and reset it."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    def go_live(self) -> None:
        """Record that all missed events were emitted."""
        self.advance()
        self.live_at = 0 if self.position is None else self.position.number
        self.is_live.set()

    def latest(self) -> ResumePosition | None:
        """Return the position after the emitted events. It is later than `position` if later changes had no event."""
        following = self._following
        if following is None or following.is_replaying or following.waiting:
            return self.position
        return ResumePosition(following.last_number, following.last_token, self.seal)

    def mark_resync_sent(self) -> None:
        """Record that the client has received RESYNC."""
        self.is_resync_sent = True
        if self._ahead is not None:
            self._ahead.mark_resync_sent()

    @property
    def settled_position(self) -> ResumePosition | None:
        """The position of the latest change while the source awaits the next one; None while it produces an event."""
        if self.is_too_old and not self.is_resync_sent:
            return None
        if self._ahead is not None:
            return self._ahead.settled_position if self.has_emitted_all else None
        following = self._following
        is_idle = following is not None and following.is_idle
        return ResumePosition(following.last_number, following.last_token, self.seal) if following and is_idle else None

    def as_ahead(self) -> "SubscriptionProgress":
        """Return the progress for the change subscription of a source that reads ahead of the events it emits."""
        self._ahead = ReadAheadProgress(self)
        return self._ahead

    def set_position(self, position: ResumePosition | None) -> None:
        """Set the position of the event that a source which reads ahead emits now."""
        self.position = position


class ReadAheadProgress(SubscriptionProgress):
    """The progress of a change subscription that is read ahead.

    It passes its start and the dropped events on to the progress of the emitted events.
    """

    def __init__(self, behind: SubscriptionProgress) -> None:
        super().__init__(behind.resume, behind.seal)
        self._behind = behind
        self.started, self.is_live = behind.started, behind.is_live

    def begin(self, following: ChangeSubscription[Any], read_at: int, *, sends_first_event: bool) -> None:
        super().begin(following, read_at, sends_first_event=sends_first_event)
        behind = self._behind
        behind.is_too_old, behind.sends_first_event, behind.position = self.is_too_old, sends_first_event, self.position
        behind.known = self.known

    def add_dropped(self, dropped: int) -> None:
        self._behind.add_dropped(dropped)
