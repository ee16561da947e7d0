"""How far a subscription has come, so that a client can go on where it was cut off."""

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
    """Up to where all is told once an event is: the number of its change here, and its place, good elsewhere, too."""

    number: int
    place: ResumeToken
    seal: Seal = unsealed

    def id(self, known: str) -> str:
        """Return the resume position of an event."""
        return self.seal(self.place, known)

    def id_after(self, event_id: str) -> str:
        """For one who was told that event last, and nothing of what came since: what they know is the same."""
        return self.id(event_id.partition("~")[2])


class SubscriptionProgress:
    """What `follow` tells beside its events. `mark` is that of the event which it gave last.

    A source that reads ahead of what it gives has `follow` tell another, and tells this by `at`. `known` goes with the
    mark. `begun` is set once nothing can be missed any more, and `is_here` once all that was missed has been given;
    `here_at` is the number of the last change by then.
    `left_out` counts the events that others of the same key have replaced on the way, until they are told.
    `is_too_old`: it is not known any more, and `tells_first` whether how things stand is the first event then;
    `is_resync_told`: the client has been told.
    `has_given_all`: of a source that reads ahead, whether nothing that it has read is still to be given.
    """

    def __init__(self, resume: ResumeRequest | None = None, seal: Seal = unsealed) -> None:
        self.resume = resume
        self.seal = seal
        self._is_known_taken = False
        self.mark: ResumePosition | None = None
        self.known = ""
        self.begun = asyncio.Event()
        self.is_here = asyncio.Event()
        self.is_too_old = self.tells_first = self.is_resync_told = False
        self.here_at = 0
        self.left_out = 0
        self.when_begun: Callable[[], None] | None = None
        self.when_here: Callable[[], None] | None = None
        self.has_given_all = False
        self._ahead: SubscriptionProgress | None = None
        self._read_at = -1
        self._following: ChangeSubscription[Any] | None = None

    def take_known(self) -> str:
        """What the client knew by then, for a subscription that says so with its places."""
        self._is_known_taken = True
        return "" if self.resume is None else self.resume.known

    def check_known(self) -> None:
        """Raises `BadUserInput` where a client knows something that its subscription never says."""
        if self.resume is not None and self.resume.known and not self._is_known_taken:
            raise not_an_id()

    @property
    def is_resumed(self) -> bool:
        """Whether what was missed is told, or is going to be."""
        return self.resume is not None and not self.is_too_old

    @property
    def is_past(self) -> bool:
        """Whether a change that is selected just now was made before the present state was read: that has it."""
        following = self._following
        return following is not None and following.is_replaying and following.number <= self._read_at

    @property
    def id(self) -> str | None:
        return None if self.mark is None else self.mark.id(self.known)

    def begin(self, following: ChangeSubscription[Any], told_until: int, *, tells_first: bool) -> None:
        """It follows; `told_until` is the last change that was told anybody."""
        self._following, self._read_at = following, told_until
        self.is_too_old, self.tells_first = following.is_too_old, tells_first
        if self.is_resumed and self.resume is not None:
            self.known = self.resume.known
        self.take()
        self.begun.set()
        if self.when_begun is not None:
            self.when_begun()

    def take(self) -> None:
        """An event was given: or all has been looked through."""
        if self._following is not None:
            self.mark = ResumePosition(self._following.number, self._following.place, self.seal)

    def pass_over(self, left_out: int) -> None:
        """So many events were replaced by the one that was given."""
        self.left_out += left_out

    def taken_left_out(self) -> int:
        """How many were left out since this was asked: to be told now."""
        left_out, self.left_out = self.left_out, 0
        return left_out

    def here(self) -> None:
        self.take()
        self.here_at = 0 if self.mark is None else self.mark.number
        if self.when_here is not None:
            self.when_here()
        self.is_here.set()

    def latest(self) -> ResumePosition | None:
        """Up to where all is told once what was given has been told: further than `mark`, where nothing came of it."""
        following = self._following
        if following is None or following.is_replaying or following.waiting:
            return self.mark
        return ResumePosition(following.last_number, following.last_place, self.seal)

    def told_resync(self) -> None:
        self.is_resync_told = True
        if self._ahead is not None:
            self._ahead.told_resync()

    @property
    def standing(self) -> ResumePosition | None:
        """The last change that was looked at while the next event is waited for; None while one is being made."""
        if self.is_too_old and not self.is_resync_told:
            return None
        if self._ahead is not None:
            return self._ahead.standing if self.has_given_all else None
        following = self._following
        is_idle = following is not None and following.is_idle
        return ResumePosition(following.last_number, following.last_place, self.seal) if following and is_idle else None

    def as_ahead(self) -> "SubscriptionProgress":
        """For the `follow` of a source that reads ahead of what it gives."""
        self._ahead = ReadAheadProgress(self)
        return self._ahead

    def at(self, mark: ResumePosition | None) -> None:
        self.mark = mark


class ReadAheadProgress(SubscriptionProgress):
    """The progress of what is read ahead. It tells the other only how it has begun."""

    def __init__(self, behind: SubscriptionProgress) -> None:
        super().__init__(behind.resume, behind.seal)
        self._behind = behind
        self.begun, self.is_here = behind.begun, behind.is_here

    def begin(self, following: ChangeSubscription[Any], told_until: int, *, tells_first: bool) -> None:
        super().begin(following, told_until, tells_first=tells_first)
        behind = self._behind
        behind.is_too_old, behind.tells_first, behind.mark = self.is_too_old, tells_first, self.mark
        behind.known = self.known

    def pass_over(self, left_out: int) -> None:
        self._behind.pass_over(left_out)
