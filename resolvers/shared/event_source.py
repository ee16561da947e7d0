"""Sources of subscription events: the change feed of a table, filtered and converted to events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from graphql import OperationType

from datastore.change_streams.change import Change
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.records import DAMAGE_ERRORS, logged_keys
from datastore.errors import BadUserInput
from datastore.model.access_patterns import Table
from datastore.model.log_redaction import redact_emails
from datastore.queues import MAX_EVENTS, OverflowPolicy, QueueLimits
from resolvers.shared import validation as validate
from resolvers.shared.context import Context, Info

Event = TypeVar("Event")

# The default of the argument `buffer`.
DEFAULT_BUFFER = 100

logger = logging.getLogger(__name__)


def _one_key(_: object) -> None:
    """Return the same key for all events: a newer event replaces any other."""


def queue_limits(when_slow: OverflowPolicy, buffer: int | None) -> QueueLimits:
    """Return the limits of a subscriber's queue from the arguments `whenSlow` and `buffer`. Raises `BadUserInput`."""
    if buffer is not None and when_slow is not OverflowPolicy.BUFFER:
        raise BadUserInput("`buffer` requires `whenSlow: BUFFER`.", field="buffer")
    size = DEFAULT_BUFFER if buffer is None else validate.number("buffer", buffer, minimum=1, maximum=MAX_EVENTS)
    return QueueLimits.of(when_slow, size)


def is_event(info: Info) -> bool:
    """Return whether the field belongs to an event. An eventually consistent read may miss the change of the event."""
    return info.operation.operation is OperationType.SUBSCRIPTION


class SecondTable(NamedTuple, Generic[Event]):
    """A second table whose changes are also events of a subscription."""

    table: Table
    select: Callable[[Change], Event | None]


async def follow(
    context: Context,
    table: Table,
    select: Callable[[Change], Event | None],
    limits: QueueLimits,
    *,
    key: Callable[[Event], Hashable] = _one_key,
    prepare: Callable[[], Awaitable[Event | None]] | None = None,
    first: Callable[[], Awaitable[Event | None]] | None = None,
    second_table: SecondTable[Event] | None = None,
    on_resume: Callable[[], Awaitable[Event | None]] | None = None,
    progress: SubscriptionProgress | None = None,
    reader: SourceReader[Any] | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield the events that `select` returns for the table's changes, from now on or from the client's resume position.

    A change that `select` cannot read is logged and skipped.

    - `limits` are the limits of the queue. With LATEST a newer event replaces the queued event with an equal `key`;
      without a `key` it replaces any queued event.
    - `prepare` is awaited once no change can be missed, then `first`, unless the client resumes from a known position.
      The first events are their results, if they are not None.
    - `on_resume` is awaited after the replay for a client that resumes. Its result is the next event.
    - `second_table` adds events of another table's changes. They have no resume position.
    - `progress` defaults to that of the context.
    - `reader` is the reader of a shared source. It is notified of the start and of the end of the replay.
    """
    progress = progress or context.progress or SubscriptionProgress()
    reader = reader or SourceReader()
    opened = _open_changes(context, table, select, limits, key, second_table, progress, reader)
    async with opened as events:
        context.advance_watermark()  # also without a first event: a client that resumes needs this position
        progress.begin(events, events.last_number, sends_first_event=first is not None)
        reader.on_started()
        for read in (prepare, None if progress.is_resumed else first):
            if read is not None and (event := await read()) is not None:
                context.advance_watermark()
                yield event
        while (event := await events.next_replayed()) is not None:
            progress.advance()
            yield event
        if on_resume is not None and progress.is_resumed and (event := await on_resume()) is not None:
            progress.advance()
            yield event
        progress.go_live()
        reader.on_live()
        async for event in events:
            progress.advance()
            if events.dropped:
                progress.add_dropped(events.dropped)
            yield event


@asynccontextmanager
async def _open_changes(
    context: Context,
    table: Table,
    select: Callable[[Change], Event | None],
    limits: QueueLimits,
    key: Callable[[Event], Hashable],
    second_table: SecondTable[Event] | None,
    progress: SubscriptionProgress,
    reader: SourceReader[Any],
) -> AsyncIterator[ChangeSubscription[Event]]:
    """Follow the table, after the client's resume position if there is one, and the second table."""
    feed = context.services.changes
    changes = feed.follow(
        table,
        _tolerant(select),
        limits=limits.upstream,
        key=key,
        subscriber_count=reader.subscriber_count,
        after=None if progress.resume is None else progress.resume.token,
        charge=context.meter.charge,
    )
    async with changes as events, AsyncExitStack() as stack:
        if second_table is not None:
            await stack.enter_async_context(feed.join(events, second_table.table, _tolerant(second_table.select)))
        yield events


async def close_reader(read: asyncio.Future[Any], source: AsyncGenerator[Any, None]) -> None:
    """Cancel the pending read of a source, and close the source. An error of the read is ignored."""
    read.cancel()
    await asyncio.wait([read])
    if not read.cancelled():
        read.exception()
    await source.aclose()


def log_unreadable(change: Change, problem: Exception) -> None:
    """Log the keys of a change that cannot be read, and the reason."""
    described = redact_emails(repr(problem)), logged_keys(change.keys)
    logger.error("A change of %s is damaged: %s in %r", change.table, *described)


def _tolerant(select: Callable[[Change], Event | None]) -> Callable[[Change], Event | None]:
    def selected(change: Change) -> Event | None:
        try:
            return select(change)
        except DAMAGE_ERRORS as problem:
            log_unreadable(change, problem)
            return None

    return selected
