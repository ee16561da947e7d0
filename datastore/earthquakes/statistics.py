"""Daily statistics of earthquakes: how many there were, by magnitude class and by region (QUAKE-P1 to QUAKE-P5).

An event is counted by an item of its own (`COUNTED#<day>`), written from the table's stream. The statistics of a day
are counted from those items, never added to: a change that is delivered twice counts once, and a process that ends
between two steps leaves nothing that the next delivery does not repair.
"""

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from msgspec import Struct

from datastore.change_streams.shards.stream_reader import Change
from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import GREATEST, GREATEST_OTHER, KnownBounds, is_natural
from datastore.earthquakes.regions import region_of
from datastore.keyspace import earthquake_statistics as keys
from datastore.keyspace import earthquakes
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.composite_keys import Key, split
from datastore.model.timestamps import epoch_ms
from datastore.session.store import Store
from datastore.session.writes import Action

LEAST_CLASS, GREATEST_CLASS = -2, 9
# Below all magnitudes: the bound of a day whose events have none that can be read.
NO_MAGNITUDE = -100
RECOUNTS_AT_ONCE = 8
RECOUNT_TRIES = 20
CONTENTION = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
FIRST_DAY, LAST_DAY = "10000101", "99991231"
FIELDS = (*EARTHQUAKES.key_attributes("TimeOrderedIndex"), "eventId", "mag", "lat", "lon", "type")


class Tally(Struct, frozen=True):
    """How many events there are of a kind, and the greatest magnitude among them."""

    count: int
    greatest: float


Tallies = Mapping[str, Tally]


class DayStatistics(Struct, frozen=True):
    """The events of a UTC day (YYYYMMDD). `natural` and `other` are by magnitude class: "4" is 4.0 up to 5.0.

    No event of the day has a magnitude above `bound`, and none other than an earthquake one above `other_bound`. A
    bound is None where the day has no such event.
    """

    day: str
    bound: float | None
    other_bound: float | None
    natural: Tallies
    other: Tallies


class Coverage(Struct, frozen=True):
    """The spans of days (first and last, YYYYMMDD) whose statistics are complete, and when that was last checked."""

    spans: tuple[tuple[str, str], ...]
    checked_at_ms: int

    def holds(self, day: str) -> bool:
        return any(first <= day <= last for first, last in self.spans)


class StatisticsWriter:
    """A counter of events. `open_store` opens a store for each unit of work."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._bounds = KnownBounds()

    async def note(self, changes: Iterable[tuple[Item | None, Item | None]]) -> set[str]:
        """QUAKE-P1, QUAKE-P2: note each event's old and new item; return the days to count again."""
        puts: dict[Key, Item] = {}
        deletes: dict[Key, None] = {}
        greatest: dict[tuple[str, bool], float] = {}
        for old, new in changes:
            if (place := _place(old)) is not None:
                puts.pop(place, None)
                deletes[place] = None
            if new is not None and (place := _place(new)) is not None:
                events = _day(place), not is_natural(new.get("type"))
                greatest[events] = max(greatest.get(events, NO_MAGNITUDE), _magnitude(new))
                if (item := _counted(place, new)) is not None:
                    deletes.pop(place, None)
                    puts[place] = item
        store = self._open_store()
        for (day, other), magnitude in greatest.items():
            await self._bounds.raise_to(store, day, magnitude, other=other)
        await store.write_all(keys.COUNT_EVENTS, puts=[*puts.values()], deletes=[*deletes])
        return {*(day for day, _ in greatest), *map(_day, (*puts, *deletes))}

    async def recount(self, days: Iterable[str], *, verify: bool = False) -> None:
        """QUAKE-P3: count the days again. `verify` forgets counted events that are no longer stored."""
        places = asyncio.Semaphore(RECOUNTS_AT_ONCE)

        async def recount(day: str) -> None:
            async with places:
                if verify:
                    await self._forget_deleted(day)
                await self._recount(day)

        # Not a TaskGroup: its ExceptionGroup would hide from the caller whether the store is away.
        ended = await asyncio.gather(*map(recount, sorted(days)), return_exceptions=True)
        for problem in ended:
            if problem is not None:
                raise problem

    async def _recount(self, day: str) -> None:
        for tries_left in reversed(range(RECOUNT_TRIES)):
            store = self._open_store()
            before = await store.get(keys.DAY_BEFORE_RECOUNT, keys.day(day))
            counted = [item async for item in store.query_all(keys.COUNTED_EVENTS, {"partition": keys.counted_on(day)})]
            await _raise_bounds(store, day, before or {}, counted)
            try:
                await store.transact(keys.RECOUNT, _replacing(day, (before or {}).get("recounts"), counted))
                return
            except TransactionCancelled as cancelled:
                # Another process counts the same day.
                if not tries_left or not CONTENTION.intersection(cancelled.reasons):
                    raise

    async def _forget_deleted(self, day: str) -> None:
        store = self._open_store()
        pages = store.query_pages(keys.COUNTED_EVENTS, {"partition": keys.counted_on(day)})
        async for page in pages:
            ids = [str(item["sk"]) for item in page]
            found = await store.find_all(keys.IS_STORED, [earthquakes.event(event_id) for event_id in ids])
            gone = [keys.counted(day, event_id) for event_id, one in zip(ids, found, strict=True) if one is None]
            await store.write_all(keys.COUNT_EVENTS, deletes=gone)


class StatisticsRebuild:
    """Counts events that are stored already, and notes which days are complete then (QUAKE-P4, QUAKE-P5)."""

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._now = now
        self._writer = StatisticsWriter(open_store)

    async def all_days(self, most_pages: float = math.inf) -> bool:
        """Rebuild all days by a Scan of the table; False, and nothing noted, if it has more pages (1 MB each)."""
        days: set[str] = set()
        async for page, number in self._pages():
            if number > most_pages:
                return False
            days |= await self._writer.note((None, item) for item in page)
            days |= {split(item["pk"])[1] for item in page if str(item["pk"]).startswith("COUNTED#")}
        await self._writer.recount(days, verify=True)
        await self._cover(FIRST_DAY, LAST_DAY)
        return True

    async def _pages(self) -> AsyncIterator[tuple[list[Item], int]]:
        """The table's pages with their numbers. Each has a store of its own, whose deadline is for one page."""
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
            values = {"partition": earthquakes.day(day)}
            async for page in store.query_pages(keys.EVENTS_OF_DAY, values, attributes=FIELDS):
                await self._writer.note((None, item) for item in page)
            await self._writer.recount([day], verify=True)
        await self._cover(buckets[0], buckets[-1])

    async def forget_coverage(self) -> None:
        """Note that the statistics of no day are known to be complete."""
        await self._save([])

    async def _cover(self, first: str, last: str) -> None:
        before = await coverage_of(self._open_store())
        await self._save(merged([*(before.spans if before else ()), (first, last)]))

    async def _save(self, spans: Sequence[tuple[str, str]]) -> None:
        key = keys.coverage()
        item = {"pk": key.partition, "sk": key.sort, "spans": [list(span) for span in spans]}
        await self._open_store().put(keys.SAVE_COVERAGE, item | {"checkedAt": epoch_ms(self._now())})


async def coverage_of(store: Store) -> Coverage | None:
    """QUAKE-P5: the days that are complete; None if no statistics were ever built."""
    item = await store.get(keys.COVERAGE, keys.coverage())
    if item is None:
        return None
    return Coverage(tuple((first, last) for first, last in item["spans"]), int(item["checkedAt"]))


async def keep_up(store: Store, now: datetime) -> None:
    """QUAKE-P5: note that the consumer of the stream keeps up, if there are statistics."""
    await store.update(keys.RECORD_CHECK, keys.coverage(), now=epoch_ms(now))


def merged(spans: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the spans in order, those that overlap or touch as one."""
    found: list[tuple[str, str]] = []
    for first, last in sorted(spans):
        if found and first <= _next_day(found[-1][1]):
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def statistics_from(item: Mapping[str, Any]) -> DayStatistics:
    bound = item.get(GREATEST)
    return DayStatistics(
        str(item["sk"]),
        None if bound is None else float(bound),
        other_bound(item),
        tallies_from(item.get("byClass", {})),
        tallies_from(item.get("othersByClass", {})),
    )


def other_bound(item: Mapping[str, Any]) -> float | None:
    """Return the bound of a day's events other than earthquakes; None if the day has none.

    Statistics that were counted before this bound was stored have the greatest magnitude of each class.
    """
    counted = max((tally.greatest for tally in tallies_from(item.get("othersByClass", {})).values()), default=-math.inf)
    bound = max(float(item.get(GREATEST_OTHER, -math.inf)), counted)
    return None if bound == -math.inf else bound


def tallies_from(kept: Mapping[str, Any]) -> Tallies:
    return {name: Tally(int(count), float(greatest)) for name, (count, greatest) in kept.items()}


def magnitude_class(magnitude: float) -> int:
    """Return the whole number that the magnitude begins with, from -2 to 9."""
    return min(max(math.floor(magnitude), LEAST_CLASS), GREATEST_CLASS)


def changed_items(changes: Iterable[Change]) -> list[tuple[Item | None, Item | None]]:
    """Return the old and the new item of each change of an event."""
    return [(change.old, change.new) for change in changes if change.keys.get("sk") == "EVENT"]


def _next_day(day: str) -> str:
    if day >= LAST_DAY:
        return day
    ordinal = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).toordinal()
    return f"{datetime.fromordinal(ordinal + 1):%Y%m%d}"


def _place(item: Item | None) -> Key | None:
    """Return where an item is counted as an event; None if it is not an event, or in no day's list."""
    if item is None or item.get("sk") != "EVENT" or not str(item["pk"]).startswith("EVENT#"):
        return None
    kind, _, day = str(item.get("gsi1pk", "")).partition("#")
    if kind != "DAY" or len(day) != 8 or not day.isdecimal() or "gsi1sk" not in item:
        return None
    return keys.counted(day, split(item["pk"])[1])


def _day(place: Key) -> str:
    return split(place.partition)[1]


def _magnitude(item: Item) -> float:
    return float(item["mag"]) if _is_number(item.get("mag")) else NO_MAGNITUDE


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _counted(place: Key, item: Item) -> Item | None:
    """Return the item that counts an event; None for a damaged event, which is listed but not counted."""
    if not all(_is_number(item.get(name)) for name in ("mag", "lat", "lon")):
        return None
    return {
        "pk": place.partition,
        "sk": place.sort,
        "mag": item["mag"],
        "region": region_of(float(item["lat"]), float(item["lon"])).value,
        "natural": is_natural(item.get("type")),
    }


async def _raise_bounds(store: Store, day: str, before: Item, counted: Sequence[Item]) -> None:
    """Raise bounds that are too low although they were raised once: the table may have lost its items since."""
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
    values |= {"classes": _kept(_by_class(natural)), "others": _kept(_by_class(other))}
    update = Action(
        "Update",
        key=keys.day(day),
        update="SET byClass = :classes, othersByClass = :others, recounts = :next",
        condition=condition,
        values=values,
    )
    regions = keys.regions(day)
    by_region = _grouped((item["region"], float(item["mag"])) for item in natural)
    put = Action("Put", item={"pk": regions.partition, "sk": regions.sort, "byRegion": _kept(by_region)})
    return [update, put]


def _by_class(counted: Iterable[Item]) -> Tallies:
    return _grouped((str(magnitude_class(float(item["mag"]))), float(item["mag"])) for item in counted)


def _grouped(magnitudes: Iterable[tuple[str, float]]) -> Tallies:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, magnitude in magnitudes:
        groups[name].append(magnitude)
    return {name: Tally(len(group), max(group)) for name, group in groups.items()}


def _kept(tallies: Tallies) -> dict[str, list[float]]:
    return {name: [tally.count, tally.greatest] for name, tally in tallies.items()}
