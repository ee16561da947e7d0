"""Arguments that many fields share, with their descriptions."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder

EXPECTED_VERSION = (
    "The `version` that the change goes by: at any other it is refused with CONFLICT, whose `current` is the item as "
    "it is now. At any version if nothing is said."
)
ExpectedVersion = Annotated[int | None, strawberry.argument(description=EXPECTED_VERSION)]
First = Annotated[
    int | None,
    strawberry.argument(description="How many from the start, or after `after`: 1 to 100, 25 if nothing is said."),
]
After = Annotated[str | None, strawberry.argument(description="A cursor of this list: what comes after it.")]
Last = Annotated[
    int | None,
    strawberry.argument(
        description="How many from the end, or before `before`: 1 to 100. Not with `first` or `after`."
    ),
]
Before = Annotated[str | None, strawberry.argument(description="A cursor of this list: what comes before it.")]
Area = Annotated[str, strawberry.argument(description="One of `areas`.")]
AnyArea = Annotated[str | None, strawberry.argument(description="One of `areas`; all if nothing is said.")]
Category = Annotated[str, strawberry.argument(description="One of `categories`.")]
AnyCategory = Annotated[str | None, strawberry.argument(description="One of `categories`; all if nothing is said.")]
UserId = Annotated[strawberry.ID, strawberry.argument(description="The user's id: the `sub` of their token.")]
PostId = Annotated[strawberry.ID, strawberry.argument(description="The post's `postId`.")]
MatchId = Annotated[strawberry.ID, strawberry.argument(description="The match's `matchId`.")]
MinMagnitude = Annotated[
    float | None, strawberry.argument(description="The least magnitude, -10 to 10; all if nothing is said.")
]
Start = Annotated[
    datetime | None,
    strawberry.argument(
        description="The earliest time, included, at most 3,660 days before `end`; 30 if nothing is said."
    ),
]
End = Annotated[datetime | None, strawberry.argument(description="The latest time, included. Now if nothing is said.")]
WhenSlow = Annotated[
    OverflowPolicy,
    strawberry.argument(
        description="What happens when more events wait for a subscriber that reads too slowly than may."
    ),
]
Buffer = Annotated[
    int | None,
    strawberry.argument(
        description="With `whenSlow: BUFFER`, how many of the newest events wait: 1 to 1,000, 100 if nothing is said."
    ),
]
Order = Annotated[
    SortOrder,
    strawberry.argument(description="Which end of the list comes first; ids sort by the time they were made."),
]
