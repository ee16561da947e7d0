"""Sort keys with a moment in one of two forms: whole seconds (`12:00:00Z`) or milliseconds (`12:00:00.123Z`).

Other programs store whole seconds. These sort as text after the milliseconds of the same second, but precede them in
time: `Z` is greater than `.`. So each second of a table consists of two runs of keys, each in the order of time.
Comparisons across both runs use `canonical` keys. A reader treats a key as settled only when no key of the other run
can still precede it.

A key begins with its moment. Lists are read newest first; `backward` is the order oldest first.
"""

from collections.abc import Iterable
from operator import ge, gt, le, lt

SECOND = len("2026-06-25T14:30:00")
# Sorts after every character that follows the second in a key.
LAST_CHARACTER = "~"


def second_of(sort: str) -> str:
    """Return the key up to the second of its moment."""
    return sort[:SECOND]


def is_whole_second(sort: str) -> bool:
    """Return whether the key's moment has no fraction of a second."""
    return sort[SECOND : SECOND + 1] == "Z"


def canonical(sort: str) -> str:
    """Return the key with milliseconds. The text order of canonical keys is the order of time."""
    rest = sort[SECOND:]
    return f"{sort[:SECOND]}.000{rest}" if rest.startswith("Z") else sort


def is_delayed(sort: str, *, backward: bool) -> bool:
    """Return whether a key belongs to the run that is read first within a second and comes last on the page."""
    return is_whole_second(sort) is not backward


def count_settled(keys: Iterable[str], last: str, *, backward: bool) -> int:
    """Return the number of canonical keys that no key that is read after `last` precedes on the page."""
    if is_delayed(last, backward=backward):
        precedes, reached = (lt if backward else gt), second_of(last)
        return sum([precedes(key[:SECOND], reached) for key in keys])
    precedes, reached = (le if backward else ge), canonical(last)
    return sum([precedes(key, reached) for key in keys])
