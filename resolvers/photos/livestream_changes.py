"""The subscription SPARKS-S1 to livestreams: their changes, starts and ends."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.subscriptions.event_source import UnsharedSource
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record_or_error
from datastore.errors import DomainError, Internal
from datastore.keyspace.photos import livestreams as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_epoch_ms
from datastore.photos.livestreams import Livestream, Livestreams, LivestreamSchedule, is_livestream, livestream_from
from datastore.photos.lookups import Lookups
from datastore.queues import QueueLimits
from resolvers.photos.change_order import ChangeOrder
from resolvers.shared import validation as validate
from resolvers.shared.arguments import Buffer, WhenSlow
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import close_reader, follow, queue_limits

AnyLivestreamId = Annotated[
    strawberry.ID | None,
    strawberry.argument(description="The `livestreamId` of the livestream to follow; by default all livestreams."),
]
# Digits of a time in milliseconds since the epoch.
MAX_TIME_DIGITS = 13

logger = logging.getLogger(__name__)


async def livestream_changed(
    info: Info,
    id: AnyLivestreamId = None,
    when_slow: WhenSlow = keys.LIVESTREAM_CHANGED.default_policy,
    buffer: Buffer = None,
) -> UnsharedSource[Livestream]:
    livestream_id = None if id is None else validate.id("id", id)
    limits = queue_limits(when_slow, buffer)
    changes = _LivestreamChanges(info.context, livestream_id)
    return UnsharedSource(limits, changes.events(limits), lambda livestream: livestream.livestream_id)


@dataclass(frozen=True, slots=True)
class _PresentState:
    """The livestreams, read when no change can be missed any more."""

    livestreams: list[Livestream]
    #: Whether the livestreams are the first event.
    is_event: bool = False
    #: The time of the client's last event. Only livestreams that started or ended after it are events.
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class _LivestreamChange:
    """A changed livestream. `number` is the change's number in the `ChangeOrder`."""

    livestream_id: str
    #: None if the livestream was deleted or its item is damaged.
    livestream: Livestream | None
    number: int


_Event = _PresentState | _LivestreamChange


class _LivestreamChanges:
    """The changes, starts and ends of all livestreams or of a single one, for one subscription."""

    def __init__(self, context: Context, livestream_id: str | None) -> None:
        self._context = context
        self._id = livestream_id
        self._progress = context.progress or SubscriptionProgress()
        self._since = _time_of_last_event(self._progress)
        self._progress.known = _in_ms(context.services.now())
        self._ahead = self._progress.as_ahead()
        self._order = ChangeOrder(all_later=livestream_id is None)
        self._schedule = LivestreamSchedule(context.services.now)

    async def events(self, limits: QueueLimits) -> AsyncGenerator[Livestream, None]:
        """Yield the livestreams. A change that is available precedes a start or an end by the clock."""
        progress, ahead, schedule = self._progress, self._ahead, self._schedule
        changes = self._changes(limits)
        next_change = asyncio.ensure_future(anext(changes))
        try:
            while True:
                progress.has_emitted_all = True
                await asyncio.wait([next_change], timeout=schedule.sleep_seconds())
                progress.has_emitted_all = False
                if next_change.done():
                    event, position = next_change.result(), ahead.position
                    is_lost = self._order.is_lost and isinstance(event, _LivestreamChange)
                    livestreams = self._livestreams_of(await self._read_again() if is_lost else event)
                    progress.set_position(position)
                    next_change = asyncio.ensure_future(anext(changes))
                else:
                    livestreams = schedule.due()
                for livestream in livestreams:
                    if livestream is livestreams[-1] and livestream.event_time is not None:
                        progress.known = _in_ms(livestream.event_time)
                    yield livestream
        except StopAsyncIteration:
            return
        finally:
            await close_reader(next_change, changes)

    def _changes(self, limits: QueueLimits) -> AsyncGenerator[_Event, None]:
        return follow(
            self._context,
            SPARKS,
            self._select,
            limits,
            key=_livestream_id,
            prepare=self._prepare,
            first=None if self._id is None else self._read,
            progress=self._ahead,
        )

    async def _prepare(self) -> _PresentState | None:
        return await self._read() if self._id is None or self._progress.is_resumed else None

    async def _read(self) -> _PresentState:
        store, is_resumed = self._context.new_store(), self._progress.is_resumed
        livestreams = Livestreams(store, Lookups(store), self._context.services.now())
        if self._id is None:
            return _PresentState(await livestreams.at_start(), since=self._since if is_resumed else None)
        if is_resumed:
            self._order.accept_all()
            return _PresentState([(await livestreams.one_at_start(self._id))[1]], since=self._since)
        self._order.begin_read()
        item, livestream = await livestreams.one_at_start(self._id)
        self._order.end_read(item)
        return _PresentState([livestream], is_event=True)

    async def _read_again(self) -> _PresentState:
        """Return the present state. If it cannot be read, return an empty one: further changes repeat the read."""
        try:
            return await self._read()
        except DomainError as problem:
            logger.warning(
                "A livestream could not be read for its subscriber (%s); the next change repeats the read.",
                problem.code,
            )
            return _PresentState([])

    def _select(self, change: Change) -> _LivestreamChange | None:
        if not is_livestream(change.keys) or self._id not in (None, _id_of(change)):
            return None
        number = self._order.record(change)
        before, after = _readable(change.old), _readable(change.new)
        is_visible = after is None or before != after
        return _LivestreamChange(_id_of(change), after, number) if is_visible else None

    def _livestreams_of(self, event: _Event) -> list[Livestream]:
        """Return the livestreams to send for an event, and update the schedule."""
        schedule = self._schedule
        if isinstance(event, _PresentState):
            if event.since is not None:
                for livestream in event.livestreams:
                    schedule.add_published(livestream, event.since)
                return []
            present = [schedule.publish(livestream) for livestream in event.livestreams]
            return present if event.is_event else []
        if not self._order.is_later(event.number):
            return []
        if event.livestream is None:
            schedule.remove(event.livestream_id)
            return []
        return [schedule.publish(event.livestream)]


def _time_of_last_event(progress: SubscriptionProgress) -> datetime | None:
    """Return the time of the event after which the client resumes. Later starts and ends are sent as events."""
    known = progress.take_known()
    if known and not (known.isascii() and known.isdigit() and len(known) <= MAX_TIME_DIGITS):
        raise not_an_id()
    return from_epoch_ms(int(known)) if known else None


def _in_ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def _id_of(change: Change) -> str:
    return keys.livestream_parts(Key(change.keys["PK"], change.keys["SK"]))


def _readable(item: Item | None) -> Livestream | None:
    livestream = None if item is None else record_or_error(livestream_from, item)
    return None if isinstance(livestream, Internal) else livestream


def _livestream_id(event: _Event) -> str | None:
    return event.livestream_id if isinstance(event, _LivestreamChange) else None
