"""The cost model of `earthquakes`: estimates a query's read units from the daily statistics.

Each process keeps the statistics of each year as running sums: an estimate takes 12 to 40 µs for any window.
"""

import asyncio
import logging
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import accumulate

from strawberry.exceptions import StrawberryInputCoercionError

from datastore.dynamodb.client import RequestRefused
from datastore.earthquakes.days_with_events import is_current, read_days
from datastore.earthquakes.events import SeismicEventKind
from datastore.earthquakes.statistics import (
    GREATEST_CLASS,
    LEAST_CLASS,
    Coverage,
    DayStatistics,
    Tallies,
    coverage_of,
    magnitude_class,
    statistics_from,
)
from datastore.errors import DomainError
from datastore.items.sizes import typical_bytes
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Arguments
from datastore.model.timestamps import from_day_bucket
from datastore.session.pagination import SPARSE_AFTER, SortOrder
from datastore.session.store import Store
from resolvers.earthquakes.query_window import (
    DEFAULT_WINDOW,
    EARLIEST,
    LARGEST_MAGNITUDE,
    LONGEST_WINDOW,
    SMALLEST_MAGNITUDE,
    kind_of,
    parse_time,
)

BLOCK_BYTES = 4096
# The read units of an eventually consistent read of one block.
BLOCK_UNITS = 0.5
# The size of the statistics of a day.
DAY_ITEM_BYTES = 150
# The largest estimate of a page. It is below the default of GATEWAY_MAX_COST, so the gateway refuses no single page.
# The gateway charges the measured cost afterwards.
MAX_UNITS = 1_900.0
# The number of years in the cache.
MAX_YEARS = 64
# How long the statistics of the current year, and the coverage, are used before they are read again.
CURRENT_YEAR_TTL = timedelta(minutes=1)
PAST_YEAR_TTL = timedelta(minutes=10)
LOAD_SECONDS = 3.0
# One class more than there are, so that every class has a next one.
CLASSES = range(LEAST_CLASS, GREATEST_CLASS + 2)
# The factor for days that are read ahead of need, for pages of several days.
READ_AHEAD = 1.3
DAY = timedelta(days=1)
# The minimum of a query without `minMagnitude`.
NO_MINIMUM = LEAST_CLASS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryScope:
    """The arguments of a query that determine its cost."""

    start: date
    end: date
    #: The fraction of the first day that is in the window.
    first_day: float
    #: The fraction of the last day that is in the window.
    last_day: float
    min_magnitude: float | None
    #: The size of the page.
    size: int
    #: Whether the page is read from the oldest event on.
    upward: bool
    kind: SeismicEventKind

    @property
    def years(self) -> range:
        """The calendar years of the window."""
        return range(self.start.year, self.end.year + 1)


class _Year:
    """The statistics of a year's days, in the order of the days."""

    #: The read units of each day.
    day_units: "array[float]"
    #: The running sums of `day_units`.
    running_units: "array[float]"
    #: The running number of days that have statistics.
    days_with_item: "array[float]"

    def __init__(self, year: int, days: Sequence[DayStatistics], read_at: datetime) -> None:
        self.read_at = read_at
        self.start = date(year, 1, 1)
        self._days = days
        self._kinds: dict[SeismicEventKind, _Events] = {}
        length = (date(year, 12, 31) - self.start).days + 1
        counts, has_item = [0] * length, [0] * length
        for day in days:
            index = self.index(from_day_bucket(day.day))
            counts[index] = sum(tally.count for tallies in (day.natural, day.other) for tally in tallies.values())
            has_item[index] = 1
        self.day_units = array("d", map(units_of_day, counts))
        self.running_units = _sums(self.day_units)
        self.days_with_item = _sums(has_item)

    def index(self, day: date) -> int:
        return (day - self.start).days

    def events_of(self, kind: SeismicEventKind) -> "_Events":
        """Return the sums for queries of this kind. The first call computes them."""
        events = self._kinds.get(kind)
        if events is None:
            events = self._kinds[kind] = _Events(self, self._days, kind)
        return events


class _Events:
    """The events of one kind in a year, for queries with each magnitude class as their minimum."""

    #: By class, the number of matching events of each day.
    events: list[list[int]]
    #: By class, the running sums of `events`.
    matches: "list[array[float]]"
    #: By class, the running sums of the read units of the days that the query does not skip.
    running_units: "list[array[float]]"

    def __init__(self, year: _Year, days: Sequence[DayStatistics], kind: SeismicEventKind) -> None:
        length = len(year.day_units)
        by_class = [[0] * length for _ in CLASSES]
        bounds: list[float] = [-math.inf] * length
        for day in days:
            index = year.index(from_day_bucket(day.day))
            bound = day.other_bound if kind is SeismicEventKind.OTHER else day.bound
            bounds[index] = -math.inf if bound is None else max(bound, LEAST_CLASS)
            for tallies in _tallies(day, kind):
                for name, tally in tallies.items():
                    by_class[int(name) - LEAST_CLASS][index] += tally.count
        # By class, from the greatest down: the events of the class and of all above. The first row is of no class.
        above = [[0] * length]
        for counts in reversed(by_class):
            above.append([greater + count for greater, count in zip(above[-1], counts, strict=True)])
        self.events = above[:0:-1]
        self.matches = [_sums(counts) for counts in self.events]
        self.running_units = [
            _sums(units if bound >= minimum else 0.0 for units, bound in zip(year.day_units, bounds, strict=True))
            for minimum in CLASSES
        ]


def _tallies(day: DayStatistics, kind: SeismicEventKind) -> tuple[Tallies, ...]:
    if kind is SeismicEventKind.ANY:
        return day.natural, day.other
    return (day.other,) if kind is SeismicEventKind.OTHER else (day.natural,)


class EarthquakeCosts:
    """The cost model of `earthquakes`. The process has one, with the statistics of at most `MAX_YEARS` years."""

    max_units = MAX_UNITS

    def __init__(self, open_store: Callable[[float], Store]) -> None:
        self._open_store = open_store
        self._years: dict[int, _Year] = {}
        self._coverage: tuple[Coverage | None, datetime] | None = None
        self._loading = asyncio.Lock()

    async def load(self, arguments: Arguments, now: datetime) -> None:
        """QUAKE-P5, QUAKE-6: read the statistics that `units` needs and that are not cached: at most twelve years.

        A failure is logged only. `units` then uses the cached statistics, or returns None without them.
        """
        scope = _scope(arguments, now)
        if scope is None or not self._needs_load(scope, now):
            return
        async with self._loading:
            if not self._needs_load(scope, now):  # another query has loaded them
                return
            try:
                await self._read(scope, now)
            except (DomainError, RequestRefused) as problem:
                logger.warning(
                    "The statistics of earthquakes could not be read; the next query tries again: %s", problem
                )

    def _needs_load(self, scope: QueryScope, now: datetime) -> bool:
        if self._coverage is None or not timedelta(0) <= now - self._coverage[1] <= CURRENT_YEAR_TTL:
            return True
        return bool(self._stale_years(scope, now))

    def _stale_years(self, scope: QueryScope, now: datetime) -> list[int]:
        """Return the years of the window that are not cached or whose statistics have expired."""
        return [year for year in scope.years if not self._is_fresh(year, now)]

    def _is_fresh(self, year: int, now: datetime) -> bool:
        cached = self._years.get(year)
        return cached is not None and now - cached.read_at <= (CURRENT_YEAR_TTL if year >= now.year else PAST_YEAR_TTL)

    async def _read(self, scope: QueryScope, now: datetime) -> None:
        """Read the coverage, and the stale years of the window. If the cache is full, drop the years outside of it."""
        store = self._open_store(LOAD_SECONDS)
        try:
            stale = self._stale_years(scope, now)
            reads = asyncio.gather(*(_read_year(store, year) for year in stale))
            coverage, read = await asyncio.gather(coverage_of(store), reads)
            self._coverage = coverage, now
            if len(self._years.keys() | set(stale)) > MAX_YEARS:
                self._years = {year: cached for year, cached in self._years.items() if year in scope.years}
            for year, days in zip(stale, read, strict=True):
                self._years[year] = _Year(year, days, now)
                await asyncio.sleep(0)  # let other tasks run: computing a year takes milliseconds
        finally:
            store.close()

    def units(self, arguments: Arguments, now: datetime) -> float | None:
        """Return the read units of the page, or None if the statistics of its days are incomplete or not loaded.

        While the consumer of the stream lags, the query skips no day. The statistics are then some minutes old, which
        is exact enough for an estimate.
        """
        scope = _scope(arguments, now)
        coverage = self._coverage[0] if self._coverage is not None else None
        if scope is None or coverage is None or not coverage.holds(f"{scope.start:%Y%m%d}", f"{scope.end:%Y%m%d}"):
            return None
        if any(year not in self._years for year in scope.years):
            return None
        return min(_QuerySimulation(self._years, scope, skips=is_current(coverage, now)).estimate(), MAX_UNITS)


class _QuerySimulation:
    """A simulation of the query: it reads some days one by one, then the days whose bound reaches the magnitude.

    `skips` is False if the query reads the remaining days without skipping any.
    """

    def __init__(self, years: Mapping[int, _Year], scope: QueryScope, *, skips: bool) -> None:
        self._years = years
        self._scope = scope
        self._skips = skips
        minimum = NO_MINIMUM if scope.min_magnitude is None else scope.min_magnitude
        self._class_index = magnitude_class(minimum) - LEAST_CLASS
        self._class_fraction = min(max(minimum - LEAST_CLASS - self._class_index, 0.0), 1.0)
        self._remaining = scope.size + 1.0
        self._spent = 0.0
        self._days_read = 0

    def estimate(self) -> float:
        """Return the read units of the page."""
        scope = self._scope
        length = (scope.end - scope.start).days + 1
        single_days = length if length <= 2 * SPARSE_AFTER else SPARSE_AFTER
        step = DAY if scope.upward else -DAY
        day = scope.start if scope.upward else scope.end
        for _ in range(single_days):
            if self._remaining <= 0:
                return self._total()
            self._add_day(day, step)
            day += step
        if length > single_days and self._remaining > 0:
            self._add_remaining_days(day)
        return self._total()

    def _total(self) -> float:
        return self._spent * (READ_AHEAD if self._days_read > SPARSE_AFTER else 1.0)

    def _add_day(self, day: date, step: timedelta) -> None:
        """Add the cost of a day that the query reads in any case."""
        year = self._years[day.year]
        index = year.index(day)
        fraction = self._fraction_in_window(day)
        events = year.events_of(self._scope.kind).events
        matches = fraction * self._interpolated(events[self._class_index][index], events[self._class_index + 1][index])
        self._add(matches, max(BLOCK_UNITS, fraction * year.day_units[index]))
        self._days_read += 1

    def _fraction_in_window(self, day: date) -> float:
        scope = self._scope
        fraction = scope.last_day if day == scope.end else 1.0
        return fraction - (1.0 - scope.first_day) if day == scope.start else fraction

    def _add(self, matches: float, units: float) -> None:
        """Add the cost of reading `matches` events, or of as many as the page still needs."""
        if matches > self._remaining:
            units = max(BLOCK_UNITS, units * self._remaining / matches)
        self._spent += units
        self._remaining -= matches

    def _add_remaining_days(self, day: date) -> None:
        """Add the cost of the days from `day` on. The query skips those whose bound is below the magnitude."""
        scope = self._scope
        span = range(day.year, scope.end.year + 1) if scope.upward else range(day.year, scope.start.year - 1, -1)
        self._spent += BLOCK_UNITS  # the item that lists the complete days
        for number in span:
            year = self._years[number]
            low = year.index(max(day if scope.upward else scope.start, year.start))
            high = min(year.index(scope.end if scope.upward else day), len(year.day_units) - 1) + 1
            items = year.days_with_item[high] - year.days_with_item[low]
            self._spent += max(BLOCK_UNITS, items * DAY_ITEM_BYTES / BLOCK_BYTES * BLOCK_UNITS)
            self._add_days_of_year(year, low, high)
            if self._remaining <= 0:
                return

    def _add_days_of_year(self, year: _Year, low: int, high: int) -> None:
        """Add the cost of the days of a year from position `low` up to `high`."""
        events = year.events_of(self._scope.kind)
        matches, next_matches = events.matches[self._class_index], events.matches[self._class_index + 1]
        units = events.running_units[self._class_index] if self._skips else year.running_units
        next_units = events.running_units[self._class_index + 1] if self._skips else year.running_units
        found = self._interpolated(matches[high] - matches[low], next_matches[high] - next_matches[low])
        cost = self._interpolated(units[high] - units[low], next_units[high] - next_units[low], minimum=BLOCK_UNITS)
        if not cost:
            return
        self._days_read += SPARSE_AFTER  # for `_total`: the number of days is not known, but the query reads ahead
        if found <= self._remaining:
            self._add(found, cost)
            return
        # Find the day on which the page is full in the running sums of the magnitude's class.
        share = found / (matches[high] - matches[low])
        needed = self._remaining / share
        if self._scope.upward:
            index = bisect_left(matches, matches[low] + needed, low, high)
            part = (units[index] - units[low]) / (units[high] - units[low])
        else:
            index = bisect_right(matches, matches[high] - needed, low, high)
            part = (units[high] - units[max(index - 1, low)]) / (units[high] - units[low])
        self._spent += max(BLOCK_UNITS, cost * min(part, 1.0))
        self._remaining = 0.0

    def _interpolated(self, whole: float, next_class: float, minimum: float = 0.0) -> float:
        """Interpolate between the values of the magnitude's class and of the next one.

        The interpolation is logarithmic: each class has about a tenth of the events of the class below. The value of
        the next class therefore counts as at least a tenth of `whole`, and as at least `minimum`.
        """
        if not self._class_fraction or not whole:
            return whole
        return float(whole ** (1 - self._class_fraction) * max(next_class, whole / 10, minimum) ** self._class_fraction)


def units_of_day(events: int) -> float:
    """Return the read units of all events of a day."""
    return max(1, math.ceil(events * typical_bytes(EARTHQUAKES) / BLOCK_BYTES)) * BLOCK_UNITS


def _scope(arguments: Arguments, now: datetime) -> QueryScope | None:
    """Return the scope of a query's arguments, or None if the field rejects them."""
    size, minimum = arguments.get("first"), arguments.get("minMagnitude")
    backward = size is None and arguments.get("last") is not None
    size = arguments.get("last") if backward else DEFAULT_PAGE_SIZE if size is None else size
    kind = kind_of(arguments)
    if type(size) is not int or not 1 <= size <= MAX_PAGE_SIZE or not _is_magnitude(minimum) or kind is None:
        return None
    try:
        end = parse_time(arguments.get("to")) or now
        start = parse_time(arguments.get("from")) or end - DEFAULT_WINDOW
    except (StrawberryInputCoercionError, OverflowError):
        return None
    if not EARLIEST <= start <= end or end - start > LONGEST_WINDOW:
        return None
    fractions = 1.0 - _elapsed(start), _elapsed(end)
    upward = backward is not (arguments.get("order") == SortOrder.ASCENDING.name)
    return QueryScope(start.date(), end.date(), *fractions, minimum, size, upward, kind)


def _is_magnitude(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return SMALLEST_MAGNITUDE <= value <= LARGEST_MAGNITUDE


def _elapsed(moment: datetime) -> float:
    """Return the fraction of its day that has passed."""
    return (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86_400


async def _read_year(store: Store, year: int) -> list[DayStatistics]:
    return [statistics_from(item) async for item in read_days(store, f"{year:04}0101", f"{year:04}1231")]


def _sums(numbers: Iterable[float]) -> "array[float]":
    return array("d", accumulate(numbers, initial=0.0))
