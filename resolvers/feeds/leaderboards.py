"""Leaderboards: FEED-010."""

import re
from datetime import datetime
from functools import partial
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.feeds.engagement_counters import month_of
from datastore.feeds.leaderboards import AuthorRank, TagTrend, TagWindow
from datastore.feeds.users import User
from resolvers.shared import validation as validate
from resolvers.shared.context import Info

MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
DEFAULT_TOP, LARGEST_TOP = 10, 100

Month = Annotated[
    str | None,
    strawberry.argument(description="A UTC month, such as `2026-06`; by default the present month."),
]
Top = Annotated[int, strawberry.argument(description="The number of ranks, 1 to 100.")]
Window = Annotated[TagWindow, strawberry.argument(description="The length of the time window.")]
At = Annotated[
    datetime | None, strawberry.argument(description="A time within the hour or day; by default the present time.")
]

checked_top = partial(validate.number, "top", minimum=1, maximum=LARGEST_TOP)


async def top_authors(info: Info, month: Month = None, top: Top = DEFAULT_TOP) -> list[AuthorRank]:
    if month is None:
        month = month_of(info.context.now)
    elif not MONTH.fullmatch(month):
        raise BadUserInput("`month` must be a year and a month, such as 2026-06.", field="month")
    return await info.context.leaderboards.top_authors(month, checked_top(top))


async def author(parent: strawberry.Parent[AuthorRank], info: Info) -> User | None:
    return await info.context.users.by_id(parent.author_id)


async def trending_tags(
    info: Info, window: Window = TagWindow.DAY, at: At = None, top: Top = DEFAULT_TOP
) -> list[TagTrend]:
    moment = info.context.now if at is None else validate.timestamp("at", at)
    return await info.context.leaderboards.trending_tags(window, moment, checked_top(top))
