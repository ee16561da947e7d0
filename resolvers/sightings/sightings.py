"""Street sightings: BLIP-1 … BLIP-8 and the subscriptions BLIP-S1, BLIP-S2."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader, UnsharedSource
from datastore.errors import BadUserInput, NotFound
from datastore.keyspace import sightings as keys
from datastore.model.composite_keys import Key
from datastore.queues import QueueLimits
from datastore.sightings.demo import DEMO_SIGHTINGS, demo_reporters, demo_sightings
from datastore.sightings.reporters import UserProfile
from datastore.sightings.sightings import Freshness, Sighting, Trend, chronological_key, is_sighting, sighting_from
from datastore.sightings.watches import Watch, is_watch, watch_from
from resolvers.shared import validation as validate
from resolvers.shared.arguments import (
    After,
    AnyArea,
    AnyCategory,
    Area,
    Before,
    Buffer,
    Category,
    First,
    Last,
    UserId,
    WhenSlow,
)
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, queue_limits
from resolvers.shared.paging import Connection, page_of_items
from resolvers.shared.selected_fields import selects

LONGEST_WINDOW_HOURS = 48
HOUR = timedelta(hours=1)
LONGEST_DESCRIPTION = 500
LONGEST_PLACE = 256
# The blocks of 4 KB in the window of a category: some 30 sightings.
BLOCKS_PER_WINDOW = 3
# The number of categories to assume if the argument has no list.
DEFAULT_CATEGORIES = 5.0

SightingId = Annotated[strawberry.ID, strawberry.argument(description="The sighting's `sightingId`.")]
WatchId = Annotated[strawberry.ID, strawberry.argument(description="The watch's `watchId`.")]
Categories = Annotated[
    list[str] | None, strawberry.argument(description="The categories, some of `categories`; by default all.")
]
WindowHours = Annotated[
    float,
    strawberry.argument(description="The length of the time window before the present, in hours: above 0, at most 48."),
]


@strawberry.input(description="A sighting to report.")
class ReportSightingInput:
    area: str = strawberry.field(description="The area, one of `areas`.")
    category: str = strawberry.field(description="The category, one of `categories`.")
    description: str = strawberry.field(description="What the reporter sees, in words, 1 to 500 characters.")


@strawberry.input(description="A watch to create: an area and a category.")
class CreateWatchInput:
    area: str = strawberry.field(description="The area, one of `areas`.")
    category: str = strawberry.field(description="The category, one of `categories`.")


async def areas(info: Info) -> Sequence[str]:
    return info.context.services.places.areas


async def categories(info: Info) -> Sequence[str]:
    return info.context.services.places.categories


async def sightings(
    info: Info,
    area: Area,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Sighting]:
    _check_configured(info.context, area=area)
    connection = Connection(
        info.context.services.cursors, keys.ACTIVE_IN_AREA, "Query.sightings", {"area": area}, sighting_from
    )
    page = await info.context.sightings.active_in(area, connection.span(first, after, last, before))
    return connection.of(page)


async def user_profile(info: Info, user_id: UserId) -> UserProfile | None:
    return await info.context.reporters.by_id(validate.user_id("userId", user_id))


async def reporter(parent: strawberry.Parent[Sighting], info: Info) -> UserProfile | None:
    return await info.context.reporters.by_id(parent.reporter_id)


def confidence(parent: strawberry.Parent[Sighting], info: Info) -> float:
    return parent.confidence(info.context.now)


def freshness(parent: strawberry.Parent[Sighting], info: Info) -> Freshness:
    return parent.freshness(info.context.now)


async def watches(info: Info, user_id: UserId) -> list[Watch]:
    require(info.context.identity, keys.WATCHES_OF_USER, owner=user_id)
    return await info.context.watches.of_user(user_id)


async def trending(info: Info, categories: Categories = None, window_hours: WindowHours = 6) -> list[Trend]:
    context = info.context
    if not 0 < window_hours <= LONGEST_WINDOW_HOURS:
        raise BadUserInput(f"`windowHours` must be above 0 and at most {LONGEST_WINDOW_HOURS}.", field="windowHours")
    for category in categories or ():
        _check_configured(context, category=category)
    selected = tuple(dict.fromkeys(context.services.places.categories if categories is None else categories))
    window = timedelta(hours=window_hours)
    return await context.sightings.trending(selected, window, with_items=selects(info, "sightings"))


def blocks_read(arguments: Mapping[str, Any], _now: datetime) -> float:
    """Return the number of 4 KB blocks of the windows, one window for each category."""
    categories = arguments.get("categories")
    return BLOCKS_PER_WINDOW * (float(len(categories)) if isinstance(categories, list) else DEFAULT_CATEGORIES)


async def trending_sightings(
    parent: strawberry.Parent[Trend],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Sighting]:
    arguments = {"category": parent.category, "hours": parent.window / HOUR}
    connection = Connection(
        info.context.services.cursors, keys.TRENDING, "TrendingCategory.sightings", arguments, sighting_from
    )
    page = page_of_items(list(parent.items), chronological_key, connection.span(first, after, last, before))
    return connection.of(page)


async def confirm_sighting(info: Info, area: Area, sighting_id: SightingId) -> Sighting:
    context = info.context
    caller = require(context.identity, keys.CONFIRM)
    _check_configured(context, area=area)
    sighting = validate.id("sightingId", sighting_id)
    return await context.sightings.confirm(area, sighting, user_id=caller.user_id, nano_id=context.new_id(info))


async def report_sighting(
    info: Info, input: Annotated[ReportSightingInput, strawberry.argument(description="The sighting.")]
) -> Sighting:
    context = info.context
    caller = require(context.identity, keys.REPORT)
    _check_configured(context, area=input.area, category=input.category)
    description = validate.prose("description", input.description, LONGEST_DESCRIPTION)
    return await context.sightings.report(
        sighting_id=context.new_id(info),
        area=input.area,
        category=input.category,
        description=description,
        user_id=caller.user_id,
        reported_at=context.requested_at,
    )


async def create_watch(
    info: Info, input: Annotated[CreateWatchInput, strawberry.argument(description="The watch.")]
) -> Watch:
    context = info.context
    caller = require(context.identity, keys.CREATE_WATCH)
    _check_configured(context, area=input.area, category=input.category)
    return await context.watches.create(caller.user_id, input.area, input.category, context.now)


async def delete_watch(info: Info, area: Area, category: Category, watch_id: WatchId) -> Watch:
    context = info.context
    caller = require(context.identity, keys.DELETE_WATCH)
    # The area and the category may no longer be configured.
    names = validate.id("area", area, LONGEST_PLACE), validate.id("category", category, LONGEST_PLACE)
    watch = keys.watch(caller.user_id, *names, validate.id("watchId", watch_id))
    deleted = await context.watches.delete(watch)
    if deleted is None:
        raise NotFound(f"You have no watch {watch_id!r} for this area and category.")
    return deleted


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
    buffer: Buffer = None,
) -> SharedSource[Sighting]:
    _check_configured(info.context, area=area, category=category)
    limits = queue_limits(when_slow, buffer)

    def reported(change: Change) -> Sighting | None:
        sighting = _new_sighting(change)
        if sighting is None or area not in (None, sighting.area) or category not in (None, sighting.category):
            return None
        return sighting

    def events(reader: SourceReader[Sighting]) -> AsyncGenerator[Sighting, None]:
        sightings = follow(info.context, keys.BLIP, reported, limits, key=_area_and_category, reader=reader)
        return _unexpired(info.context, sightings)

    return SharedSource(info.context, limits, events, key=_area_and_category)


async def _unexpired(context: Context, sightings: AsyncGenerator[Sighting, None]) -> AsyncGenerator[Sighting, None]:
    """Yield the sightings that have not expired by the time they are delivered."""
    async with aclosing(sightings):
        async for sighting in sightings:
            if sighting.expires_at > context.services.now():
                yield sighting


async def watch_alerts(
    info: Info, user_id: UserId, when_slow: WhenSlow = keys.WATCH_ALERTS.default_policy, buffer: Buffer = None
) -> UnsharedSource[Sighting]:
    require(info.context.identity, keys.WATCH_ALERTS, owner=user_id)
    limits = queue_limits(when_slow, buffer)
    return UnsharedSource(
        limits, _unexpired(info.context, _watch_alerts(info.context, user_id, limits)), _area_and_category
    )


@dataclass(frozen=True, slots=True)
class _Unwatched:
    """The deletion of a watch."""

    watch_id: str


async def _watch_alerts(context: Context, user_id: str, limits: QueueLimits) -> AsyncGenerator[Sighting, None]:
    """Yield the sightings that match the watches.

    The watches are read after the change feed is followed, and changes update them, so that none is missed.
    """
    watches: dict[str, Watch] = {}
    progress = context.progress

    async def read_watches() -> None:
        watches.update({watch.watch_id: watch for watch in await context.watches.at_start(user_id)})

    def select(change: Change) -> Sighting | Watch | _Unwatched | None:
        if is_watch(change.keys) and change.keys["PK"] == keys.user(user_id):
            return None if progress is not None and progress.is_past else _watch_change(change)
        return _new_sighting(change)

    changes: AsyncGenerator[Sighting | Watch | _Unwatched, None] = follow(
        context, keys.BLIP, select, limits, key=_queue_key, prepare=read_watches
    )
    async with aclosing(changes):
        async for change in changes:
            if isinstance(change, Watch):
                watches[change.watch_id] = change
            elif isinstance(change, _Unwatched):
                watches.pop(change.watch_id, None)
            elif any((watch.area, watch.category) == _area_and_category(change) for watch in watches.values()):
                yield change
            elif progress is not None:
                progress.take_dropped()  # the dropped sightings match no watch either


def _watch_change(change: Change) -> Watch | _Unwatched | None:
    if change.new is not None:
        return watch_from(change.new)
    return _Unwatched(keys.watch_parts(Key(change.keys["PK"], change.keys["SK"]))[3])


def _queue_key(event: Sighting | Watch | _Unwatched) -> tuple[str, str]:
    return _area_and_category(event) if isinstance(event, Sighting) else ("watch", event.watch_id)


def _new_sighting(change: Change) -> Sighting | None:
    if change.kind != "INSERT" or change.new is None or not is_sighting(change.keys):
        return None
    return sighting_from(change.new)


def _area_and_category(sighting: Sighting) -> tuple[str, str]:
    return sighting.area, sighting.category


def _check_configured(context: Context, *, area: str | None = None, category: str | None = None) -> None:
    places = context.services.places
    if area is not None and area not in places.areas:
        raise BadUserInput(f"`area` must be one of: {', '.join(places.areas)}.", field="area")
    if category is not None and category not in places.categories:
        raise BadUserInput(f"`category` must be one of: {', '.join(places.categories)}.", field="category")
