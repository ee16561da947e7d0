"""`owned_changes`, with which a resolver follows a user's own items."""

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datastore.change_streams.subscriptions.event_source import EventSource, SourceReader
from datastore.dynamodb.codec import Item
from datastore.errors import DomainError
from datastore.keyspace.sightings import BLIP, WATCH_ALERTS
from datastore.model.identity import Identity, Role
from datastore.queues import OverflowPolicy
from datastore.sightings.watches import Watch
from resolvers.shared.arguments import DEFAULT_BUFFER
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import owned_changes
from tests.support.deliveries import events_in
from tests.support.served import Served

ADAS, LATER = Watch("w1", "ada", "Harbor", "Cats"), Watch("w2", "ada", "Harbor", "Sneakers")
LAST = Watch("w4", "ada", "Downtown", "Cats")
EVES = Watch("w3", "eve", "Harbor", "Cats")
PROFILE = {"PK": "USER#ada", "SK": "PROFILE", "userId": "ada"}


def watches_of(
    context: Context, user_id: str = "ada", *, when_slow: OverflowPolicy = OverflowPolicy.CLOSE, **options: Any
) -> EventSource[Watch]:
    info = cast(Info, SimpleNamespace(context=context))
    return owned_changes(
        info, WATCH_ALERTS, Watch, user_id, when_slow, options.pop("buffer", DEFAULT_BUFFER), **options
    )


def context_of(served: Served, user_id: str = "ada") -> Context:
    return served.gateway.open_context(Identity(user_id, Role.USER))


async def write(served: Served, *items: Item) -> None:
    for item in items:
        await served.store().write_all(BLIP, puts=[item])


async def test_the_events_are_the_items_of_the_kind_that_the_user_owns(served: Served) -> None:
    context = context_of(served)
    async with aclosing(events_in(watches_of(context).open(SourceReader(context)).deliveries)) as events:
        event = asyncio.ensure_future(anext(events))
        await served.settle(BLIP)

        await write(served, EVES.item(), PROFILE, ADAS.item(), LATER.item())

        assert [await event, await anext(events)] == [ADAS, LATER]


async def test_changes_that_are_no_events_are_left_out(served: Served) -> None:
    context = context_of(served)
    source = watches_of(context, is_event=lambda watch, change: change.old is None and watch != LATER)
    async with aclosing(events_in(source.open(SourceReader(context)).deliveries)) as events:
        event = asyncio.ensure_future(anext(events))
        await served.settle(BLIP)

        await write(served, LATER.item(), ADAS.item(), ADAS.item() | {"seen": True}, LAST.item())

        assert [await event, await anext(events)] == [ADAS, LAST]


@pytest.mark.parametrize("present", [EVES, None])
async def test_the_present_state_is_the_first_event(served: Served, present: Watch | None) -> None:
    context = context_of(served)

    async def first(given: Context) -> Watch | None:
        assert given is context
        await write(served, ADAS.item())  # the source misses no change after it reads the present state
        return present

    source = watches_of(context, first=first)
    async with aclosing(events_in(source.open(SourceReader(context)).deliveries)) as events:
        expected = [ADAS] if present is None else [present, ADAS]
        assert [await anext(events) for _ in expected] == expected


async def test_a_newer_event_replaces_a_waiting_one_of_the_same_item(served: Served) -> None:
    source = watches_of(context_of(served))

    assert source.key(ADAS) == source.key(Watch("w1", "ada", "Harbor", "Cats")) != source.key(LATER)


@pytest.mark.parametrize(
    ("user_id", "buffer", "code"),
    [("ada", 0, "BAD_USER_INPUT"), ("eve", 5, "FORBIDDEN"), ("", 5, "BAD_USER_INPUT")],
)
async def test_the_caller_and_the_arguments_are_checked(served: Served, user_id: str, buffer: int, code: str) -> None:
    with pytest.raises(DomainError) as refused:
        watches_of(context_of(served), user_id, buffer=buffer)

    assert refused.value.code == code
