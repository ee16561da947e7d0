"""The subscription SPARKS-S1 to livestreams: their changes, starts and ends."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.subscriptions.delivery import Delivery, Phase, ReadAhead
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record_or_error
from datastore.errors import DomainError, Internal
from datastore.keyspace.photos import livestreams as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_epoch_ms
from datastore.photos.livestreams import Livestream, Livestreams, LivestreamSchedule, is_livestream
from datastore.photos.lookups import Lookups
from datastore.queues import QueueLimits
from resolvers.photos.livestreams import LIVESTREAM
from resolvers.shared import validation as validate
from resolvers.shared.arguments import DEFAULT_BUFFER, Buffer, WhenSlow, argument
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import close_reader, follow, queue_limits

AnyLivestreamId = Annotated[
    strawberry.ID | None,
    argument("The `livestreamId` or `id` of the livestream to follow; by default all livestreams."),
]
# Digits of a time in milliseconds since the epoch.
MAX_TIME_DIGITS = 13

logger = logging.getLogger(__name__)
# The number of changes during a read whose old images are kept.
MAX_CHANGES_DURING_READ = 100
# Of this many changes after a read, one should have had the item that was read as its old image.
MAX_UNMATCHED_CHANGES = 3


async def livestream_changed(
    info: Info,
    id: AnyLivestreamId = None,
    when_slow: WhenSlow = keys.LIVESTREAM_CHANGED.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[Livestream]:
    livestream_id = None if id is None else validate.id("id", id, of=LIVESTREAM)
    limits = queue_limits(when_slow, buffer)

    def open_stream(reader: SourceReader[Livestream]) -> EventStream[Livestream]:
        return EventStream(_LivestreamChanges(reader, livestream_id).events(limits))

    return EventSource(
        open_stream,
        limits,
        is_shared=False,
        key=lambda livestream: livestream.livestream_id,
        parse_known=_time_of_last_event,
    )


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

    def __init__(self, reader: SourceReader[Livestream], livestream_id: str | None) -> None:
        self._reader = reader
        self._context: Context = reader.context
        self._id = livestream_id
        self._since = None if reader.resume is None else _time_of_last_event(reader.resume.known)
        self._is_resumed = False
        self._order = ChangeOrder(all_later=livestream_id is None)
        self._schedule = LivestreamSchedule(self._context.services.now)

    async def events(self, limits: QueueLimits) -> AsyncGenerator[Delivery[Livestream], None]:
        """Yield the livestreams. A change that is available precedes a start or an end by the clock."""
        schedule, ahead, position = self._schedule, ReadAhead(), None
        phase, known, dropped = Phase.LIVE, _in_ms(self._context.services.now()), 0
        changes = self._changes(limits)
        next_change = asyncio.ensure_future(anext(changes))
        try:
            while True:
                ahead.has_emitted_all = True
                await asyncio.wait([next_change], timeout=schedule.sleep_seconds())
                ahead.has_emitted_all = False
                livestreams: list[Livestream] = []
                if next_change.done():
                    delivery = next_change.result()
                    position = delivery.position
                    if delivery.start is not None:
                        self._is_resumed = self._reader.resume is not None and not delivery.start.is_too_old
                        known = delivery.known if self._is_resumed else known
                        yield ahead.started(delivery, known)
                    elif delivery.event is None:
                        phase = Phase.LIVE
                        yield Delivery(delivery.phase, None, position, known)
                    else:
                        phase, dropped = delivery.phase, dropped + delivery.dropped
                        livestreams = await self._livestreams_after(delivery.event)
                    next_change = asyncio.ensure_future(anext(changes))
                else:
                    livestreams = schedule.due()
                for livestream in livestreams:
                    if livestream is livestreams[-1] and livestream.event_time is not None:
                        known = _in_ms(livestream.event_time)
                    yield Delivery(phase, livestream, position, known, dropped)
                    dropped = 0
        except StopAsyncIteration:
            return
        finally:
            await close_reader(next_change, changes)

    def _changes(self, limits: QueueLimits) -> AsyncGenerator[Delivery[_Event], None]:
        return follow(
            self._reader,
            SPARKS,
            self._select,
            limits,
            key=_livestream_id,
            prepare=self._prepare,
            first=None if self._id is None else self._read,
        )

    async def _livestreams_after(self, event: _Event) -> list[Livestream]:
        """Return the livestreams to send for an event. Read them again if changes of their order were lost."""
        is_lost = self._order.is_lost and isinstance(event, _LivestreamChange)
        return self._livestreams_of(await self._read_again() if is_lost else event)

    async def _prepare(self) -> _PresentState | None:
        return await self._read() if self._id is None or self._is_resumed else None

    async def _read(self) -> _PresentState:
        store, is_resumed = self._context.new_store(), self._is_resumed
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


def _time_of_last_event(known: str) -> datetime | None:
    """Return the time of the event after which the client resumes. Later starts and ends are sent as events.

    Raises: `BadUserInput`.
    """
    if known and not (known.isascii() and known.isdigit() and len(known) <= MAX_TIME_DIGITS):
        raise not_an_id()
    return from_epoch_ms(int(known)) if known else None


def _in_ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def _id_of(change: Change) -> str:
    return second_part(change.keys["PK"])


def _readable(item: Item | None) -> Livestream | None:
    livestream = None if item is None else record_or_error(Livestream.decoder, item)
    return None if isinstance(livestream, Internal) else livestream


def _livestream_id(event: _Event) -> str | None:
    return event.livestream_id if isinstance(event, _LivestreamChange) else None


class ChangeOrder:
    """The order of the changes of an item relative to a read: which changes are later than the read.

    The old image of the first later change is the item that was read. Changes are recorded when they are published,
    because a newer change may replace them in the queue of a slow subscriber. If the first later change does not arrive
    (`is_lost`, which is known after some further changes), the item must be read again.

    With `all_later` every change is later.
    """

    def __init__(self, *, all_later: bool) -> None:
        # The number of the first later change, if it is known.
        self._first_later = 1 if all_later else None
        self._recorded = self._recorded_before_read = 0
        self._item: Item | None = None
        # The old images of the changes that are published during the read.
        self._old_images: deque[Item | None] = deque(maxlen=MAX_CHANGES_DURING_READ)

    def record(self, change: Change) -> int:
        """Record a change when it is published, and return its number."""
        self._recorded += 1
        if self._first_later is None and self._item is None:
            self._old_images.append(change.old)
        elif self._first_later is None and change.old == self._item:
            self._first_later = self._recorded
        return self._recorded

    def accept_all(self) -> None:
        """Let every change be later: the client has the state before all of them."""
        self._first_later = 0

    def begin_read(self) -> None:
        """Prepare for a read of the item, which may repeat an earlier one."""
        self._item, self._recorded_before_read = None, self._recorded
        self._old_images.clear()

    def end_read(self, item: Item) -> None:
        """Record the result of the read. Recorded changes with other old images are earlier."""
        self._item, self._recorded_before_read = item, self._recorded
        if item in self._old_images:
            self._first_later = self._recorded - len(self._old_images) + self._old_images.index(item) + 1
        self._old_images.clear()

    def is_later(self, number: int) -> bool:
        """Return whether the change with this number is later than the read."""
        return self._first_later is not None and number >= self._first_later

    @property
    def is_lost(self) -> bool:
        """Whether the first later change was missed."""
        return self._first_later is None and self._recorded - self._recorded_before_read >= MAX_UNMATCHED_CHANGES
