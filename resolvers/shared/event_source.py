"""Sources of subscription events: the change feed of a table, filtered and converted to events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from graphql import OperationType
from msgspec import structs

from datastore.change_streams.change import Change
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.subscriptions.delivery import Delivery, Phase, ResumePosition, SourceStart
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.items.stored_item import StoredItem
from datastore.model.access_patterns import AccessPattern, Table
from datastore.queues import MAX_EVENTS, OverflowPolicy, QueueLimits
from resolvers.shared import validation as validate
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info

Event = TypeVar("Event")
Owned = TypeVar("Owned", bound=StoredItem)
# Returns the time at which a record expires; None if it never does.
Expiry = Callable[[StoredItem], datetime | None]


def _one_key(_: object) -> None:
    """Return the same key for all events: a newer event replaces any other."""


def queue_limits(when_slow: OverflowPolicy, buffer: int) -> QueueLimits:
    """Return the limits of a subscriber's queue from the arguments `whenSlow` and `buffer`. Raises `BadUserInput`."""
    return QueueLimits.of(when_slow, validate.number("buffer", buffer, minimum=1, maximum=MAX_EVENTS))


def is_event(info: Info) -> bool:
    """Return whether the field belongs to an event. An eventually consistent read may miss the change of the event."""
    return info.operation.operation is OperationType.SUBSCRIPTION


class SecondTable(NamedTuple, Generic[Event]):
    """A second table whose changes are also events of a subscription."""

    table: Table
    select: Callable[[Change], Event | None]


def follow(
    reader: SourceReader[Any],
    table: Table,
    select: Callable[[Change], Event | None],
    limits: QueueLimits,
    *,
    key: Callable[[Event], Hashable] = _one_key,
    prepare: Callable[[], Awaitable[Event | None]] | None = None,
    first: Callable[[], Awaitable[Event | None]] | None = None,
    select_past: Callable[[Change], Event | None] | None = None,
    second_table: SecondTable[Event] | None = None,
    on_resume: Callable[[], Awaitable[Event | None]] | None = None,
) -> AsyncGenerator[Delivery[Event], None]:
    """Yield the events that `select` returns for the table's changes, from now on or from the client's resume position.

    A change that `select` cannot read is logged and skipped.

    - `limits` are the limits of the queue. With LATEST a newer event replaces the queued event with an equal `key`;
      without a `key` it replaces any queued event.
    - `prepare` is awaited once no change can be missed, then `first`, unless the client resumes from a known position.
      The first events are their results, if they are not None.
    - `select_past` replaces `select` for the missed changes that precede the state that `prepare` reads.
    - `on_resume` is awaited after the replay for a client that resumes. Its result is the next event.
    - `second_table` adds events of another table's changes. They have no resume position.
    """
    following = _Following(reader, prepare, first, on_resume)
    selected = select if select_past is None else following.by_time(select, select_past)
    return following.deliveries(_open_changes(reader, table, selected, limits, key, second_table))


class _Following(Generic[Event]):
    """The stream of one reader's deliveries: see `follow`."""

    def __init__(
        self,
        reader: SourceReader[Any],
        prepare: Callable[[], Awaitable[Event | None]] | None,
        first: Callable[[], Awaitable[Event | None]] | None,
        on_resume: Callable[[], Awaitable[Event | None]] | None,
    ) -> None:
        self._reader = reader
        self._prepare = prepare
        self._first = first
        self._on_resume = on_resume
        self._changes: ChangeSubscription[Event] | None = None
        # The number of the latest change when the stream started, just before it read the present state.
        self._read_at = -1

    def by_time(
        self, select: Callable[[Change], Event | None], select_past: Callable[[Change], Event | None]
    ) -> Callable[[Change], Event | None]:
        """Return a function that selects the changes before the present state with `select_past`."""

        def selected(change: Change) -> Event | None:
            changes = self._changes
            is_past = changes is not None and changes.is_replaying and changes.number <= self._read_at
            return select_past(change) if is_past else select(change)

        return selected

    async def deliveries(
        self, opened: AbstractAsyncContextManager[ChangeSubscription[Event]]
    ) -> AsyncGenerator[Delivery[Event], None]:
        reader, context = self._reader, self._reader.context
        seal = reader.seal
        async with opened as changes:
            self._changes, self._read_at = changes, changes.last_number
            context.advance_watermark()  # also without a first event: a client that resumes needs this position
            is_resumed = reader.resume is not None and not changes.is_too_old
            known = reader.resume.known if reader.resume is not None and is_resumed else ""

            def position() -> ResumePosition:
                return ResumePosition(changes.number, changes.token, seal)

            def settled_position() -> ResumePosition | None:
                return ResumePosition(changes.last_number, changes.last_token, seal) if changes.is_idle else None

            start = SourceStart(changes.is_too_old, self._first is not None, settled_position)
            yield Delivery(Phase.STARTED, None, position(), known, start=start)
            for read in (self._prepare, None if is_resumed else self._first):
                if read is not None and (event := await read()) is not None:
                    context.advance_watermark()
                    yield Delivery(Phase.FIRST, event, position(), known)
            while (event := await changes.next_replayed()) is not None:
                yield Delivery(Phase.MISSED, event, position(), known)
            if self._on_resume is not None and is_resumed and (event := await self._on_resume()) is not None:
                yield Delivery(Phase.MISSED, event, position(), known)
            yield Delivery(Phase.CAUGHT_UP, None, position(), known)
            async for event in changes:
                yield Delivery(
                    Phase.LIVE, event, ResumePosition(changes.number, changes.token, seal), known, changes.dropped
                )


@asynccontextmanager
async def _open_changes(
    reader: SourceReader[Any],
    table: Table,
    select: Callable[[Change], Event | None],
    limits: QueueLimits,
    key: Callable[[Event], Hashable],
    second_table: SecondTable[Event] | None,
) -> AsyncIterator[ChangeSubscription[Event]]:
    """Follow the table, after the client's resume position if there is one, and the second table."""
    feed = reader.context.services.changes
    changes = feed.follow(
        table,
        select,
        limits=limits.upstream,
        key=key,
        subscriber_count=reader.subscriber_count,
        after=None if reader.resume is None else reader.resume.token,
        charge=reader.context.meter.charge,
    )
    async with changes as events, AsyncExitStack() as stack:
        if second_table is not None:
            await stack.enter_async_context(feed.join(events, second_table.table, second_table.select))
        yield events


def owned_changes(
    info: Info,
    pattern: AccessPattern,
    item: type[Owned],
    user_id: str,
    when_slow: OverflowPolicy,
    buffer: int,
    *,
    is_event: Callable[[Owned, Change], bool] | None = None,
    first: Callable[[Context], Awaitable[Owned | None]] | None = None,
) -> EventSource[Owned]:
    """Return the source of a user's items of one kind, as they are created and changed.

    The key of `item` states the partition of a user. Items that the pattern hides once they have expired are no events.

    - `is_event` returns whether a change of an item is an event; by default every change is one.
    - `first` reads the first event, such as the present item. It follows earlier changes, if it reads consistently.

    Raises:
        BadUserInput: an argument is invalid.
        Unauthenticated, Forbidden: the caller may not use the pattern for this user.
    """
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, pattern, owner=owner)
    limits = queue_limits(when_slow, buffer)
    form = item.__declaration__.key
    partition, key = form.partition_of(owner), attrgetter(*form.parameters)
    expiry = _expiry_of(item, pattern)

    def changed(change: Change) -> Owned | None:
        if change.keys[form.attributes[0]] != partition or change.new is None or not form.matches(change.keys):
            return None
        record = item.decoder(change.new)
        return record if is_event is None or is_event(record, change) else None

    def open_stream(reader: SourceReader[Owned]) -> EventStream[Owned]:
        context = reader.context
        read_first = None if first is None else partial(first, context)
        events = follow(reader, pattern.table, changed, limits, key=key, first=read_first)
        return EventStream(events if expiry is None else filtered(events, _kept(expiry, context.services.now)))

    return EventSource(open_stream, limits, is_shared=False, key=key)


async def filtered(
    deliveries: AsyncGenerator[Delivery[Event], None], accepts: Callable[[Event], bool]
) -> AsyncGenerator[Delivery[Event], None]:
    """Yield the deliveries whose events are accepted. The next event counts those that a refused one had replaced."""
    dropped = 0
    async with aclosing(deliveries):
        async for delivery in deliveries:
            if delivery.event is not None and not accepts(delivery.event):
                dropped += delivery.dropped
            elif dropped and delivery.event is not None:
                yield structs.replace(delivery, dropped=delivery.dropped + dropped)
                dropped = 0
            else:
                yield delivery


async def close_reader(read: asyncio.Future[Any], source: AsyncGenerator[Any, None]) -> None:
    """Cancel the pending read of a source, and close the source. An error of the read is ignored."""
    read.cancel()
    await asyncio.wait([read])
    if not read.cancelled():
        read.exception()
    await source.aclose()


def _expiry_of(item: type[StoredItem], pattern: AccessPattern) -> Expiry | None:
    """Return the function from a record to the time at which it expires.

    Return None if the pattern hides no expired items, or if items of this kind have no TTL.
    """
    attributes = item.__declaration__.attributes.items() if pattern.hidden_ttl else ()
    return next((attrgetter(name) for name, value in attributes if value.name == pattern.hidden_ttl), None)


def _kept(expiry: Expiry, now: Callable[[], datetime]) -> Callable[[StoredItem], bool]:
    """Return a function that returns whether a record has not expired."""
    return lambda record: (expires_at := expiry(record)) is None or expires_at > now()
