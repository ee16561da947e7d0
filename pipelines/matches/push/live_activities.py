"""The changes of matches, brought to the Live Activities that show them (LACoordinator)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import DomainError
from datastore.matches.cricket import Match
from datastore.matches.devices import Device, Devices
from datastore.matches.display import DisplayState
from datastore.matches.display_states import DisplayStates
from datastore.matches.live_activities import LiveActivities, LiveActivity
from datastore.matches.match_follows import MatchFollow, MatchFollows
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.push import apns_payload
from pipelines.matches.push.apns_payload import ApnsNotification
from pipelines.matches.push.push_delivery import Push, PushDelivery, PushOutcome, PushSummary, Sent
from pipelines.matches.push.push_queue import MatchChange, MatchPushQueue, PushBatch

FINISHED = "match_finished"
NOT_IN_TIME = "NotInTime"
DEVICE_READS = 16  # at a time
PAGE_SECONDS = 30.0
# What was told of so many matches is remembered.
MOST_TOLD = 1000
END_SECONDS = 120.0
READ_AGAIN = Backoff(initial=1.0, maximum=10.0, attempts=5)

logger = logging.getLogger(__name__)


class LACoordinator:
    """Delivers to the sessions of a match, each from the side its user follows, the home team's without a follow.

    `open_store` gives a fresh store for each piece of work.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        delivery: PushDelivery,
        now: Callable[[], datetime],
        *,
        backoff: Backoff = READ_AGAIN,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._open_store = open_store
        self._delivery = delivery
        self._now = now
        self._backoff = backoff
        self._end_seconds = end_seconds
        self._told: dict[str, int] = {}
        self._desks: dict[str, MatchPushQueue] = {}

    async def deliver(self, change: MatchChange) -> None:
        """Hand a change over. It answers at once; while a delivery of the match runs, only the newest change waits.

        A version that was delivered already goes out again only if something rings; an older one never.
        """
        desk = self._desks.setdefault(change.match.match_id, MatchPushQueue())
        desk.add(change)
        if desk.task is None or desk.task.done():
            desk.task = asyncio.create_task(self._work(change.match.match_id, desk))

    async def end(self, match: Match, states: Mapping[str, DisplayState] | None = None) -> PushSummary:
        """End all active sessions of a match that is over, with its last state.

        A session whose device could not be reached stays active: called again, this goes on with those. It takes no
        more than `end_seconds` and one push; those whose turn did not come count as failed. Instances may do it at
        once: a device may be told twice then, a session keeps its first end. Raises `DomainError` when the tables
        cannot be read.
        """
        desk = self._desks.setdefault(match.match_id, MatchPushQueue())
        desk.waiting = None  # the end tells all that it would have told
        desk.ends += 1
        try:
            with self._used(match.match_id, desk):
                async with desk.busy:
                    summary = await self._end(match, states or await self._states(match), desk)
        finally:
            desk.ends -= 1
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

    async def _work(self, match_id: str, desk: MatchPushQueue) -> None:
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

    async def _try(self, match_id: str, desk: MatchPushQueue) -> bool:
        """Deliver what waits. False when that failed; it waits again then, unless something newer does."""
        change, desk.waiting = desk.waiting, None
        if change is None:
            return True
        batch = PushBatch(change.match, self._settle_update, lambda: not desk.ends, desk.rings, desk.begins)
        desk.rings = []
        try:
            await self._deliver(change, desk, batch)
        except DomainError as problem:
            logger.warning("Match %s, version %d is not delivered to all: %s", match_id, change.version, problem)
            if not batch.begun:  # nobody shall hear it twice
                desk.rings[:0] = batch.rings
            desk.waiting = desk.waiting or change
            return False
        except Exception:
            logger.exception("Match %s, version %d is not delivered", match_id, change.version)
        return True

    async def _deliver(self, change: MatchChange, desk: MatchPushQueue, batch: PushBatch) -> None:
        now, match = self._now(), change.match
        told, newest = self._told.get(match.match_id, -1), await self._newest(change, now)
        # A newer version is told by whoever wrote it; this one's events are not.
        known = newest.version > change.version or newest.version == told
        if newest.version < told or (known and not batch.rings and not batch.begins):
            return
        updates = {team: apns_payload.update(state, now, batch.rings) for team, state in newest.states.items()}
        summary = await self._delivery.send_all(self._pushes(batch, updates))
        _log(match, newest.version, "updates", summary)
        self._remember(match.match_id, newest.version)
        if batch.begins:
            starts = {team: apns_payload.start(state, now) for team, state in newest.states.items()}
            summary = await self._delivery.send_all(self._invitations(batch, starts))
            _log(match, newest.version, "starts", summary)
            desk.begins = False

    async def _newest(self, change: MatchChange, now: datetime) -> MatchChange:
        """The change, or if it comes late what widgets are shown by now: only then does it cost a read."""
        if not change.is_late(now):
            return change
        kept = await DisplayStates(self._open_store(), now).cached(change.match)
        newer = {team: state for team, state in kept.items() if state.version > change.states[team].version}
        return replace(change, states={**change.states, **newer})

    def _remember(self, match_id: str, version: int) -> None:
        self._told.pop(match_id, None)
        self._told[match_id] = version
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]

    async def _end(self, match: Match, states: Mapping[str, DisplayState], desk: MatchPushQueue) -> PushSummary:
        loop, now = asyncio.get_running_loop(), self._now()
        give_up_at = loop.time() + self._end_seconds
        batch = PushBatch(match, self._settle_end, lambda: loop.time() < give_up_at, list(desk.rings))
        last = {team: apns_payload.end(state, now, batch.rings) for team, state in states.items()}
        summary = await self._delivery.send_all(self._pushes(batch, last))
        del desk.rings[: len(batch.rings)]
        if batch.left:
            summary.outcomes[PushOutcome.FAILED] += batch.left
            summary.reasons[NOT_IN_TIME] += batch.left
        return summary

    async def _pushes(self, batch: PushBatch, notifications: Mapping[str, ApnsNotification]) -> AsyncIterator[Push]:
        """LA-1, and FOL-2 if there is a session at all; one page of sessions at a time."""
        store, match = self._open_store(), batch.match
        sides: Mapping[str, str] | None = None
        async for page in LiveActivities(store, self._now()).pages_of_match(match.match_id):
            if sides is None:
                sides = await self._sides(store, match)
            for number, session in enumerate(page):
                if not batch.goes_on():
                    batch.left = len(page) - number
                    return
                batch.begun = True
                if batch.begins:
                    batch.holders.add(session.user_id)
                team = sides.get(session.user_id, match.home_team_id)
                yield Push(session.update_token, notifications[team], partial(batch.settle, session))
            # The next page has time of its own, however long sending this one took.
            store.deadline = Deadline(PAGE_SECONDS)

    async def _sides(self, store: Store, match: Match) -> Mapping[str, str]:
        """FOL-2: the followers of the away team; all others see the home team's side, and need no memory."""
        follows = MatchFollows(store, self._now()).pages_of_match(match.match_id)
        return {follow.user_id: follow.team_id async for page in follows for follow in page if _is_away(follow, match)}

    async def _invitations(self, batch: PushBatch, starts: Mapping[str, ApnsNotification]) -> AsyncIterator[Push]:
        """Starts for followers without a session whose device takes them; a few devices are read at a time."""
        store, match = self._open_store(), batch.match
        async for page in MatchFollows(store, self._now()).pages_of_match(match.match_id):
            invited = [follow for follow in page if follow.user_id not in batch.holders]
            for first in range(0, len(invited), DEVICE_READS):
                follows = invited[first : first + DEVICE_READS]
                devices = await asyncio.gather(*[self._device(follow.user_id) for follow in follows])
                if not batch.goes_on():
                    return
                for follow, device in zip(follows, devices, strict=True):
                    if device is not None and (token := device.push_to_start_token) is not None:
                        team = match.away_team_id if _is_away(follow, match) else match.home_team_id
                        yield Push(token, starts[team], partial(self._settle_start, device, token))
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

    # One device

    async def _settle_update(self, session: LiveActivity, sent: Sent) -> None:
        if sent.outcome is PushOutcome.REJECTED:
            sessions = LiveActivities(self._open_store(), self._now())
            await sessions.suspend(session.match_id, session.user_id, session.device_id, session.update_token)

    async def _settle_end(self, session: LiveActivity, sent: Sent) -> None:
        if sent.outcome is not PushOutcome.FAILED:
            sessions = LiveActivities(self._open_store(), self._now())
            await sessions.end(session.match_id, session.user_id, session.device_id, FINISHED)

    async def _settle_start(self, device: Device, token: str, sent: Sent) -> None:
        if sent.outcome is PushOutcome.REJECTED:
            devices = Devices(self._open_store(), self._now())
            await devices.remove_push_to_start_token(device.user_id, device.device_token, token)

    @contextmanager
    def _used(self, match_id: str, desk: MatchPushQueue) -> Iterator[None]:
        """A desk goes when nobody uses it any more."""
        desk.users += 1
        try:
            yield
        finally:
            desk.users -= 1
            if not desk.users and desk.waiting is None:
                self._desks.pop(match_id, None)


def _is_away(follow: MatchFollow, match: Match) -> bool:
    return follow.team_id == match.away_team_id


def _log(match: Match, version: int, what: str, summary: PushSummary) -> None:
    if summary.total:
        logger.info("Match %s, version %d, %s: %s", match.match_id, version, what, summary)
