"""Who is told what a group of equal subscriptions makes, from joining it to the end."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from datastore.change_streams.subscriptions.event_source import JoinFilter
from datastore.change_streams.subscriptions.resume_position import ResumePosition
from datastore.errors import DomainError
from datastore.model.identity import Identity, Role
from datastore.queues import BoundedQueue, QueueLimits
from server.operations.outcome import Outcome, failure
from server.subscriptions.subscriber import Listener, Subscriber


class Rights(NamedTuple):
    """All that an identity is to resolvers: who has the same is told the same."""

    user_id: str
    role: Role
    email: str | None


def rights_of(identity: Identity | None) -> Rights | None:
    """None for those without a token."""
    return None if identity is None else Rights(identity.user_id, identity.role, identity.email)


class _QueuedResult(NamedTuple):
    event: Any
    outcome: Outcome
    key: Hashable


class MemberGroup(Protocol):
    """The group of a member."""

    @property
    def keeping(self) -> QueueLimits: ...
    def standing(self) -> ResumePosition | None: ...
    def leave(self, member: "GroupMember") -> None: ...


class GroupMember:
    """One who is told what the group makes (a `Following`).

    Until they have been told how things stand, events wait for them; after that those are passed over that it showed.
    """

    __slots__ = (
        "_after",
        "_group",
        "_is_away",
        "_waiting",
        "is_over",
        "is_plain",
        "listener",
        "mark",
        "report",
        "rights",
        "since",
        "subscriber",
        "wants_resync",
    )

    def __init__(self, group: MemberGroup, subscriber: Subscriber, listener: Listener) -> None:
        self.subscriber = subscriber
        self.report = subscriber.report
        self.listener = listener
        self.rights = rights_of(subscriber.request.caller.identity)
        self.is_over = False
        self.is_plain = True  # told all as it comes; asked for each event of each member, so it is no property
        self.since: JoinFilter | None = None
        self.mark: ResumePosition | None = None  # where the group was when it came
        self.wants_resync = False  # what it has missed is not known any more
        self._after = 0  # the number of the last change that it was told of otherwise
        self._group = group
        self._is_away = False
        self._waiting: BoundedQueue[_QueuedResult] | None = None

    @property
    def keeping(self) -> QueueLimits:
        return self._group.keeping

    @property
    def is_waiting(self) -> bool:
        """Whether events wait for it, or are to."""
        return self._waiting is not None or self._is_away

    def stay_away(self) -> None:
        """It is told otherwise what the group is told, until `wait`."""
        self.is_plain, self._is_away = False, True

    def wait(self) -> None:
        """From now on events wait for it; none that waited is told."""
        self.is_plain = self._is_away = False
        self._forget_waiting()
        self._waiting = BoundedQueue(self.keeping.upstream, self.listener.room)

    def _forget_waiting(self) -> None:
        """It takes no room any more."""
        if self._waiting is not None:
            self._waiting.clear()
            self._waiting = None

    def begin(self, event: Any, first: Outcome, key: Hashable) -> None:
        """Told how things stand, and what has come since."""
        if self.since is not None:
            self.since.begin(event)
        self.go_on_with(first.as_resync() if self.wants_resync else first, key)

    def catch_up(self, outcome: Outcome, key: Hashable) -> None:
        """Told what it has missed, while events wait for it."""
        self._tell(outcome, key)

    def go_on(self, after: int, seen: Mapping[str, int]) -> None:
        """It has been told all up to this change, and these versions: from now on it is told what all are."""
        if self.since is not None:
            self.since.go_on(seen)
        self._after = after
        self.go_on_with(None, None)

    def go_on_with(self, outcome: Outcome | None, key: Hashable) -> None:
        """Told this, if it is anything, and what has waited for it."""
        waiting, self._waiting, self._is_away = self._waiting, None, False
        if outcome is not None:
            self._tell(outcome, key)
        while waiting:
            (event, told, key), left_out = waiting.take()
            if not self.is_over:
                self.offer(event, told.with_dropped(left_out), key)
        self._look_whether_plain()

    def offer(self, event: Any, outcome: Outcome, key: Hashable) -> None:
        """An event of the group's."""
        if self._is_away:
            return
        if self._waiting is not None:
            try:
                one = _QueuedResult(event, outcome, key)
                self._waiting.add(one, key, size=len(outcome.body), dropped=outcome.dropped)
            except Exception as problem:
                self.stop(problem)
        elif (self.since is None or self.since.is_news(event)) and not 0 < outcome.number <= self._after:
            self._tell(outcome, key)
        if self._waiting is None and outcome.number > self._after > 0:
            self._after = 0
            self._look_whether_plain()
        if self._waiting is None and self.since is not None and self.since.is_settled:
            self.since = None
            self._look_whether_plain()

    def _look_whether_plain(self) -> None:
        is_told_all = self.since is None and self._after == 0
        self.is_plain = is_told_all and self._waiting is None and not self.is_over

    def tell(self, outcome: Outcome, size: int, key: Hashable) -> None:
        """An event without errors, to one who `is_plain`: most of what a delivery costs, so it calls little."""
        report = self.report
        report.events += 1
        report.sent_bytes += size
        try:
            self.listener.deliver(outcome, key)
        except Exception as problem:  # a fault of its own is no fault of the others
            self.stop(problem)

    def _tell(self, outcome: Outcome, key: Hashable) -> None:
        self.subscriber.note(outcome)
        try:
            self.listener.deliver(outcome, key)
        except Exception as problem:  # a fault of its own is no fault of the others
            self.stop(problem)

    def standing(self) -> ResumePosition | None:
        """Where the group is; None where this one has been further, with another process."""
        mark = None if self.is_over or self.is_waiting else self._group.standing()
        return None if mark is None or mark.number < self._after else mark

    def withdraw(self, outcome: Outcome) -> None:
        self.report.events -= 1
        self.report.sent_bytes -= len(outcome.body)

    def stop(self, problem: Exception | None = None) -> None:
        if self.is_over:
            return
        if problem is None:
            self._leave()
        else:
            self.end(failure(problem))

    def refuse(self, error: DomainError) -> None:
        """It may not go on."""
        if not self.is_over:
            self._finish(self.subscriber.refused(error))

    def end(self, outcome: Outcome | None) -> None:
        """It is over: by itself, or by this error."""
        if not self.is_over:
            if outcome is not None:
                self.subscriber.note(outcome)
            self._finish(outcome)

    def _finish(self, outcome: Outcome | None) -> None:
        self.is_over, self.is_plain = True, False
        self._forget_waiting()
        self.subscriber.leave()
        try:
            self.listener.finish(outcome)  # what it withdraws now has not been told of
        finally:
            self._group.leave(self)

    def _leave(self) -> None:
        self.is_over, self.is_plain = True, False
        self._forget_waiting()
        self.subscriber.leave()
        self._group.leave(self)


def by_rights(members: Iterable[GroupMember]) -> dict[Rights | None, list[GroupMember]]:
    """Those who are told the same, in the order in which they joined."""
    classes: dict[Rights | None, list[GroupMember]] = {}
    for member in members:
        classes.setdefault(member.rights, []).append(member)
    return classes
