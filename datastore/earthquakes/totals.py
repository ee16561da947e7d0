"""Statistics of earthquakes over whole UTC days, in groups (QUAKE-6)."""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from enum import StrEnum

from msgspec import Struct

from datastore.dynamodb.codec import Item
from datastore.earthquakes.days_with_events import is_current, read_days, years_of
from datastore.earthquakes.regions import SeismicRegion
from datastore.earthquakes.statistics import Tally, coverage_of, tallies_from
from datastore.model.timestamps import from_day_bucket
from datastore.session.store import Store


class Grouping(StrEnum):
    """The criterion by which earthquakes are grouped."""

    DAY = "DAY"
    MAGNITUDE = "MAGNITUDE"
    REGION = "REGION"


class EarthquakeGroup(Struct, frozen=True):
    """The earthquakes of one day, magnitude class or region. The two other fields are None."""

    count: int
    greatest_magnitude: float
    day: date | None = None
    magnitude_class: int | None = None
    region: SeismicRegion | None = None


class EarthquakeStatistics(Struct, frozen=True):
    """The earthquakes of the days from `start` to `end`, without empty groups."""

    start: date
    end: date
    is_complete: bool
    count: int
    greatest_magnitude: float | None
    groups: tuple[EarthquakeGroup, ...]


async def statistics_between(
    store: Store, now: datetime, start: date, end: date, by: Grouping, *, consistent: bool = False
) -> EarthquakeStatistics:
    """QUAKE-6: return the statistics of the days from `start` to `end`, with consistent reads if `consistent`.

    Days are sorted newest first, magnitude classes greatest first, and regions by their number of earthquakes, largest
    first. Reads one item that lists the complete days, and sends a Query for each calendar year.
    """
    first, last = f"{start:%Y%m%d}", f"{end:%Y%m%d}"
    regions = by is Grouping.REGION
    years = [_read(store, *span, regions=regions, consistent=consistent) for span in years_of(first, last)]
    coverage, items_by_year = await asyncio.gather(coverage_of(store, consistent=consistent), asyncio.gather(*years))
    groups = _grouped(by, (item for items in items_by_year for item in items))
    return EarthquakeStatistics(
        start,
        end,
        coverage is not None and is_current(coverage, now) and coverage.holds(first, last),
        sum(group.count for group in groups),
        max((group.greatest_magnitude for group in groups), default=None),
        tuple(groups),
    )


async def _read(store: Store, first: str, last: str, *, regions: bool, consistent: bool) -> list[Item]:
    return [item async for item in read_days(store, first, last, regions=regions, consistent=consistent)]


def _grouped(by: Grouping, days: Iterable[Item]) -> list[EarthquakeGroup]:
    if by is Grouping.DAY:
        return [*_days(days)][::-1]
    if by is Grouping.MAGNITUDE:
        classes = _summed(days, "byClass").items()
        groups = [EarthquakeGroup(tally.count, tally.greatest, magnitude_class=int(name)) for name, tally in classes]
        return sorted(groups, key=lambda group: -(group.magnitude_class or 0))
    regions = _summed(days, "byRegion").items()
    return sorted(
        (EarthquakeGroup(tally.count, tally.greatest, region=_region(code)) for code, tally in regions),
        key=lambda group: (-group.count, group.region or ""),
    )


def _days(days: Iterable[Item]) -> Iterator[EarthquakeGroup]:
    for item in days:
        tallies = tallies_from(item.get("byClass", {})).values()
        if tallies:
            count, greatest = sum(tally.count for tally in tallies), max(tally.greatest for tally in tallies)
            yield EarthquakeGroup(count, greatest, day=from_day_bucket(item["sk"]))


def _summed(days: Iterable[Item], attribute: str) -> dict[str, Tally]:
    """Return the sums of the tallies of all days by group."""
    sums: dict[str, Tally] = {}
    for item in days:
        for name, tally in tallies_from(item.get(attribute, {})).items():
            before = sums.get(name)
            if before is not None:
                tally = Tally(before.count + tally.count, max(before.greatest, tally.greatest))
            sums[name] = tally
    return sums


def _region(code: str) -> SeismicRegion:
    try:
        return SeismicRegion(code)
    except ValueError:  # the code of a region of another release
        return SeismicRegion.ELSEWHERE
