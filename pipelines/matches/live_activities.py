"""The changes of matches, brought to the Live Activities that show them (LACoordinator)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from datastore.backoff import Backoff
from datastore.errors import DomainError
from datastore.matches.cricket import CricketEvent, EventKind, Match
from datastore.matches.devices import Device, Devices
from datastore.matches.display import DisplayState
from datastore.matches.display_states import DisplayStates
from datastore.matches.live_activities import LiveActivities, LiveActivity
from datastore.matches.match_follows import MatchFollow, MatchFollows
from datastore.metering import Deadline
from datastore.store import Store
from pipelines.matches import apns_payload
from pipelines.matches.alerts import AlertFilter, all_alerts
from pipelines.matches.apns_payload import ALERTED, Notification
from pipelines.matches.deliveries import Delivery, Outcome, Push, Sent, Summary

FINISHED = "match_finished"
MOST_ALERTS = 20  # that wait
DEVICE_READS = 16  # at a time
PAGE_SECONDS = 30.0
READ_AGAIN = Backoff(first=1.0, most=10.0, tries=5)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MatchChange:
    """A version of a match as phones are told of it: both teams' display states, and the events it brought."""

    match: Match
    states: Mapping[str, DisplayState]
    events: Sequence[CricketEvent] = ()

    @property
    def version(self) -> int:
        return max((state.version for state in self.states.values()), default=0)


@dataclass(slots=True)
class _Desk:
    """What is to be delivered of one match. One at a time: a phone must not see an older state after a newer one.

    `events` wait to be let ring, `rings` were let and wait to be sent; `begins` tells that the match has begun and
    followers without a session are still to be asked in.
    """

    waiting: MatchChange | None = None
    events: list[CricketEvent] = field(default_factory=list)
    rings: list[CricketEvent] = field(default_factory=list)
    begins: bool = False
    task: asyncio.Task[None] | None = None
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0

    def add(self, change: MatchChange) -> None:
        """Only the newest change waits; of those before it, the events that ring."""
        if self.waiting is None or change.version >= self.waiting.version:
            self.waiting = change
        self.events += [event for event in change.events if event.kind in ALERTED]
        del self.events[:-MOST_ALERTS]
        self.begins |= any(event.kind is EventKind.INNINGS_START and event.innings == 1 for event in change.events)


class LACoordinator:
    """Delivers to the sessions of a match, each from the side its user follows, the home team's without a follow.

    `open_store` gives a fresh store for each piece of work.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        delivery: Delivery,
        now: Callable[[], datetime],
        *,
        alerts: AlertFilter = all_alerts,
        backoff: Backoff = READ_AGAIN,
    ) -> None:
        self._open_store = open_store
        self._delivery = delivery
        self._now = now
        self._alerts = alerts
        self._backoff = backoff
        self._desks: dict[str, _Desk] = {}

    async def deliver(self, change: MatchChange) -> None:
        """Hand a change over. It answers at once; while a delivery of the match runs, only the newest change waits."""
        desk = self._desks.setdefault(change.match.match_id, _Desk())
        desk.add(change)
        if desk.task is None or desk.task.done():
            desk.task = asyncio.create_task(self._work(change.match.match_id, desk))

    async def end(self, match: Match, states: Mapping[str, DisplayState] | None = None) -> Summary:
        """End all active sessions of a match that is over, with its last state.

        A session whose device could not be reached stays active: called again, this goes on with those. Raises
        `DomainError` when the tables cannot be read.
        """
        desk = self._desks.setdefault(match.match_id, _Desk())
        desk.waiting = None  # the end tells all that it would have told
        with self._used(match.match_id, desk):
            async with desk.busy:
                states = states or await self._states(match)
                await self._let_ring(match.match_id, desk)
                now = self._now()
                last = {team: apns_payload.end(state, now, desk.rings) for team, state in states.items()}
                summary = await self._delivery.send_all(self._pushes(_Batch(match, self._settle_end), last))
                desk.rings.clear()
        _log(match, match.version, "ends", summary)
        return summary

    async def idle(self) -> None:
        """Wait until everything that was handed over is delivered."""
        while tasks := self._running():
            await asyncio.wait(tasks)

    async def aclose(self, seconds: float = 5.0) -> None:
        """Let deliveries end for so long, then stop them."""
        if tasks := self._running():
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _running(self) -> list[asyncio.Task[None]]:
        return [desk.task for desk in self._desks.values() if desk.task is not None and not desk.task.done()]

    # One match

    async def _work(self, match_id: str, desk: _Desk) -> None:
        with self._used(match_id, desk):
            delays = self._backoff.delays()
            while desk.waiting is not None:
                async with desk.busy:
                    delivered = await self._try(match_id, desk)
                if delivered:
                    delays = self._backoff.delays()
                elif (delay := next(delays, None)) is not None:
                    await asyncio.sleep(delay)
                else:
                    logger.error("The sessions of match %s cannot be read: a change is given up", match_id)
                    desk.waiting = None

    async def _try(self, match_id: str, desk: _Desk) -> bool:
        """Deliver what waits. False when that failed; it waits again then, unless something newer does."""
        change, desk.waiting = desk.waiting, None
        if change is None:
            return True
        batch = _Batch(change.match, self._settle_update)
        try:
            await self._let_ring(match_id, desk)
            await self._deliver(change, desk, batch)
        except DomainError as problem:
            logger.warning("Match %s, version %d is not delivered to all: %s", match_id, change.version, problem)
            if batch.begun:
                desk.rings.clear()  # nobody shall hear it twice
            desk.waiting = desk.waiting or change
            return False
        except Exception:
            logger.exception("Match %s, version %d is not delivered", match_id, change.version)
        desk.rings.clear()
        return True

    async def _let_ring(self, match_id: str, desk: _Desk) -> None:
        events, desk.events = desk.events, []
        if not events:
            return
        try:
            desk.rings += await self._alerts(match_id, events)
        except Exception:  # once too often rather than never
            logger.exception("Whether events of match %s may ring cannot be told", match_id)
            desk.rings += events

    async def _deliver(self, change: MatchChange, desk: _Desk, batch: "_Batch") -> None:
        now, match = self._now(), change.match
        updates = {team: apns_payload.update(state, now, desk.rings) for team, state in change.states.items()}
        summary = await self._delivery.send_all(self._pushes(batch, updates))
        _log(match, change.version, "updates", summary)
        if desk.begins:
            starts = {team: apns_payload.start(state, now) for team, state in change.states.items()}
            summary = await self._delivery.send_all(self._invitations(batch, starts))
            _log(match, change.version, "starts", summary)
            desk.begins = False

    async def _pushes(self, batch: "_Batch", notifications: Mapping[str, Notification]) -> AsyncIterator[Push]:
        """LA-1, and FOL-2 if there is a session at all; one page of sessions at a time."""
        store, match = self._open_store(), batch.match
        sides: Mapping[str, str] | None = None
        async for page in LiveActivities(store, self._now()).pages_of_match(match.match_id):
            if sides is None:
                sides = await self._sides(store, match)
            for session in page:
                batch.begun = True
                batch.holders.add(session.user_id)
                team = sides.get(session.user_id, match.home_team_id)
                yield Push(session.update_token, notifications[team], partial(batch.settle, session))
            # The next page has time of its own, however long sending this one took.
            store.deadline = Deadline(PAGE_SECONDS)

    async def _sides(self, store: Store, match: Match) -> Mapping[str, str]:
        """FOL-2: the followers of the away team; all others see the home team's side, and need no memory."""
        follows = MatchFollows(store, self._now()).pages_of_match(match.match_id)
        return {follow.user_id: follow.team_id async for page in follows for follow in page if _is_away(follow, match)}

    async def _invitations(self, batch: "_Batch", starts: Mapping[str, Notification]) -> AsyncIterator[Push]:
        """Starts for followers without a session whose device takes them; a few devices are read at a time."""
        store, match = self._open_store(), batch.match
        async for page in MatchFollows(store, self._now()).pages_of_match(match.match_id):
            invited = [follow for follow in page if follow.user_id not in batch.holders]
            for first in range(0, len(invited), DEVICE_READS):
                follows = invited[first : first + DEVICE_READS]
                devices = await asyncio.gather(*[self._device(follow.user_id) for follow in follows])
                for follow, device in zip(follows, devices, strict=True):
                    if device is not None and device.push_to_start_token is not None:
                        team = match.away_team_id if _is_away(follow, match) else match.home_team_id
                        yield Push(device.push_to_start_token, starts[team])
            store.deadline = Deadline(PAGE_SECONDS)

    async def _device(self, user_id: str) -> Device | None:
        try:
            return await Devices(self._open_store(), self._now()).of_user(user_id)
        except DomainError as problem:
            logger.warning("A follower's device cannot be read: %s", problem)
            return None

    async def _states(self, match: Match) -> Mapping[str, DisplayState]:
        states = DisplayStates(self._open_store(), self._now())
        home, away = await asyncio.gather(
            states.of_match(match, match.home_team_id), states.of_match(match, match.away_team_id)
        )
        return {match.home_team_id: home, match.away_team_id: away}

    # One session

    async def _settle_update(self, session: LiveActivity, sent: Sent) -> None:
        if sent.outcome is Outcome.REJECTED:
            sessions = LiveActivities(self._open_store(), self._now())
            await sessions.suspend(session.match_id, session.user_id, session.device_id, session.update_token)

    async def _settle_end(self, session: LiveActivity, sent: Sent) -> None:
        if sent.outcome is not Outcome.FAILED:
            sessions = LiveActivities(self._open_store(), self._now())
            await sessions.end(session.match_id, session.user_id, session.device_id, FINISHED)

    @contextmanager
    def _used(self, match_id: str, desk: _Desk) -> Iterator[None]:
        """A desk goes when nobody uses it any more."""
        desk.users += 1
        try:
            yield
        finally:
            desk.users -= 1
            if not desk.users and desk.waiting is None:
                self._desks.pop(match_id, None)


@dataclass(slots=True)
class _Batch:
    """One reading of the sessions: whose they are, and what becomes of each once its push has ended."""

    match: Match
    settle: Callable[[LiveActivity, Sent], Awaitable[None]]
    holders: set[str] = field(default_factory=set)
    begun: bool = False


def _is_away(follow: MatchFollow, match: Match) -> bool:
    return follow.team_id == match.away_team_id


def _log(match: Match, version: int, what: str, summary: Summary) -> None:
    if summary.total:
        logger.info("Match %s, version %d, %s: %s", match.match_id, version, what, summary)
