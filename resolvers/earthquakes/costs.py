"""The cost model of `earthquakes`: estimates a query's read units from the daily statistics.

Each process keeps the statistics of each year as running sums. An estimate therefore takes a few microseconds,
whatever the length of the window.
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
from datastore.earthquakes.days_with_events import is_kept_up, read_days
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
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import DEFAULT_PAGE, LARGEST_PAGE, Arguments
from datastore.session.pagination import SPARSE_AFTER
from datastore.session.store import Store
from resolvers.earthquakes.earthquakes import (
    DEFAULT_WINDOW,
    EARLIEST,
    LARGEST_MAGNITUDE,
    LONGEST_WINDOW,
    given_moment,
    kind_of,
)

BLOCK = 4096
UNIT = 0.5  # read units of an eventually consistent read of one block
DAY_ITEM_BYTES = 150
# The largest estimate of a page. It is below the default of GATEWAY_MAX_COST, so the gateway refuses no single page.
# The gateway charges the measured cost afterwards.
MOST_UNITS = 1_900.0
MOST_YEARS = 64
FRESH = timedelta(minutes=1)
FRESH_PAST = timedelta(minutes=10)
LOAD_SECONDS = 3.0
CLASSES = range(LEAST_CLASS, GREATEST_CLASS + 2)
# The factor for days read ahead of need, for pages that take several days.
READ_AHEAD = 1.3
DAY = timedelta(days=1)
EVERYTHING = LEAST_CLASS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reach:
    """The arguments of a query that determine its cost.

    `first` and `last` are the fractions of the first and last day that are in the window. `least` is the minimum
    magnitude.
    """

    start: date
    end: date
    first: float
    last: float
    least: float | None
    size: int
    backward: bool
    kind: SeismicEventKind


class _Year:
    """The statistics of a year's days, in the order of the days.

    `read` holds the read units of each day, `units` their running sum, and `present` the running number of days that
    have statistics.
    """

    def __init__(self, year: int, days: Sequence[DayStatistics], read_at: datetime) -> None:
        self.read_at = read_at
        self.start = date(year, 1, 1)
        self._days = days
        self._kinds: dict[SeismicEventKind, _Events] = {}
        length = (date(year, 12, 31) - self.start).days + 1
        counts, has_item = [0] * length, [0] * length
        for one in days:
            at = self.at(_date(one.day))
            counts[at] = sum(tally.count for tallies in (one.natural, one.other) for tally in tallies.values())
            has_item[at] = 1
        self.read = array("d", map(day_units, counts))
        self.units = _sums(self.read)
        self.present = _sums(has_item)

    def at(self, day: date) -> int:
        return (day - self.start).days

    def of(self, kind: SeismicEventKind) -> "_Events":
        """Return the sums for queries of this kind. The first call computes them."""
        events = self._kinds.get(kind)
        if events is None:
            events = self._kinds[kind] = _Events(self, self._days, kind)
        return events


class _Events:
    """The events of one kind in a year, for each magnitude class as a minimum.

    `events` holds the number of matching events of each day. `matches` holds the running sums of these numbers, and
    `units` those of the read units of the days that the query does not skip.
    """

    def __init__(self, year: _Year, days: Sequence[DayStatistics], kind: SeismicEventKind) -> None:
        length = len(year.read)
        by_class = [[0] * length for _ in CLASSES]
        bounds: list[float] = [-math.inf] * length
        for one in days:
            at = year.at(_date(one.day))
            bound = one.other_bound if kind is SeismicEventKind.OTHER else one.bound
            bounds[at] = -math.inf if bound is None else max(bound, LEAST_CLASS)
            for tallies in _tallies(one, kind):
                for name, tally in tallies.items():
                    by_class[int(name) - LEAST_CLASS][at] += tally.count
        above = [[0] * length]
        for counts in reversed(by_class):
            above.append([more + count for more, count in zip(above[-1], counts, strict=True)])
        self.events = above[:0:-1]
        self.matches = [_sums(counts) for counts in self.events]
        self.units = [
            _sums(units if bound >= least else 0.0 for units, bound in zip(year.read, bounds, strict=True))
            for least in CLASSES
        ]


def _tallies(day: DayStatistics, kind: SeismicEventKind) -> tuple[Tallies, ...]:
    if kind is SeismicEventKind.ANY:
        return day.natural, day.other
    return (day.other,) if kind is SeismicEventKind.OTHER else (day.natural,)


class EarthquakeCosts:
    """A cost model for `earthquakes`. One per process; it holds the statistics of at most 64 years."""

    most = MOST_UNITS

    def __init__(self, open_store: Callable[[float], Store]) -> None:
        self._open_store = open_store
        self._years: dict[int, _Year] = {}
        self._coverage: tuple[Coverage | None, datetime] | None = None
        self._complete: list[tuple[date, date]] = []
        self._loading = asyncio.Lock()

    async def load(self, arguments: Arguments, now: datetime) -> None:
        """QUAKE-P5, QUAKE-6: read the statistics that `units` needs and that are not cached: at most twelve years."""
        reach = _reach(arguments, now)
        if reach is None or not self._lacks(reach, now):
            return
        async with self._loading:
            lacking = self._lacks(reach, now)
            try:
                await self._read(lacking, now)
            except (DomainError, RequestRefused) as problem:
                logger.warning(
                    "The statistics of earthquakes could not be read; costs are estimated without them: %s", problem
                )

    def _lacks(self, reach: Reach, now: datetime) -> list[int]:
        """Return the years to read: all years of the window if the coverage has expired, else those not cached."""
        years = range(reach.start.year, reach.end.year + 1)
        if self._coverage is None or not timedelta(0) <= now - self._coverage[1] <= FRESH:
            return list(years)
        return [year for year in years if not self._is_fresh(year, now)]

    def _is_fresh(self, year: int, now: datetime) -> bool:
        known = self._years.get(year)
        return known is not None and now - known.read_at <= (FRESH if year >= now.year else FRESH_PAST)

    async def _read(self, years: Sequence[int], now: datetime) -> None:
        store = self._open_store(LOAD_SECONDS)
        try:
            stale = [year for year in years if not self._is_fresh(year, now)]
            reads = asyncio.gather(*(_read_year(store, year) for year in stale))
            coverage, read = await asyncio.gather(coverage_of(store), reads)
            self._coverage = coverage, now
            self._complete = [(_date(first), _date(last)) for first, last in coverage.spans] if coverage else []
            if len(self._years) + len(stale) > MOST_YEARS:
                self._years.clear()
            for year, days in zip(stale, read, strict=True):
                self._years[year] = _Year(year, days, now)
                await asyncio.sleep(0)  # let other tasks run: computing a year takes milliseconds
        finally:
            store.close()

    def units(self, arguments: Arguments, now: datetime) -> float | None:
        """Return the read units of the page, or None if the statistics of its days are incomplete or not loaded.

        While the stream's consumer lags, the query skips no day. The statistics are then some minutes old, which is
        exact enough for an estimate.
        """
        reach = _reach(arguments, now)
        coverage = self._coverage[0] if self._coverage is not None else None
        if reach is None or coverage is None or not self._covers(reach):
            return None
        if any(year not in self._years for year in range(reach.start.year, reach.end.year + 1)):
            return None
        return min(_QuerySimulation(self._years, reach, skips=is_kept_up(coverage, now)).units(), MOST_UNITS)

    def _covers(self, reach: Reach) -> bool:
        return any(since <= reach.start and reach.end <= until for since, until in self._complete)


class _QuerySimulation:
    """A simulation of the query: it reads some days one by one, then the days whose bound reaches the magnitude.

    `skips` is False if the query reads the remaining days without skipping any.
    """

    def __init__(self, years: Mapping[int, _Year], reach: Reach, *, skips: bool) -> None:
        self._years = years
        self._reach = reach
        self._skips = skips
        least = EVERYTHING if reach.least is None else reach.least
        self._class = magnitude_class(least) - LEAST_CLASS
        self._part = min(max(least - LEAST_CLASS - self._class, 0.0), 1.0)
        self._wanted = reach.size + 1.0
        self._units = 0.0
        self._read = 0

    def units(self) -> float:
        reach = self._reach
        length = (reach.end - reach.start).days + 1
        alone = length if length <= 2 * SPARSE_AFTER else SPARSE_AFTER
        step = DAY if reach.backward else -DAY
        day = reach.start if reach.backward else reach.end
        for _ in range(alone):
            if self._wanted <= 0:
                return self._total()
            self._alone(day, step)
            day += step
        if length > alone and self._wanted > 0:
            self._skipping(day)
        return self._total()

    def _total(self) -> float:
        return self._units * (READ_AHEAD if self._read > SPARSE_AFTER else 1.0)

    def _alone(self, day: date, step: timedelta) -> None:
        """Add the cost of a day that the query reads in any case."""
        year = self._years[day.year]
        at = year.at(day)
        share = self._share(day)
        events = year.of(self._reach.kind).events
        matches = share * self._mixed(events[self._class][at], events[self._class + 1][at])
        self._take(matches, max(UNIT, share * year.read[at]))
        self._read += 1

    def _share(self, day: date) -> float:
        reach = self._reach
        share = reach.last if day == reach.end else 1.0
        return share - (1.0 - reach.first) if day == reach.start else share

    def _take(self, matches: float, units: float) -> None:
        """Add the cost of reading `matches` events, but of no more than the page still needs."""
        if matches > self._wanted:
            units = max(UNIT, units * self._wanted / matches)
        self._units += units
        self._wanted -= matches

    def _skipping(self, day: date) -> None:
        """Add the cost of the days from `day` on, of which the query skips some."""
        reach = self._reach
        span = range(day.year, reach.end.year + 1) if reach.backward else range(day.year, reach.start.year - 1, -1)
        self._units += UNIT  # the item that lists the complete days
        for number in span:
            year = self._years[number]
            low = year.at(max(day if reach.backward else reach.start, year.start))
            high = min(year.at(reach.end if reach.backward else day), len(year.read) - 1) + 1
            items = year.present[high] - year.present[low]
            self._units += max(UNIT, items * DAY_ITEM_BYTES / BLOCK * UNIT)
            self._range(year, low, high)
            if self._wanted <= 0:
                return

    def _range(self, year: _Year, low: int, high: int) -> None:
        """Add the cost of the days of a year from position `low` up to `high`."""
        events = year.of(self._reach.kind)
        matches, more = events.matches[self._class], events.matches[self._class + 1]
        units = events.units[self._class] if self._skips else year.units
        fewer = events.units[self._class + 1] if self._skips else year.units
        found = self._mixed(matches[high] - matches[low], more[high] - more[low])
        cost = self._mixed(units[high] - units[low], fewer[high] - fewer[low], least=UNIT)
        if not cost:
            return
        self._read += SPARSE_AFTER
        if found <= self._wanted:
            self._take(found, cost)
            return
        # Find the day on which the page is full in the running sums of the magnitude's class.
        share = found / (matches[high] - matches[low])
        wanted = self._wanted / share
        if self._reach.backward:
            at = bisect_left(matches, matches[low] + wanted, low, high)
            part = (units[at] - units[low]) / (units[high] - units[low])
        else:
            at = bisect_right(matches, matches[high] - wanted, low, high)
            part = (units[high] - units[max(at - 1, low)]) / (units[high] - units[low])
        self._units += max(UNIT, cost * min(part, 1.0))
        self._wanted = 0.0

    def _mixed(self, whole: float, next_class: float, least: float = 0.0) -> float:
        """Interpolate between the values of the magnitude's class and of the next one.

        The interpolation is logarithmic: each class has about a tenth of the events of the class below.
        """
        if not self._part or not whole:
            return whole
        return float(whole ** (1 - self._part) * max(next_class, whole / 10, least) ** self._part)


def day_units(events: int) -> float:
    """Return the read units of all events of a day."""
    return max(1, math.ceil(events * EARTHQUAKES.item_bytes / BLOCK)) * UNIT


def _reach(arguments: Arguments, now: datetime) -> Reach | None:
    """Return the reach of a query's arguments, or None if the field refuses them."""
    size, least = arguments.get("first"), arguments.get("minMagnitude")
    backward = size is None and arguments.get("last") is not None
    size = arguments.get("last") if backward else DEFAULT_PAGE if size is None else size
    kind = kind_of(arguments)
    if type(size) is not int or not 1 <= size <= LARGEST_PAGE or not _is_magnitude(least) or kind is None:
        return None
    try:
        end = given_moment(arguments.get("end")) or now
        start = given_moment(arguments.get("start")) or end - DEFAULT_WINDOW
    except (StrawberryInputCoercionError, OverflowError):
        return None
    if not EARLIEST <= start <= end or end - start > LONGEST_WINDOW:
        return None
    shares = 1.0 - _elapsed(start), _elapsed(end)
    return Reach(start.date(), end.date(), *shares, least, size, backward, kind)


def _is_magnitude(least: object) -> bool:
    if least is None:
        return True
    return isinstance(least, int | float) and not isinstance(least, bool) and abs(least) <= LARGEST_MAGNITUDE


def _elapsed(moment: datetime) -> float:
    """Return the fraction of its day that has passed."""
    return (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86_400


def _date(day: str) -> date:
    return date(int(day[:4]), int(day[4:6]), int(day[6:]))


async def _read_year(store: Store, year: int) -> list[DayStatistics]:
    return [statistics_from(item) async for item in read_days(store, f"{year:04}0101", f"{year:04}1231")]


def _sums(numbers: Iterable[float]) -> "array[float]":
    return array("d", accumulate(numbers, initial=0.0))
