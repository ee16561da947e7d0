"""The days of a window that may have events of a magnitude, from the daily statistics (QUAKE-P5, QUAKE-6)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import GREATEST, GREATEST_OTHER
from datastore.earthquakes.statistics import Coverage, bound, coverage_of, other_bound
from datastore.keyspace import earthquake_statistics as keys
from datastore.model.access_patterns import consistently
from datastore.model.timestamps import from_epoch_ms
from datastore.session.store import Store

# The consumer of the stream records once a minute that it keeps up.
MAX_CHECK_AGE = timedelta(minutes=3)


async def days_that_may_have(
    store: Store, now: datetime, days: Sequence[str], least: float | None, *, other: bool = False
) -> set[str]:
    """Return the days (YYYYMMDD) that may have an event of at least the magnitude `least`, or any event if it is None.

    With `other` only events other than earthquakes count. A day without complete statistics is always returned. Reads
    one item, and one partition for each year.
    """
    years = [_bounds(store, *span, other=other) for span in years_of(min(days), max(days))]
    coverage, bounds_by_year = await asyncio.gather(coverage_of(store), asyncio.gather(*years))
    if coverage is None or not is_current(coverage, now):
        return {*days}
    bounds = {day: found for year in bounds_by_year for day, found in year.items()}
    return {
        day
        for day in days
        if not coverage.holds(day, day) or (day in bounds and (least is None or bounds[day] >= least))
    }


def is_current(coverage: Coverage, now: datetime) -> bool:
    """Return whether the consumer of the stream keeps the statistics current."""
    return now - from_epoch_ms(coverage.checked_at_ms) <= MAX_CHECK_AGE


def years_of(first: str, last: str) -> list[tuple[str, str]]:
    """Return the span of days as spans of one year each, oldest first."""
    years = range(int(first[:4]), int(last[:4]) + 1)
    return [(max(first, f"{year:04}0101"), min(last, f"{year:04}1231")) for year in years]


async def read_days(
    store: Store,
    first: str,
    last: str,
    attributes: Sequence[str] | None = None,
    *,
    regions: bool = False,
    consistent: bool = False,
) -> AsyncIterator[Item]:
    """QUAKE-6: yield the statistics of the days of a span within a year, oldest first; by region with `regions`."""
    partition = keys.regions_of_year(first[:4]) if regions else keys.year(first[:4])
    values: Mapping[str, Any] = {"partition": partition, "first": first, "last": last}
    async for page in store.query_pages(consistently(keys.DAYS, consistent), values, attributes=attributes):
        for item in page:
            yield item


async def _bounds(store: Store, first: str, last: str, *, other: bool) -> dict[str, float]:
    bound_of, attributes = (other_bound, (GREATEST_OTHER, "othersByClass")) if other else (bound, (GREATEST,))
    items = read_days(store, first, last, ("pk", "sk", *attributes))
    return {item["sk"]: found async for item in items if (found := bound_of(item)) is not None}
