"""Daily statistics of earthquakes: their number by magnitude class and by region (QUAKE-P1 to QUAKE-P5).

Each counted event has an item (`COUNTED#<day>`), which the consumer of the table's stream writes. The statistics of a
day are recounted from these items and never incremented. A change that is delivered twice therefore counts once, and
the next delivery repairs the work of a process that ended between two steps.
"""

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import GREATEST, GREATEST_OTHER, KnownBounds, is_natural
from datastore.earthquakes.events import is_number
from datastore.earthquakes.regions import region_of
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace import earthquake_statistics as keys
from datastore.keyspace import earthquakes
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import consistently
from datastore.model.composite_keys import Key, split
from datastore.model.timestamps import epoch_ms, from_day_bucket
from datastore.primitives.retries import retry
from datastore.session.store import Store
from datastore.session.writes import Action, is_contended

LEAST_CLASS, GREATEST_CLASS = -2, 9
# Below all magnitudes: the bound of a day whose events have no readable magnitude.
NO_MAGNITUDE = -100
CONCURRENT_RECOUNTS = 8
RECOUNT_ATTEMPTS = 20
FIRST_DAY, LAST_DAY = "10000101", "99991231"
FIELDS = (*EARTHQUAKES.key_attributes("TimeOrderedIndex"), "eventId", "mag", "lat", "lon", "type")


class Tally(Struct, frozen=True):
    """The number of events of a group, and the greatest magnitude among them."""

    count: int
    greatest: float


Tallies = Mapping[str, Tally]


class DayStatistics(Struct, frozen=True):
    """The events of a UTC day (YYYYMMDD)."""

    day: str
    #: No event of the day has a greater magnitude. None for a day without events.
    bound: float | None
    #: The bound of the events other than earthquakes. None for a day without them.
    other_bound: float | None
    #: The earthquakes by magnitude class: "4" is 4.0 up to 5.0.
    natural: Tallies
    #: The other events by magnitude class.
    other: Tallies


class Coverage(StoredItem, key=keys.coverage):
    """The days with complete statistics."""

    #: The first and the last day (YYYYMMDD) of each span.
    spans: tuple[tuple[str, str], ...] = stored.elements(
        "spans", lambda spans: tuple(map(tuple, spans)), encode=lambda spans: list(map(list, spans))
    )
    #: The time of the last check that the consumer of the stream keeps up.
    checked_at_ms: int = stored.number("checkedAt", int)

    def holds(self, first: str, last: str) -> bool:
        """Return whether the statistics of the days from `first` to `last` are complete."""
        return any(since <= first and last <= until for since, until in self.spans)


class StatisticsWriter:
    """A counter of events. `open_store` opens a store for each unit of work."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._bounds = KnownBounds()

    async def record(self, changes: Iterable[tuple[Item | None, Item | None]]) -> set[str]:
        """QUAKE-P1, QUAKE-P2: store which events count, from their old and new items. Return the days to recount."""
        puts: dict[Key, Item] = {}
        deletes: dict[Key, None] = {}
        greatest: dict[tuple[str, bool], float] = {}
        for old, new in changes:
            if (key := _counted_key(old)) is not None:
                puts.pop(key, None)
                deletes[key] = None
            if new is not None and (key := _counted_key(new)) is not None:
                group = _day(key), not is_natural(new.get("type"))
                greatest[group] = max(greatest.get(group, NO_MAGNITUDE), _magnitude(new))
                if (item := _counted(key, new)) is not None:
                    deletes.pop(key, None)
                    puts[key] = item
        store = self._open_store()
        for (day, other), magnitude in greatest.items():
            await self._bounds.raise_to(store, day, magnitude, other=other)
        await store.write_all(keys.COUNT_EVENTS, puts=[*puts.values()], deletes=[*deletes])
        return {*(day for day, _ in greatest), *map(_day, (*puts, *deletes))}

    async def recount(self, days: Iterable[str], *, verify: bool = False) -> None:
        """QUAKE-P3: recount the days. With `verify`, first remove counted events that are no longer stored."""
        slots = asyncio.Semaphore(CONCURRENT_RECOUNTS)

        async def recount(day: str) -> None:
            async with slots:
                if verify:
                    await self._remove_deleted(day)
                # Another process may recount the same day.
                await retry(partial(self._recount, day), itertools.repeat(0.0, RECOUNT_ATTEMPTS - 1), is_contended)

        # Not a TaskGroup: its ExceptionGroup would hide from the caller whether the store is unavailable.
        results = await asyncio.gather(*map(recount, sorted(days)), return_exceptions=True)
        for problem in results:
            if problem is not None:
                raise problem

    async def _recount(self, day: str) -> None:
        store = self._open_store()
        before = await store.get(keys.DAY_BEFORE_RECOUNT, keys.day(day))
        counted = [item async for item in store.query_all(keys.COUNTED_EVENTS, {"partition": keys.counted_on(day)})]
        await _raise_bounds(store, day, before or {}, counted)
        await store.transact(keys.RECOUNT, _replacing(day, (before or {}).get("recounts"), counted))

    async def _remove_deleted(self, day: str) -> None:
        store = self._open_store()
        pages = store.query_pages(keys.COUNTED_EVENTS, {"partition": keys.counted_on(day)})
        async for page in pages:
            ids = [str(item["sk"]) for item in page]
            events = await store.find_all(keys.IS_STORED, [earthquakes.event(event_id) for event_id in ids])
            deletes = [
                keys.counted(day, event_id) for event_id, event in zip(ids, events, strict=True) if event is None
            ]
            await store.write_all(keys.COUNT_EVENTS, deletes=deletes)


class StatisticsRebuild:
    """The count of events that are stored already, after which their days are complete (QUAKE-P4, QUAKE-P5)."""

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._now = now
        self._writer = StatisticsWriter(open_store)

    async def all_days(self, max_pages: float = math.inf) -> bool:
        """Rebuild all days by a Scan of the table.

        Return False, without a change to the complete days, if the table has more pages (of 1 MB).
        """
        days: set[str] = set()
        async for page, number in self._pages():
            if number > max_pages:
                return False
            days |= await self._writer.record((None, item) for item in page)
            days |= {split(item["pk"])[1] for item in page if str(item["pk"]).startswith("COUNTED#")}
        await self._writer.recount(days, verify=True)
        await self._cover(FIRST_DAY, LAST_DAY)
        return True

    async def _pages(self) -> AsyncIterator[tuple[list[Item], int]]:
        """Yield the table's pages with their numbers. Each page has its own store, and so its own deadline."""
        start: Item | None = None
        for number in itertools.count(1):
            page = await self._open_store().scan_page(keys.ALL_EVENTS, {}, start=start)
            yield page.items, number
            if (start := page.next_start) is None:
                return

    async def days(self, buckets: Sequence[str]) -> None:
        """Rebuild consecutive days (YYYYMMDD), oldest first, by a Query of each."""
        for day in buckets:
            store = self._open_store()
            values = {"partition": earthquakes.event_of_day.partition_of(day)}
            async for page in store.query_pages(keys.EVENTS_OF_DAY, values, attributes=FIELDS):
                await self._writer.record((None, item) for item in page)
            await self._writer.recount([day], verify=True)
        await self._cover(buckets[0], buckets[-1])

    async def forget_coverage(self) -> None:
        """Store that the statistics of no day are complete."""
        await self._save([])

    async def _cover(self, first: str, last: str) -> None:
        before = await coverage_of(self._open_store())
        await self._save(merged([*(before.spans if before else ()), (first, last)]))

    async def _save(self, spans: Sequence[tuple[str, str]]) -> None:
        await self._open_store().put(keys.SAVE_COVERAGE, Coverage(tuple(spans), epoch_ms(self._now())).item())


async def coverage_of(store: Store, *, consistent: bool = False) -> Coverage | None:
    """QUAKE-P5: return the days with complete statistics, or None if no statistics were ever built."""
    item = await store.get(consistently(keys.COVERAGE, consistent), keys.coverage())
    return None if item is None else Coverage.decoder(item)


async def record_check(store: Store, now: datetime) -> None:
    """QUAKE-P5: record that the consumer of the stream keeps up, if there are statistics."""
    await store.update(keys.RECORD_CHECK, keys.coverage(), now=epoch_ms(now))


def merged(spans: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the spans in order. Spans that overlap or touch become one."""
    result: list[tuple[str, str]] = []
    for first, last in sorted(spans):
        if result and first <= _next_day(result[-1][1]):
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result


def statistics_from(item: Mapping[str, Any]) -> DayStatistics:
    return DayStatistics(
        str(item["sk"]),
        bound(item),
        other_bound(item),
        tallies_from(item.get("byClass", {})),
        tallies_from(item.get("othersByClass", {})),
    )


def bound(item: Mapping[str, Any]) -> float | None:
    """Return the bound of a day's events, or None if the day has none."""
    greatest = item.get(GREATEST)
    return None if greatest is None else float(greatest)


def other_bound(item: Mapping[str, Any]) -> float | None:
    """Return the bound of a day's events other than earthquakes, or None if the day has none.

    The statistics of earlier releases lack this bound, but have the greatest magnitude of each class.
    """
    counted = max((tally.greatest for tally in tallies_from(item.get("othersByClass", {})).values()), default=-math.inf)
    greatest = max(float(item.get(GREATEST_OTHER, -math.inf)), counted)
    return None if greatest == -math.inf else greatest


def tallies_from(stored: Mapping[str, Any]) -> Tallies:
    return {name: Tally(int(count), float(greatest)) for name, (count, greatest) in stored.items()}


def magnitude_class(magnitude: float) -> int:
    """Return the greatest whole number that is not above the magnitude, from -2 to 9."""
    return min(max(math.floor(magnitude), LEAST_CLASS), GREATEST_CLASS)


def changed_items(changes: Iterable[Change]) -> list[tuple[Item | None, Item | None]]:
    """Return the old and the new item of each change of an event."""
    return [(change.old, change.new) for change in changes if change.keys.get("sk") == "EVENT"]


def _next_day(day: str) -> str:
    if day >= LAST_DAY:
        return day
    return f"{from_day_bucket(day) + timedelta(days=1):%Y%m%d}"


def _counted_key(item: Item | None) -> Key | None:
    """Return the key of the item that counts an event; None for an item that is not an event, or in no day's list."""
    if item is None or item.get("sk") != "EVENT" or not str(item["pk"]).startswith("EVENT#"):
        return None
    kind, _, day = str(item.get("gsi1pk", "")).partition("#")
    if kind != "DAY" or len(day) != 8 or not day.isdecimal() or "gsi1sk" not in item:
        return None
    return keys.counted(day, split(item["pk"])[1])


def _day(key: Key) -> str:
    return split(key.partition)[1]


def _magnitude(item: Item) -> float:
    return float(item["mag"]) if is_number(item.get("mag")) else NO_MAGNITUDE


def _counted(key: Key, item: Item) -> Item | None:
    """Return the item that counts an event; None for a damaged event, which is listed but not counted."""
    if not all(is_number(item.get(name)) for name in ("mag", "lat", "lon")):
        return None
    return {
        "pk": key.partition,
        "sk": key.sort,
        "mag": item["mag"],
        "region": region_of(float(item["lat"]), float(item["lon"])).value,
        "natural": is_natural(item.get("type")),
    }


async def _raise_bounds(store: Store, day: str, before: Item, counted: Sequence[Item]) -> None:
    """Raise bounds that are too low. They were raised before, but the table may have lost items since."""
    others = [item for item in counted if not item["natural"]]
    for pattern, bound, events in (
        (keys.RAISE_BOUND, GREATEST, counted),
        (keys.RAISE_OTHER_BOUND, GREATEST_OTHER, others),
    ):
        greatest = max((float(item["mag"]) for item in events), default=-math.inf)
        if greatest > before.get(bound, -math.inf):
            await store.update(pattern, keys.day(day), greatest=greatest)


def _replacing(day: str, recounts: int | None, counted: Sequence[Item]) -> list[Action]:
    """Return the transaction that replaces a day's statistics if they have been counted `recounts` times so far."""
    natural = [item for item in counted if item["natural"]]
    other = [item for item in counted if not item["natural"]]
    condition = "attribute_not_exists(recounts)" if recounts is None else "recounts = :recounts"
    values: dict[str, Any] = {"next": (recounts or 0) + 1} | ({} if recounts is None else {"recounts": recounts})
    values |= {"classes": _stored(_by_class(natural)), "others": _stored(_by_class(other))}
    update = Action(
        "Update",
        key=keys.day(day),
        update="SET byClass = :classes, othersByClass = :others, recounts = :next",
        condition=condition,
        values=values,
    )
    regions = keys.regions(day)
    by_region = _grouped((item["region"], float(item["mag"])) for item in natural)
    put = Action("Put", item={"pk": regions.partition, "sk": regions.sort, "byRegion": _stored(by_region)})
    return [update, put]


def _by_class(counted: Iterable[Item]) -> Tallies:
    return _grouped((str(magnitude_class(float(item["mag"]))), float(item["mag"])) for item in counted)


def _grouped(magnitudes: Iterable[tuple[str, float]]) -> Tallies:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, magnitude in magnitudes:
        groups[name].append(magnitude)
    return {name: Tally(len(group), max(group)) for name, group in groups.items()}


def _stored(tallies: Tallies) -> dict[str, list[float]]:
    return {name: [tally.count, tally.greatest] for name, tally in tallies.items()}
