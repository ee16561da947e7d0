"""Statistics of earthquakes over whole UTC days, in groups (QUAKE-6)."""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from enum import StrEnum

from msgspec import Struct

from datastore.dynamodb.codec import Item
from datastore.earthquakes.days_with_events import is_kept_up, read_days, years_of
from datastore.earthquakes.regions import SeismicRegion
from datastore.earthquakes.statistics import Coverage, Tally, coverage_of, tallies_from
from datastore.session.store import Store


class Grouping(StrEnum):
    """The criterion by which earthquakes are grouped."""

    DAY = "DAY"
    MAGNITUDE = "MAGNITUDE"
    REGION = "REGION"


class EarthquakeGroup(Struct, frozen=True):
    """The earthquakes of one day, magnitude class or region; the others of the three are None."""

    count: int
    greatest_magnitude: float
    day: date | None = None
    magnitude_class: int | None = None
    region: SeismicRegion | None = None


class EarthquakeStatistics(Struct, frozen=True):
    """The earthquakes of the days from `start` to `end`. Groups without any are left out."""

    start: date
    end: date
    is_complete: bool
    count: int
    greatest_magnitude: float | None
    groups: tuple[EarthquakeGroup, ...]


async def statistics_between(store: Store, now: datetime, start: date, end: date, by: Grouping) -> EarthquakeStatistics:
    """QUAKE-6: days newest first, magnitude classes greatest first, regions with the most earthquakes first.

    A Query for each calendar year, and one item that lists the complete days.
    """
    first, last = f"{start:%Y%m%d}", f"{end:%Y%m%d}"
    years = [_read(store, *span, regions=by is Grouping.REGION) for span in years_of(first, last)]
    coverage, read = await asyncio.gather(coverage_of(store), asyncio.gather(*years))
    groups = _grouped(by, (item for year in read for item in year))
    return EarthquakeStatistics(
        start,
        end,
        _is_complete(coverage, now, first, last),
        sum(group.count for group in groups),
        max((group.greatest_magnitude for group in groups), default=None),
        tuple(groups),
    )


async def _read(store: Store, first: str, last: str, *, regions: bool) -> list[Item]:
    return [item async for item in read_days(store, first, last, regions=regions)]


def _is_complete(coverage: Coverage | None, now: datetime, first: str, last: str) -> bool:
    if coverage is None or not is_kept_up(coverage, now):
        return False
    return any(since <= first and last <= until for since, until in coverage.spans)


def _grouped(by: Grouping, days: Iterable[Item]) -> list[EarthquakeGroup]:
    if by is Grouping.DAY:
        return [*_days(days)][::-1]
    if by is Grouping.MAGNITUDE:
        classes = _added(days, "byClass").items()
        groups = [EarthquakeGroup(all_.count, all_.greatest, magnitude_class=int(name)) for name, all_ in classes]
        return sorted(groups, key=lambda group: -(group.magnitude_class or 0))
    regions = _added(days, "byRegion").items()
    return sorted(
        (EarthquakeGroup(all_.count, all_.greatest, region=_region(code)) for code, all_ in regions),
        key=lambda group: (-group.count, group.region or ""),
    )


def _days(days: Iterable[Item]) -> Iterator[EarthquakeGroup]:
    for item in days:
        tallies = tallies_from(item.get("byClass", {})).values()
        if tallies:
            name = str(item["sk"])
            day = date(int(name[:4]), int(name[4:6]), int(name[6:]))
            yield EarthquakeGroup(sum(one.count for one in tallies), max(one.greatest for one in tallies), day=day)


def _added(days: Iterable[Item], attribute: str) -> dict[str, Tally]:
    added: dict[str, Tally] = {}
    for item in days:
        for name, tally in tallies_from(item.get(attribute, {})).items():
            before = added.get(name)
            if before is not None:
                tally = Tally(before.count + tally.count, max(before.greatest, tally.greatest))
            added[name] = tally
    return added


def _region(code: str) -> SeismicRegion:
    try:
        return SeismicRegion(code)
    except ValueError:  # of another release
        return SeismicRegion.ELSEWHERE
