"""The resume position of a subscription, from which a client can resume after a lost connection."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.replay.signed_resume_ids import ResumeRequest, Seal, not_an_id


def unsealed(place: ResumeToken, known: str) -> str:
    """Return the empty resume id, for events that no client receives and therefore none resumes after."""
    return ""


class ResumePosition(NamedTuple):
    """A position up to which every event was delivered: the local number of its change, and its portable token."""

    number: int
    place: ResumeToken
    seal: Seal = unsealed

    def id(self, known: str) -> str:
        """Return the resume id of an event at this position."""
        return self.seal(self.place, known)

    def id_after(self, event_id: str) -> str:
        """Return the resume id for a client that received `event_id` last, and no later event."""
        return self.id(event_id.partition("~")[2])


class SubscriptionProgress:
    """The progress of a subscription, which its source updates and the server reads."""

    def __init__(self, resume: ResumeRequest | None = None, seal: Seal = unsealed) -> None:
        self.resume = resume
        self.seal = seal
        self._is_known_taken = False
        self.mark: ResumePosition | None = None
        self.known = ""
        self.begun = asyncio.Event()
        self.is_live = asyncio.Event()
        self.is_too_old = self.sends_first_event = self.is_resync_sent = False
        self.live_at = 0
        self.dropped = 0
        self.on_started: Callable[[], None] | None = None
        self.on_live: Callable[[], None] | None = None
        self.has_given_all = False
        self._ahead: SubscriptionProgress | None = None
        self._read_at = -1
        self._following: ChangeSubscription[Any] | None = None

    def take_known(self) -> str:
        """Return the state that the resuming client had, and accept its presence in the resume id."""
        self._is_known_taken = True
        return "" if self.resume is None else self.resume.known

    def check_known(self) -> None:
        """Raise `BadUserInput` if the resume id contains state that this subscription never issues."""
        if self.resume is not None and self.resume.known and not self._is_known_taken:
            raise not_an_id()

    @property
    def is_resumed(self) -> bool:
        """Whether missed events are replayed, or will be."""
        return self.resume is not None and not self.is_too_old

    @property
    def is_past(self) -> bool:
        """Whether the current change precedes the present state that was read, which includes it."""
        following = self._following
        return following is not None and following.is_replaying and following.number <= self._read_at

    @property
    def id(self) -> str | None:
        return None if self.mark is None else self.mark.id(self.known)

    def begin(self, following: ChangeSubscription[Any], read_at: int, *, sends_first_event: bool) -> None:
        """Start to follow changes; `read_at` is the latest change delivered to any subscriber."""
        self._following, self._read_at = following, read_at
        self.is_too_old, self.sends_first_event = following.is_too_old, sends_first_event
        if self.is_resumed and self.resume is not None:
            self.known = self.resume.known
        self.take()
        self.begun.set()
        if self.on_started is not None:
            self.on_started()

    def take(self) -> None:
        """Advance to the current change: its event was emitted, or no event comes of it."""
        if self._following is not None:
            self.mark = ResumePosition(self._following.number, self._following.place, self.seal)

    def add_dropped(self, dropped: int) -> None:
        """Count events that were replaced by the event just emitted."""
        self.dropped += dropped

    def take_dropped(self) -> int:
        """Return the number of dropped events since the last call, and reset it."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    def here(self) -> None:
        self.take()
        self.live_at = 0 if self.mark is None else self.mark.number
        if self.on_live is not None:
            self.on_live()
        self.is_live.set()

    def latest(self) -> ResumePosition | None:
        """Return the position up to which everything emitted is delivered.

        It passes `mark` when changes caused no event.
        """
        following = self._following
        if following is None or following.is_replaying or following.waiting:
            return self.mark
        return ResumePosition(following.last_number, following.last_place, self.seal)

    def mark_resync_sent(self) -> None:
        self.is_resync_sent = True
        if self._ahead is not None:
            self._ahead.mark_resync_sent()

    @property
    def settled_position(self) -> ResumePosition | None:
        """The latest change examined while the next event is awaited; None while an event is being produced."""
        if self.is_too_old and not self.is_resync_sent:
            return None
        if self._ahead is not None:
            return self._ahead.settled_position if self.has_given_all else None
        following = self._following
        is_idle = following is not None and following.is_idle
        return ResumePosition(following.last_number, following.last_place, self.seal) if following and is_idle else None

    def as_ahead(self) -> "SubscriptionProgress":
        """Return the progress of the change subscription of a source that reads ahead of the events it emits."""
        self._ahead = ReadAheadProgress(self)
        return self._ahead

    def at(self, mark: ResumePosition | None) -> None:
        self.mark = mark


class ReadAheadProgress(SubscriptionProgress):
    """The progress of a change subscription that is read ahead. It forwards only its start to the other progress."""

    def __init__(self, behind: SubscriptionProgress) -> None:
        super().__init__(behind.resume, behind.seal)
        self._behind = behind
        self.begun, self.is_live = behind.begun, behind.is_live

    def begin(self, following: ChangeSubscription[Any], read_at: int, *, sends_first_event: bool) -> None:
        super().begin(following, read_at, sends_first_event=sends_first_event)
        behind = self._behind
        behind.is_too_old, behind.sends_first_event, behind.mark = self.is_too_old, sends_first_event, self.mark
        behind.known = self.known

    def add_dropped(self, dropped: int) -> None:
        self._behind.add_dropped(dropped)
