"""Livestreams: SPARKS-8, SPARKS-N3, their part of SPARKS-W1, and the subscription SPARKS-S1."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

import strawberry

from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.event_source import UnsharedSource
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import parsed
from datastore.errors import DomainError, Internal
from datastore.keyspace.photos import livestreams as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import Key
from datastore.model.ids import uuid7
from datastore.model.timestamps import from_epoch_ms, from_iso, iso
from datastore.photos.livestreams import (
    Livestream,
    Livestreams,
    LivestreamState,
    Schedule,
    check_times,
    is_livestream,
    livestream_from,
)
from datastore.photos.lookups import Lookups
from datastore.session.pagination import SortOrder
from resolvers.photos import photo_validation as texts
from resolvers.photos.change_order import ChangeOrder
from resolvers.photos.photo_access import Consistent, NotConsistent, from_index
from resolvers.shared import validation as validate
from resolvers.shared.arguments import (
    EXPECTED_VERSION,
    After,
    Before,
    Buffer,
    ExpectedVersion,
    First,
    Last,
    Order,
    WhenSlow,
)
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.event_source import follow, queue_limits
from resolvers.shared.paging import Connection, Listing, Paging, connection

LONGEST_TITLE, LONGEST_DESCRIPTION = 200, 2000

logger = logging.getLogger(__name__)


def description(field: str, value: str) -> str:
    return validate.prose(field, value, LONGEST_DESCRIPTION)


def moment(field: str, value: datetime) -> datetime:
    """The moment to the millisecond, as the table holds it."""
    return from_iso(iso(validate.timestamp(field, value)))


CHECKS: dict[str, validate.Check] = {
    "title": partial(validate.line, longest=LONGEST_TITLE),
    "description": description,
    "stream_url": validate.url,
    "start_time": moment,
    "end_time": moment,
}
ATTRIBUTES = {
    "title": "title",
    "description": "description",
    "stream_url": "streamUrl",
    "start_time": "startTime",
    "end_time": "endTime",
}
REMOVABLE = ("description", "end_time")

LivestreamId = Annotated[
    strawberry.ID, strawberry.argument(description="The livestream's `livestreamId`, not the global `id`.")
]
AnyLivestreamId = Annotated[
    strawberry.ID | None,
    strawberry.argument(description="The `livestreamId` of the livestream to follow; by default all livestreams."),
]


@strawberry.input(description="A livestream to announce.")
class CreateLivestreamInput:
    title: str = strawberry.field(description="The title, 1 to 200 characters.")
    description: str | None = strawberry.field(description="The description, 1 to 2,000 characters.", default=None)
    stream_url: str = strawberry.field(
        description="The http(s) address at which the livestream can be watched, at most 1,000 characters."
    )
    start_time: datetime = strawberry.field(description="The start time.")
    end_time: datetime | None = strawberry.field(
        description="The end time, after `startTime` and at most 30 days later; by default unknown.",
        default=None,
    )
    livestream_id: strawberry.ID | None = strawberry.field(
        description="An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case, whose time is at most one day ago and at most five minutes ahead. By default the gateway creates "
        "one.",
        default=None,
    )


@strawberry.input(description="The fields of a livestream to change. Omitted fields keep their values.")
class UpdateLivestreamInput:
    livestream_id: strawberry.ID = strawberry.field(description="The livestream's `livestreamId`.")
    title: strawberry.Maybe[str | None] = strawberry.field(description="The title, 1 to 200 characters.", default=None)
    description: strawberry.Maybe[str | None] = strawberry.field(
        description="The description, 1 to 2,000 characters. Null removes it.", default=None
    )
    stream_url: strawberry.Maybe[str | None] = strawberry.field(
        description="The http(s) address at which the livestream can be watched, at most 1,000 characters.",
        default=None,
    )
    start_time: strawberry.Maybe[datetime | None] = strawberry.field(description="The start time.", default=None)
    end_time: strawberry.Maybe[datetime | None] = strawberry.field(
        description="The end time, after `startTime` and at most 30 days later. Null removes it: the end is unknown.",
        default=None,
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


NewLivestream = Annotated[CreateLivestreamInput, strawberry.argument(description="The livestream.")]
Changes = Annotated[UpdateLivestreamInput, strawberry.argument(description="The changes, at least one field.")]


async def latest_livestream(info: Info, consistent: NotConsistent = False) -> Livestream | None:
    from_index(consistent)
    return await info.context.livestreams.latest()


async def livestream(info: Info, id: LivestreamId, consistent: Consistent = False) -> Livestream | None:
    return await info.context.livestreams.by_id(validate.id("id", id), consistent=consistent)


async def livestreams(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
    consistent: NotConsistent = False,
) -> Connection[Livestream]:
    from_index(consistent)
    listing = Listing(info.context.services.cursors, keys.LIVESTREAMS, "Query.livestreams", {"order": order.value})
    page = await info.context.livestreams.all(listing.span(Paging(first, after, last, before)), order)
    return connection(listing, page, livestream_from)


def state(parent: strawberry.Parent[Livestream], info: Info) -> LivestreamState:
    return parent.state(parent.told_at or info.context.now)


async def create_livestream(info: Info, input: NewLivestream) -> Livestream:
    context = info.context
    require(context.identity, keys.CREATE_LIVESTREAM)
    given = validate.fields(input, CHECKS)
    check_times(given["start_time"], given["end_time"])
    announced = Livestream(
        livestream_id=_new_id(info, input.livestream_id), created_at=moment("createdAt", context.requested_at), **given
    )
    return await context.livestreams.create(announced)


def _new_id(info: Info, given: str | None) -> str:
    context = info.context
    if given is None:
        return uuid7(context.requested_at, context.new_id(info))
    return texts.recent_id("livestreamId", given, context.requested_at)


async def update_livestream(info: Info, input: Changes) -> Livestream:
    require(info.context.identity, keys.UPDATE_LIVESTREAM)
    changes = validate.changes(input, CHECKS, REMOVABLE)
    attributes = {
        ATTRIBUTES[name]: iso(value) if isinstance(value, datetime) else value for name, value in changes.items()
    }
    livestream_id, expected = validate.id("livestreamId", input.livestream_id), validate.version(input.expected_version)
    return await info.context.livestreams.update(livestream_id, attributes, expected)


async def end_livestream(
    info: Info, livestream_id: LivestreamId, expected_version: ExpectedVersion = None
) -> Livestream:
    require(info.context.identity, keys.END_LIVESTREAM)
    expected = validate.version(expected_version)
    return await info.context.livestreams.end(validate.id("livestreamId", livestream_id), expected)


async def livestream_changed(
    info: Info,
    id: AnyLivestreamId = None,
    when_slow: WhenSlow = keys.LIVESTREAM_CHANGED.policy,
    buffer: Buffer = None,
) -> UnsharedSource[Livestream]:
    context = info.context
    only = None if id is None else validate.id("id", id)
    kept = queue_limits(when_slow, buffer)
    progress = context.progress or SubscriptionProgress()
    then = _told_then(progress)
    progress.known = _in_ms(context.services.now())
    since = ChangeOrder(all_count=only is None)

    async def begin() -> _Began:
        store = context.new_store()
        there = Livestreams(store, Lookups(store), context.services.now())
        if only is None:
            return _Began(await there.at_start(), since=then if progress.is_resumed else None)
        if progress.is_resumed:
            since.count_all()
            return _Began([(await there.one_at_start(only))[1]], since=then)
        since.forget()
        item, livestream = await there.one_at_start(only)
        since.was_read(item)
        return _Began([livestream], is_told=True)

    def select(change: Change) -> _Event | None:
        concerned = is_livestream(change.keys) and only in (None, _id_of(change))
        return _changed(change, since.note(change)) if concerned else None

    async def stands() -> _Began | None:
        return await begin() if only is None or progress.is_resumed else None

    async def first() -> _Began:
        return await begin()

    ahead = progress.as_ahead()
    changes: AsyncGenerator[_Event, None] = follow(
        context,
        SPARKS,
        select,
        kept,
        key=_which,
        prepare=stands,
        first=None if only is None else first,
        progress=ahead,
    )
    told = _with_time(changes, since, Schedule(context.services.now), begin, ahead, progress)
    return UnsharedSource(kept, told, lambda livestream: livestream.livestream_id)


def _told_then(progress: SubscriptionProgress) -> datetime | None:
    """When the client was told of the event after which it goes on: what began or ended since is news."""
    known = progress.take_known()
    if known and not (known.isascii() and known.isdigit() and len(known) < 14):
        raise not_an_id()
    return from_epoch_ms(int(known)) if known else None


def _in_ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class _Began:
    """The livestreams there were once no change could be missed any more; `is_told`: they are the first event.

    `since`: those were told of that began or ended by then.
    """

    livestreams: list[Livestream]
    is_told: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Changed:
    """A livestream as a change left it; None where it is gone, or cannot be read. `place`: see `ChangeOrder`."""

    livestream_id: str
    livestream: Livestream | None
    place: int


_Event = _Began | _Changed


def _changed(change: Change, place: int) -> _Changed | None:
    """What the change brought, unless nothing of it shows."""
    was, now = _readable(change.old), _readable(change.new)
    return None if now is not None and was == now else _Changed(_id_of(change), now, place)


def _id_of(change: Change) -> str:
    return keys.livestream_parts(Key(change.keys["PK"], change.keys["SK"]))


def _readable(item: Item | None) -> Livestream | None:
    found = None if item is None else parsed(livestream_from, item)
    return None if isinstance(found, Internal) else found


def _which(event: _Event) -> str | None:
    return event.livestream_id if isinstance(event, _Changed) else None


async def _with_time(
    changes: AsyncGenerator[_Event, None],
    since: ChangeOrder,
    schedule: Schedule,
    begin: Callable[[], Awaitable[_Began]],
    ahead: SubscriptionProgress,
    progress: SubscriptionProgress,
) -> AsyncGenerator[Livestream, None]:
    """The livestreams as they change, and as they begin and end. A change that is there comes before the clock.

    `begin` reads anew what cannot be told from the changes any more. `ahead` is the progress of the changes.
    """
    coming = asyncio.ensure_future(anext(changes))
    try:
        while True:
            progress.has_given_all = True
            await asyncio.wait([coming], timeout=schedule.nap())
            progress.has_given_all = False
            if coming.done():
                event, mark = coming.result(), ahead.mark
                is_lost = since.is_lost and isinstance(event, _Changed)
                told = _told(await _anew(begin) if is_lost else event, since, schedule)
                progress.at(mark)
                coming = asyncio.ensure_future(anext(changes))
            else:
                told = schedule.passed()
            for livestream in told:
                if livestream is told[-1] and livestream.told_at is not None:
                    progress.known = _in_ms(livestream.told_at)
                yield livestream
    except StopAsyncIteration:
        return
    finally:
        coming.cancel()
        # However it ends, nobody is there to be told any more.
        await asyncio.wait([coming])
        if not coming.cancelled():
            coming.exception()
        await changes.aclose()


async def _anew(begin: Callable[[], Awaitable[_Began]]) -> _Began:
    """What there is now, or nothing: then it is tried again after as many changes."""
    try:
        return await begin()
    except DomainError as problem:
        logger.warning("A livestream that is followed cannot be read anew: %s", problem.code)
        return _Began([])


def _told(event: _Event, since: ChangeOrder, schedule: Schedule) -> list[Livestream]:
    if isinstance(event, _Began):
        if event.since is not None:
            for livestream in event.livestreams:
                schedule.seen(livestream, event.since)
            return []
        told = [schedule.told(livestream) for livestream in event.livestreams]
        return told if event.is_told else []
    if not since.holds(event.place):
        return []
    if event.livestream is None:
        schedule.forget(event.livestream_id)
        return []
    return [schedule.told(event.livestream)]
