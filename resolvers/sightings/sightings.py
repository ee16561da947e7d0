"""Street sightings: BLIP-1 … BLIP-8 and the subscriptions BLIP-S1, BLIP-S2."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Unpack

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.errors import BadUserInput
from datastore.keyspace import sightings as keys
from datastore.model.access_patterns import consistently
from datastore.model.composite_keys import Key
from datastore.model.identity import Identity
from datastore.queues import QueueLimits
from datastore.session.pagination import SortOrder
from datastore.sightings.demo import DEMO_SIGHTINGS, demo_reporters, demo_sightings
from datastore.sightings.reporters import UserProfile
from datastore.sightings.sightings import Freshness, Sighting, Trend, TrendingWindow, chronological_key
from datastore.sightings.watches import Watch
from resolvers.shared import validation as validate
from resolvers.shared.arguments import (
    DEFAULT_BUFFER,
    AnyArea,
    AnyCategory,
    Area,
    Buffer,
    Category,
    Consistent,
    UserId,
    WhenSlow,
    argument,
    required,
)
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import filtered, follow, queue_limits
from resolvers.shared.global_ids import global_id, key_of
from resolvers.shared.paging import Connection, Paging, connection_of, page_of_items, paged_in
from resolvers.shared.selected_fields import selects

LONGEST_PLACE = 256
# The blocks of 4 KB in the window of a category: some 30 sightings.
BLOCKS_PER_WINDOW = 3
# The number of categories to assume if the argument has no list.
DEFAULT_CATEGORIES = 5.0

SightingId = Annotated[strawberry.ID, argument("The sighting's `sightingId` or `id`.")]
WatchId = Annotated[strawberry.ID, argument("The watch's `watchId` or `id`.")]
Categories = Annotated[list[str] | None, argument("The categories, some of `categories`; by default all.")]
Window = Annotated[TrendingWindow, argument("The length of the time window, which ends at the present time.")]


@strawberry.input(description="A sighting to report.")
class ReportSightingInput:
    area: str = required("The area, one of `areas`.")
    category: str = required("The category, one of `categories`.")
    description: str = required("What the reporter sees, in words, 1 to 500 characters.")


@strawberry.input(description="A watch to create: an area and a category.")
class CreateWatchInput:
    area: str = required("The area, one of `areas`.")
    category: str = required("The category, one of `categories`.")


async def areas(info: Info) -> Sequence[str]:
    return info.context.services.places.areas


async def categories(info: Info) -> Sequence[str]:
    return info.context.services.places.categories


@paged_in(SortOrder.DESCENDING, consistent=True)
async def sightings(info: Info, area: Area, **paging: Unpack[Paging]) -> Connection[Sighting]:
    _check_configured(info.context, area=area)
    connection = connection_of(info, keys.ACTIVE_IN_AREA, Sighting.decoder)
    page = await info.context.sightings.active_in(area, connection.span(**paging))
    return connection.of(page)


async def user_profile(info: Info, id: UserId, consistent: Consistent = False) -> UserProfile | None:
    pattern = consistently(keys.USER_PROFILE, consistent)
    return await info.context.reporters.by_id(validate.user_id("id", id), pattern)


async def reporters_by_id(ids: Sequence[str], info: Info) -> Sequence[UserProfile | Exception | None]:
    return await info.context.reporters.by_ids(ids)


def global_sighting_id(parent: strawberry.Parent[Sighting]) -> str:
    return global_id("Sighting", *keys.sighting.parts(parent.key))


def confidence(parent: strawberry.Parent[Sighting], info: Info) -> float:
    return parent.confidence(info.context.now)


def freshness(parent: strawberry.Parent[Sighting], info: Info) -> Freshness:
    return parent.freshness(info.context.now)


async def watches(info: Info, user_id: UserId, consistent: Consistent = False) -> list[Watch]:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.WATCHES_OF_USER, owner=owner)
    return await info.context.watches.of_user(owner, consistently(keys.WATCHES_OF_USER, consistent))


async def my_watches(parent: strawberry.Parent[Identity], info: Info) -> list[Watch]:
    return await info.context.watches.of_user(parent.user_id, keys.WATCHES_OF_USER)


async def trending(info: Info, categories: Categories = None, window: Window = TrendingWindow.SIX_HOURS) -> list[Trend]:
    context = info.context
    for category in categories or ():
        _check_configured(context, category=category)
    selected = tuple(dict.fromkeys(context.services.places.categories if categories is None else categories))
    return await context.sightings.trending(selected, window, with_items=selects(info, "sightings"))


def blocks_read(arguments: Mapping[str, Any], _now: datetime) -> float:
    """Return the number of 4 KB blocks of the windows, one window for each category."""
    categories = arguments.get("categories")
    return BLOCKS_PER_WINDOW * (float(len(categories)) if isinstance(categories, list) else DEFAULT_CATEGORIES)


@paged_in(SortOrder.DESCENDING)
async def trending_sightings(
    parent: strawberry.Parent[Trend], info: Info, **paging: Unpack[Paging]
) -> Connection[Sighting]:
    trend = {"category": parent.category, "window": parent.window}
    connection = connection_of(info, keys.TRENDING, Sighting.decoder, trend)
    page = page_of_items(list(parent.items), chronological_key, connection.span(**paging))
    return connection.of(page)


async def confirm_sighting(info: Info, area: Area, sighting_id: SightingId) -> Sighting:
    context = info.context
    caller = require(context.identity, keys.CONFIRM)
    _check_configured(context, area=area)
    sighting = validate.id("sightingId", _local_sighting_id(area, sighting_id))
    return await context.sightings.confirm(area, sighting, user_id=caller.user_id, nano_id=context.new_id(info))


def _local_sighting_id(area: str, given: str) -> str:
    """Return the local id of a sighting. A global id also names the area and the time.

    Raises `BadUserInput` for a global id of another type or of another area.
    """
    match key_of("sightingId", given, "Sighting"):
        case None:
            return given
        case [named_area, _, sighting_id] if named_area == area:
            return sighting_id
    raise BadUserInput("`sightingId` is a global id that does not fit `area`.", field="sightingId")


async def report_sighting(info: Info, input: Annotated[ReportSightingInput, argument("The sighting.")]) -> Sighting:
    context = info.context
    caller = require(context.identity, keys.REPORT)
    _check_configured(context, area=input.area, category=input.category)
    description = validate.field(Sighting, "description", input.description)
    return await context.sightings.report(
        sighting_id=context.new_id(info),
        area=input.area,
        category=input.category,
        description=description,
        user_id=caller.user_id,
        reported_at=context.requested_at,
    )


async def create_watch(info: Info, input: Annotated[CreateWatchInput, argument("The watch.")]) -> Watch:
    context = info.context
    caller = require(context.identity, keys.CREATE_WATCH)
    _check_configured(context, area=input.area, category=input.category)
    return await context.watches.create(caller.user_id, input.area, input.category, context.now)


async def delete_watch(info: Info, area: Area, category: Category, watch_id: WatchId) -> Watch | None:
    context = info.context
    caller = require(context.identity, keys.DELETE_WATCH)
    # The area and the category may no longer be configured.
    names = validate.id("area", area, LONGEST_PLACE), validate.id("category", category, LONGEST_PLACE)
    own_id = validate.id("watchId", watch_id, of=("Watch",), within=(caller.user_id, *names))
    return await context.watches.delete(keys.watch(caller.user_id, *names, own_id))


async def seed_demo(info: Info) -> list[Sighting]:
    context = info.context
    require(context.identity, keys.SEED)
    places, moment = context.services.places, context.requested_at
    seeded = demo_sightings(places.areas, places.categories, moment, [context.new_id(info) for _ in DEMO_SIGHTINGS])
    await context.sightings.seed(seeded, demo_reporters(moment))
    return seeded


async def sighting_reported(
    info: Info,
    area: AnyArea = None,
    category: AnyCategory = None,
    when_slow: WhenSlow = keys.SIGHTING_REPORTED.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[Sighting]:
    _check_configured(info.context, area=area, category=category)
    limits = queue_limits(when_slow, buffer)

    def reported(change: Change) -> Sighting | None:
        sighting = _new_sighting(change)
        if sighting is None or area not in (None, sighting.area) or category not in (None, sighting.category):
            return None
        return sighting

    def open_stream(reader: SourceReader[Sighting]) -> EventStream[Sighting]:
        sightings = follow(reader, keys.BLIP, reported, limits, key=_area_and_category)
        return EventStream(_unexpired(reader.context, sightings))

    return EventSource(open_stream, limits, key=_area_and_category)


def _unexpired(
    context: Context, sightings: AsyncGenerator[Delivery[Sighting], None]
) -> AsyncGenerator[Delivery[Sighting], None]:
    """Yield the sightings that have not expired by the time they are delivered."""
    return filtered(sightings, lambda sighting: sighting.expires_at > context.services.now())


async def watch_alerts(
    info: Info, user_id: UserId, when_slow: WhenSlow = keys.WATCH_ALERTS.default_policy, buffer: Buffer = DEFAULT_BUFFER
) -> EventSource[Sighting]:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.WATCH_ALERTS, owner=owner)
    limits = queue_limits(when_slow, buffer)

    def open_stream(reader: SourceReader[Sighting]) -> EventStream[Sighting]:
        return EventStream(_unexpired(reader.context, _watch_alerts(reader, owner, limits)))

    return EventSource(open_stream, limits, is_shared=False, key=_area_and_category)


@dataclass(frozen=True, slots=True)
class _Unwatched:
    """The deletion of a watch."""

    watch_id: str


async def _watch_alerts(
    reader: SourceReader[Sighting], user_id: str, limits: QueueLimits
) -> AsyncGenerator[Delivery[Sighting], None]:
    """Yield the sightings that match the watches.

    The watches are read after the change feed is followed, and changes update them, so that none is missed.
    """
    watches: dict[str, Watch] = {}
    context: Context = reader.context

    async def read_watches() -> None:
        watches.update({watch.watch_id: watch for watch in await context.watches.at_start(user_id)})

    def is_own_watch(change: Change) -> bool:
        return keys.watch.matches(change.keys) and change.keys["PK"] == keys.watch.partition_of(user_id)

    def select(change: Change) -> Sighting | Watch | _Unwatched | None:
        return _watch_change(change) if is_own_watch(change) else _new_sighting(change)

    def select_past(change: Change) -> Sighting | None:
        return None if is_own_watch(change) else _new_sighting(change)

    changes: AsyncGenerator[Delivery[Sighting | Watch | _Unwatched], None] = follow(
        reader, keys.BLIP, select, limits, key=_queue_key, prepare=read_watches, select_past=select_past
    )
    async with aclosing(changes):
        async for delivery in changes:
            change = delivery.event
            if isinstance(change, Watch):
                watches[change.watch_id] = change
            elif isinstance(change, _Unwatched):
                watches.pop(change.watch_id, None)
            elif change is None:
                yield delivery.without_event()
            elif any((watch.area, watch.category) == _area_and_category(change) for watch in watches.values()):
                yield delivery.with_event(change, delivery.known)


def _watch_change(change: Change) -> Watch | _Unwatched | None:
    if change.new is not None:
        return Watch.decoder(change.new)
    return _Unwatched(keys.watch.parts(Key(change.keys["PK"], change.keys["SK"]))[3])


def _queue_key(event: Sighting | Watch | _Unwatched) -> tuple[str, str]:
    return _area_and_category(event) if isinstance(event, Sighting) else ("watch", event.watch_id)


def _new_sighting(change: Change) -> Sighting | None:
    if change.kind != "INSERT" or change.new is None or not keys.sighting.matches(change.keys):
        return None
    return Sighting.decoder(change.new)


def _area_and_category(sighting: Sighting) -> tuple[str, str]:
    return sighting.area, sighting.category


def _check_configured(context: Context, *, area: str | None = None, category: str | None = None) -> None:
    places = context.services.places
    if area is not None and area not in places.areas:
        raise BadUserInput(f"`area` must be one of: {', '.join(places.areas)}.", field="area")
    if category is not None and category not in places.categories:
        raise BadUserInput(f"`category` must be one of: {', '.join(places.categories)}.", field="category")
