"""Arguments that several fields share, with their descriptions."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder

EXPECTED_VERSION = (
    "The `version` on which the change is based. If the item has another version, the change is rejected with "
    "CONFLICT, and the error's `current` contains the present item. By default the version is not checked."
)
ExpectedVersion = Annotated[int | None, strawberry.argument(description=EXPECTED_VERSION)]
First = Annotated[
    int | None,
    strawberry.argument(
        description="The maximum number of entries from the start of the list, or after `after`: 1 to 100, by default "
        "25."
    ),
]
After = Annotated[str | None, strawberry.argument(description="A cursor of this list: return the entries after it.")]
Last = Annotated[
    int | None,
    strawberry.argument(
        description="The maximum number of entries from the end of the list, or before `before`: 1 to 100. Not "
        "allowed with `first` or `after`."
    ),
]
Before = Annotated[str | None, strawberry.argument(description="A cursor of this list: return the entries before it.")]
Area = Annotated[str, strawberry.argument(description="The area, one of `areas`.")]
AnyArea = Annotated[str | None, strawberry.argument(description="The area, one of `areas`; by default all.")]
Category = Annotated[str, strawberry.argument(description="The category, one of `categories`.")]
AnyCategory = Annotated[
    str | None, strawberry.argument(description="The category, one of `categories`; by default all.")
]
UserId = Annotated[strawberry.ID, strawberry.argument(description="The user's id: the `sub` of the user's token.")]
PostId = Annotated[strawberry.ID, strawberry.argument(description="The post's `postId`.")]
MatchId = Annotated[strawberry.ID, strawberry.argument(description="The match's `matchId`.")]
MinMagnitude = Annotated[
    float | None, strawberry.argument(description="The minimum magnitude, -10 to 10; by default all magnitudes.")
]
Start = Annotated[
    datetime | None,
    strawberry.argument(
        description="The start of the time window, inclusive, at most 3,660 days before `end`; by default 30 days "
        "before `end`."
    ),
]
End = Annotated[
    datetime | None,
    strawberry.argument(description="The end of the time window, inclusive; by default the present time."),
]
WhenSlow = Annotated[
    OverflowPolicy,
    strawberry.argument(description="The overflow policy for a subscriber that reads too slowly."),
]
Buffer = Annotated[
    int | None,
    strawberry.argument(
        description="The number of newest events that may wait with `whenSlow: BUFFER`: 1 to 1,000, by default 100."
    ),
]
Order = Annotated[
    SortOrder,
    strawberry.argument(description="The direction of the list by id. Ids sort by time of creation."),
]
