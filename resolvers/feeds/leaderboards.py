"""Leaderboards: FEED-010."""

from datetime import datetime
from functools import partial
from typing import Annotated

from datastore.feeds.leaderboards import AuthorRank, TagPeriod, TagTrend, month_of
from datastore.keyspace.feeds import leaderboards as keys
from datastore.model.access_patterns import consistently
from resolvers.shared import validation as validate
from resolvers.shared.arguments import Consistent, argument
from resolvers.shared.context import Info

DEFAULT_FIRST, LARGEST_FIRST = 10, 100

InMonth = Annotated[datetime | None, argument("A time within the calendar month, in UTC; by default the present time.")]
First = Annotated[int, argument("The number of ranks, 1 to 100.")]
Period = Annotated[TagPeriod, argument("The calendar period: an hour or a day in UTC.")]
At = Annotated[datetime | None, argument("A time within the hour or day; by default the present time.")]

checked_first = partial(validate.number, "first", minimum=1, maximum=LARGEST_FIRST)


async def top_authors(
    info: Info, at: InMonth = None, first: First = DEFAULT_FIRST, consistent: Consistent = False
) -> list[AuthorRank]:
    moment = info.context.now if at is None else validate.timestamp("at", at)
    pattern = consistently(keys.TOP_AUTHORS, consistent)
    return await info.context.leaderboards.top_authors(month_of(moment), checked_first(first), pattern)


async def trending_tags(
    info: Info,
    period: Period = TagPeriod.DAY,
    at: At = None,
    first: First = DEFAULT_FIRST,
    consistent: Consistent = False,
) -> list[TagTrend]:
    moment = info.context.now if at is None else validate.timestamp("at", at)
    pattern = consistently(keys.TRENDING_TAGS, consistent)
    return await info.context.leaderboards.trending_tags(period, moment, checked_first(first), pattern)
