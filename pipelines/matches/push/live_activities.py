"""Delivery of match changes to the Live Activities that show them (LACoordinator)."""

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
from datastore.primitives.lru_cache import LruCache
from datastore.primitives.tasks import cancel
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.push import apns_payload
from pipelines.matches.push.apns_payload import ApnsNotification
from pipelines.matches.push.push_queue import MatchChange, MatchPushQueue, PushBatch
from pipelines.matches.push.push_service import Push, PushOutcome, PushService, PushSummary, Sent

FINISHED = "match_finished"
NOT_IN_TIME = "NotInTime"
CONCURRENT_DEVICE_READS = 16
PAGE_SECONDS = 30.0
MAX_DELIVERED = 1000  # matches whose delivered version is kept
END_SECONDS = 120.0
READ_BACKOFF = Backoff(initial=1.0, maximum=10.0, attempts=5)

logger = logging.getLogger(__name__)


class LACoordinator:
    """The delivery of matches to their sessions.

    A session shows the side of the team that its user follows, else that of the home team. `open_store` returns a new
    store for each piece of work.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        delivery: PushService,
        now: Callable[[], datetime],
        *,
        backoff: Backoff = READ_BACKOFF,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._open_store = open_store
        self._delivery = delivery
        self._now = now
        self._backoff = backoff
        self._end_seconds = end_seconds
        self._delivered = LruCache[str, int](MAX_DELIVERED)
        self._queues: dict[str, MatchPushQueue] = {}

    async def deliver(self, change: MatchChange) -> None:
        """Enqueue a change and return. While a delivery of the match runs, only the newest change waits.

        A version that was delivered before is sent again only if an event rings; an older version is never sent.
        """
        queue = self._queues.setdefault(change.match.match_id, MatchPushQueue())
        queue.add(change)
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._run(change.match.match_id, queue))

    async def end(self, match: Match, states: Mapping[str, DisplayState] | None = None) -> PushSummary:
        """End all active sessions of a finished match with its last state.

        A session whose device could not be reached stays active, and the next call retries it. The call takes at most
        `end_seconds` and one push; unsent pushes count as failed. Instances may end a match concurrently: a device may
        then receive the end twice, but a session keeps its first end.

        Raises: DomainError when the tables cannot be read.
        """
        queue = self._queues.setdefault(match.match_id, MatchPushQueue())
        queue.pending = None  # the end replaces it
        queue.endings += 1
        try:
            with self._in_use(match.match_id, queue):
                async with queue.lock:
                    summary = await self._end(match, states or await self._states(match), queue)
        finally:
            queue.endings -= 1
        _log(match, match.version, "ends", summary)
        return summary

    async def idle(self) -> None:
        """Wait until all enqueued changes are delivered."""
        while tasks := self._running():
            await asyncio.wait(tasks)

    async def aclose(self, seconds: float = 5.0) -> None:
        """Wait for running deliveries up to `seconds`, then cancel them."""
        if tasks := self._running():
            _, late = await asyncio.wait(tasks, timeout=seconds)
            await cancel(*late)

    def _running(self) -> list[asyncio.Task[None]]:
        return [queue.task for queue in self._queues.values() if queue.task is not None and not queue.task.done()]

    # One match

    async def _run(self, match_id: str, queue: MatchPushQueue) -> None:
        with self._in_use(match_id, queue):
            delays = self._backoff.delays()
            while queue.pending is not None:
                async with queue.lock:
                    delivered = await self._deliver_pending(match_id, queue)
                if delivered:
                    delays = self._backoff.delays()
                elif (delay := next(delays, None)) is not None:
                    await asyncio.sleep(delay)
                else:
                    logger.error("Could not read the sessions of match %s; dropping a change", match_id)
                    queue.pending = None

    async def _deliver_pending(self, match_id: str, queue: MatchPushQueue) -> bool:
        """Deliver the pending change. On failure return False and put it back, unless a newer one is pending."""
        change, queue.pending = queue.pending, None
        if change is None:
            return True
        batch = PushBatch(
            change.match, self._settle_update, lambda: not queue.endings, queue.rings, queue.start_sessions
        )
        queue.rings = []
        try:
            await self._deliver(change, queue, batch)
        except DomainError as problem:
            logger.warning("Could not deliver version %d of match %s to all: %s", change.version, match_id, problem)
            if not batch.has_started:  # no phone may ring twice
                queue.rings[:0] = batch.rings
            queue.pending = queue.pending or change
            return False
        except Exception:
            logger.exception("Could not deliver version %d of match %s", change.version, match_id)
        return True

    async def _deliver(self, change: MatchChange, queue: MatchPushQueue, batch: PushBatch) -> None:
        now, match = self._now(), change.match
        delivered, newest = self._delivered.get(match.match_id), await self._newest(change, now)
        # The instance that wrote a newer version delivers it, but not the events of this one.
        is_known = newest.version > change.version or newest.version == delivered
        if (delivered is not None and newest.version < delivered) or (
            is_known and not batch.rings and not batch.start_sessions
        ):
            return
        updates = {team: apns_payload.update(state, now, batch.rings) for team, state in newest.states.items()}
        summary = await self._delivery.send_all(self._pushes(batch, updates))
        _log(match, newest.version, "updates", summary)
        self._delivered.put(match.match_id, newest.version)
        if batch.start_sessions:
            starts = {team: apns_payload.start(state, now) for team, state in newest.states.items()}
            summary = await self._delivery.send_all(self._starts(batch, starts))
            _log(match, newest.version, "starts", summary)
            queue.start_sessions = False

    async def _newest(self, change: MatchChange, now: datetime) -> MatchChange:
        """Return the change with the states that widgets show now. A read is needed only if it may be superseded."""
        if not change.may_be_superseded(now):
            return change
        stored = await DisplayStates(self._open_store(), now).cached(change.match)
        newer = {team: state for team, state in stored.items() if state.version > change.states[team].version}
        return replace(change, states={**change.states, **newer})

    async def _end(self, match: Match, states: Mapping[str, DisplayState], queue: MatchPushQueue) -> PushSummary:
        loop, now = asyncio.get_running_loop(), self._now()
        deadline = loop.time() + self._end_seconds
        batch = PushBatch(match, self._settle_end, lambda: loop.time() < deadline, list(queue.rings))
        last = {team: apns_payload.end(state, now, batch.rings) for team, state in states.items()}
        summary = await self._delivery.send_all(self._pushes(batch, last))
        del queue.rings[: len(batch.rings)]
        if batch.unsent:
            summary.outcomes[PushOutcome.FAILED] += batch.unsent
            summary.reasons[NOT_IN_TIME] += batch.unsent
        return summary

    async def _pushes(self, batch: PushBatch, notifications: Mapping[str, ApnsNotification]) -> AsyncIterator[Push]:
        """Yield a push for each session (LA-1), page by page; read the followed sides (FOL-2) with the first page."""
        store, match = self._open_store(), batch.match
        sides: Mapping[str, str] | None = None
        async for page in LiveActivities(store, self._now()).pages_of_match(match.match_id):
            if sides is None:
                sides = await self._sides(store, match)
            for number, session in enumerate(page):
                if not batch.may_continue():
                    batch.unsent = len(page) - number
                    return
                batch.has_started = True
                if batch.start_sessions:
                    batch.session_users.add(session.user_id)
                team = sides.get(session.user_id, match.home_team_id)
                yield Push(session.update_token, notifications[team], partial(batch.settle, session))
            # Each page has its own deadline, however long sending the previous one took.
            store.deadline = Deadline(PAGE_SECONDS)

    async def _sides(self, store: Store, match: Match) -> Mapping[str, str]:
        """Return the followers of the away team (FOL-2); all others see the home team's side."""
        follows = MatchFollows(store, self._now()).pages_of_match(match.match_id)
        return {follow.user_id: follow.team_id async for page in follows for follow in page if _is_away(follow, match)}

    async def _starts(self, batch: PushBatch, starts: Mapping[str, ApnsNotification]) -> AsyncIterator[Push]:
        """Yield starts for followers without a session whose device accepts them."""
        store, match = self._open_store(), batch.match
        async for page in MatchFollows(store, self._now()).pages_of_match(match.match_id):
            invited = [follow for follow in page if follow.user_id not in batch.session_users]
            for first in range(0, len(invited), CONCURRENT_DEVICE_READS):
                follows = invited[first : first + CONCURRENT_DEVICE_READS]
                devices = await asyncio.gather(*[self._device(follow.user_id) for follow in follows])
                if not batch.may_continue():
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
            logger.warning("Could not read a follower's device; no session is started there: %s", problem)
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
    def _in_use(self, match_id: str, queue: MatchPushQueue) -> Iterator[None]:
        """Count a user of the queue; remove an empty queue after its last user."""
        queue.users += 1
        try:
            yield
        finally:
            queue.users -= 1
            if not queue.users and queue.pending is None:
                self._queues.pop(match_id, None)


def _is_away(follow: MatchFollow, match: Match) -> bool:
    return follow.team_id == match.away_team_id


def _log(match: Match, version: int, kind: str, summary: PushSummary) -> None:
    if summary.total:
        logger.info("Match %s, version %d, %s: %s", match.match_id, version, kind, summary)
