"""Arguments that several fields share, with their descriptions."""

from typing import Annotated, Any

import strawberry

from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder


def required(description: str) -> Any:
    """Declare a field of an input."""
    return strawberry.field(description=description)


def optional(description: str) -> Any:
    """Declare a field of an input that is None if the client omits it, also for a `Maybe`."""
    return strawberry.field(description=description, default=None)


def argument(description: str) -> Any:
    """Describe an argument, in the `Annotated` type of a resolver's parameter."""
    return strawberry.argument(description=description)


EXPECTED_VERSION = (
    "The `version` on which the change is based. If the object has another version, the change is rejected with "
    "CONFLICT, and the error's `current` contains the present object. By default the version is not checked."
)
ExpectedVersion = Annotated[int | None, argument(EXPECTED_VERSION)]
First = Annotated[
    int | None,
    argument("The maximum number of entries from the start of the list, or after `after`: 1 to 100, by default 25."),
]
After = Annotated[str | None, argument("A cursor of this list: return the entries after it.")]
Last = Annotated[
    int | None,
    argument(
        "The maximum number of entries from the end of the list, or before `before`: 1 to 100. Not "
        "allowed with `first` or `after`."
    ),
]
Before = Annotated[str | None, argument("A cursor of this list: return the entries before it.")]
Area = Annotated[str, argument("The area, one of `areas`.")]
AnyArea = Annotated[str | None, argument("The area, one of `areas`; by default all.")]
Category = Annotated[str, argument("The category, one of `categories`.")]
AnyCategory = Annotated[str | None, argument("The category, one of `categories`; by default all.")]
UserId = Annotated[
    strawberry.ID,
    argument(
        "The user's `userId`, which is the `sub` of the user's token, or the `id` of the `User` or `UserProfile`."
    ),
]
PostId = Annotated[strawberry.ID, argument("The post's `postId` or `id`.")]
MatchId = Annotated[
    strawberry.ID, argument("The `matchId`, or the `id` of the `Match`, its `ActiveMatch` or its `LiveMatch`.")
]
MinMagnitude = Annotated[float | None, argument("The minimum magnitude, -2 to 10; by default all magnitudes.")]
WhenSlow = Annotated[OverflowPolicy, argument("The overflow policy for a subscriber that reads too slowly.")]
# The default of `buffer`.
DEFAULT_BUFFER = 100
Buffer = Annotated[
    int,
    argument(
        "The number of newest events that may wait with `whenSlow: BUFFER`, 1 to 1,000. It has no effect with other "
        "policies."
    ),
]
Order = Annotated[SortOrder, argument("The direction of the list, by the key that the field's description names.")]
Consistent = Annotated[
    bool, argument("Whether to read with strong consistency: the newest state, for twice the read units.")
]
