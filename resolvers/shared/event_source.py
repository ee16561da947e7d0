"""Subscriptions: a table's change feed as events of one kind, for one subscriber or for all who ask alike."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from typing import Generic, NamedTuple, TypeVar

from graphql import OperationType

from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.records import DAMAGE, logged_keys
from datastore.errors import BadUserInput
from datastore.model.access_patterns import Table
from datastore.model.log_redaction import without_emails
from datastore.queues import WAITING_EVENTS, OverflowPolicy, QueueLimits
from resolvers.shared import validation as bounds
from resolvers.shared.context import Context, Info

Event = TypeVar("Event")

# So many of the newest wait with the policy BUFFER, if nothing is said.
BUFFERED_EVENTS = 100

logger = logging.getLogger(__name__)


def _any(_: object) -> None:
    """The key of all events, where a newer one replaces any."""


def keeping(when_slow: OverflowPolicy, buffer: int | None) -> QueueLimits:
    """What is kept for a subscriber, as the arguments `whenSlow` and `buffer` say. Raises `BadUserInput`."""
    if buffer is not None and when_slow is not OverflowPolicy.BUFFER:
        raise BadUserInput("`buffer` goes with `whenSlow: BUFFER` alone.", field="buffer")
    most = BUFFERED_EVENTS if buffer is None else bounds.number("buffer", buffer, least=1, most=WAITING_EVENTS)
    return QueueLimits.of(when_slow, most)


def is_event(info: Info) -> bool:
    """Whether the field is one of an event: what the event tells of may be too new for eventually consistent reads."""
    return info.operation.operation is OperationType.SUBSCRIPTION


class SecondTable(NamedTuple, Generic[Event]):
    """A second table whose changes are also events of a subscription."""

    table: Table
    select: Callable[[Change], Event | None]


async def follow(
    context: Context,
    table: Table,
    select: Callable[[Change], Event | None],
    keeping: QueueLimits,
    *,
    key: Callable[[Event], Hashable] = _any,
    prepare: Callable[[], Awaitable[Event | None]] | None = None,
    first: Callable[[], Awaitable[Event | None]] | None = None,
    beside: SecondTable[Event] | None = None,
    resumed: Callable[[], Awaitable[Event | None]] | None = None,
    progress: SubscriptionProgress | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield the events that `select` makes of the table's changes, from now on or from a client's resume position.

    A change that `select` cannot read is logged and skipped. `keeping` is the policy for events that wait: with LATEST
    a newer event replaces the waiting one with the same `key`, or any waiting event if there is no `key`. Once no
    change can be missed, `prepare` is awaited, and `first` too unless the client resumes at a known position. Their
    results other than None are the first events. `resumed` is awaited after the missed events, and its result is the
    next event. `beside` adds events of another table's changes, which have no resume position. `progress` defaults to
    that of the context.
    """
    progress = progress or context.progress or SubscriptionProgress()
    changes = context.services.changes.follow(
        table,
        _tolerant(select),
        keeping=keeping.before,
        key=key,
        stands_for=lambda: context.subscriber_count(),
        after=None if progress.resume is None else progress.resume.place,
        charge=context.meter.charge,
    )
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(changes)
        if beside is not None:
            await stack.enter_async_context(
                context.services.changes.join(events, beside.table, _tolerant(beside.select))
            )
        context.advance_watermark()  # even if nothing follows: a client that resumes needs this position
        progress.begin(events, events.told_until, tells_first=first is not None)
        for read in (prepare, None if progress.is_resumed else first):
            if read is not None and (event := await read()) is not None:
                context.advance_watermark()
                yield event
        while (event := await events.missed()) is not None:
            progress.take()
            yield event
        if resumed is not None and progress.is_resumed and (event := await resumed()) is not None:
            progress.take()
            yield event
        progress.here()
        async for event in events:
            progress.take()
            if events.left_out:
                progress.pass_over(events.left_out)
            yield event


def log_unreadable(change: Change, problem: Exception) -> None:
    """Log which change cannot be read, and why."""
    described = without_emails(repr(problem)), logged_keys(change.keys)
    logger.error("A change of %s cannot be read: %s in %r", change.table, *described)


def _tolerant(select: Callable[[Change], Event | None]) -> Callable[[Change], Event | None]:
    def selected(change: Change) -> Event | None:
        try:
            return select(change)
        except DAMAGE as problem:
            log_unreadable(change, problem)
            return None

    return selected
