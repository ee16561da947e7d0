"""Sort keys with a moment in one of two forms: whole seconds (`12:00:00Z`) or milliseconds (`12:00:00.123Z`).

Other programs store whole seconds. These sort as text after the milliseconds of the same second, but precede them in
time: `Z` is greater than `.`. So each second of a table consists of two runs of keys, each in the order of time.
Comparisons across both runs use `canonical` keys. A reader treats a key as settled only when no key of the other run
can still precede it.

`start` is the index of the moment in a key. Lists are read newest first; `backward` is the order oldest first.
"""

SECOND = len("2026-06-25T14:30:00")
# Sorts after every character that follows the second in a key.
LAST_CHARACTER = "~"


def second_of(sort: str, start: int = 0) -> str:
    """Return the key up to the second of its moment."""
    return sort[: start + SECOND]


def is_whole_second(sort: str, start: int = 0) -> bool:
    """Return whether the key's moment has no fraction of a second."""
    return sort[start + SECOND : start + SECOND + 1] == "Z"


def canonical(sort: str) -> str:
    """Return the key with milliseconds. The text order of canonical keys is the order of time."""
    return f"{sort[:SECOND]}.000{sort[SECOND:]}" if is_whole_second(sort) else sort


def is_delayed(sort: str, *, backward: bool, start: int = 0) -> bool:
    """Return whether a key belongs to the run that is read first within a second and comes last on the page."""
    return is_whole_second(sort, start) is not backward


def is_settled(key: str, last: str, *, backward: bool) -> bool:
    """Return whether no key that is read after `last` precedes the canonical `key` on the page."""
    if is_delayed(last, backward=backward):
        second, reached = second_of(key), second_of(last)
        return second < reached if backward else second > reached
    return key <= canonical(last) if backward else key >= last
