"""Statistics of earthquakes: QUAKE-6."""

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

import strawberry

from datastore.earthquakes.regions import SeismicRegion
from datastore.earthquakes.statistics import GREATEST_CLASS, LEAST_CLASS
from datastore.earthquakes.totals import EarthquakeStatistics, Grouping
from resolvers.earthquakes.query_window import LONGEST_WINDOW, days_of_window, window_of_days
from resolvers.earthquakes.request_logs import LoggedQuery, logged
from resolvers.shared.arguments import Consistent, argument
from resolvers.shared.context import Info

ROUTE = "graphql/earthquakeStatistics"
# The days of statistics in one block of 4 KB.
DAYS_OF_BLOCK = 27

FromDay = Annotated[
    date | None,
    strawberry.argument(
        name="from",
        description=f"The first day, at most {LONGEST_WINDOW.days:,} days before `to`; by default the day 30 days "
        "before `to`.",
    ),
]
ToDay = Annotated[date | None, argument("The last day; by default today.")]
By = Annotated[Grouping, argument("How the earthquakes are grouped.")]


async def earthquake_statistics(
    info: Info, from_: FromDay = None, to: ToDay = None, by: By = Grouping.DAY, consistent: Consistent = False
) -> EarthquakeStatistics:
    context = info.context
    with logged(context, LoggedQuery(route=ROUTE)) as query:
        query.window = window = window_of_days(context.now, from_, to)
        return await context.earthquakes.statistics(window.start, window.end, by, consistent=consistent)


def groups_of(arguments: Mapping[str, Any], now: datetime) -> float:
    """Return the factor for the values of the response, from the unvalidated arguments.

    For groups by day the factor is half the number of days, since about half of the values belong to no group.
    """
    by = arguments.get("by")
    if by == Grouping.MAGNITUDE.value:
        return float(GREATEST_CLASS - LEAST_CLASS + 1)
    return float(len(SeismicRegion)) if by == Grouping.REGION.value else days_of_window(arguments, now) / 2


def partitions_of(arguments: Mapping[str, Any], now: datetime) -> float:
    """Return the number of 4 KB blocks read, from the unvalidated arguments: of each year, and of the coverage item."""
    days = days_of_window(arguments, now)
    return 2.0 + days // 366 + math.ceil(days / DAYS_OF_BLOCK)
