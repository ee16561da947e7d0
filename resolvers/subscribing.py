"""Subscriptions: a table's change feed as events of one kind."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import TypeVar

from graphql import OperationType

from datastore.declarations import Table
from datastore.emails import without_emails
from datastore.hub import Policy
from datastore.records import DAMAGE, logged_keys
from datastore.streams import Change
from resolvers.context import Context, Info

Event = TypeVar("Event")

WAITING_EVENTS = 1000

logger = logging.getLogger(__name__)


def is_event(info: Info) -> bool:
    """Whether the field is one of an event: what the event tells of may be too new for eventually consistent reads."""
    return info.operation.operation is OperationType.SUBSCRIPTION


async def follow(
    context: Context,
    table: Table,
    select: Callable[[Change], Event | None],
    when_slow: Policy,
    *,
    key: Callable[[Event], Hashable] = lambda _: None,
    first: Callable[[], Awaitable[Event | None]] | None = None,
) -> AsyncGenerator[Event, None]:
    """The events that `select` makes of the table's changes, from now on.

    A change that `select` cannot read is logged and passed over. With the policy LATEST, `key` tells which waiting
    event a newer one replaces; without it that is any. `first` is awaited once no change can be missed any more:
    what it answers, unless None, is the first event.
    """
    changes = context.services.changes
    async with changes.follow(table, _tolerant(select), capacity=WAITING_EVENTS, policy=when_slow, key=key) as events:
        if first is not None and (event := await first()) is not None:
            yield event
        async for event in events:
            yield event


def _tolerant(select: Callable[[Change], Event | None]) -> Callable[[Change], Event | None]:
    def selected(change: Change) -> Event | None:
        try:
            return select(change)
        except DAMAGE as problem:
            told = without_emails(repr(problem)), logged_keys(change.keys)
            logger.error("A change of %s cannot be read: %s in %r", change.table, *told)
            return None

    return selected
