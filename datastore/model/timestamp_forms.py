"""Sort keys with a moment in one of two forms: whole seconds (`12:00:00Z`) or milliseconds (`12:00:00.123Z`).

Other programs store whole seconds. As text these sort after the milliseconds of the same second, which they precede in
time: Z is a greater character than the point. So within each second a table holds two runs of keys, each in the order
of time. Comparisons across both runs use `canonical` keys, and readers take keys as settled only when no key of the
other run can still precede them.

`start` is where the moment begins in a key.
"""

SECOND = len("2026-06-25T14:30:00")
# Above all that a key goes on with after its second.
LAST_CHARACTER = "~"


def second_of(sort: str, start: int = 0) -> str:
    """Return the key up to the second of its moment."""
    return sort[: start + SECOND]


def is_whole_second(sort: str, start: int = 0) -> bool:
    """Whether the key has its moment without a fraction of the second."""
    return sort[start + SECOND : start + SECOND + 1] == "Z"


def canonical(sort: str) -> str:
    """Return the key as it is with milliseconds: text order of canonical keys is time order."""
    return f"{sort[:SECOND]}.000{sort[SECOND:]}" if is_whole_second(sort) else sort


def is_delayed(sort: str, *, backward: bool, start: int = 0) -> bool:
    """Whether a key is of the run that the table has first of a second, and a page last."""
    return is_whole_second(sort, start) is not backward


def is_settled(key: str, last: str, *, backward: bool) -> bool:
    """Whether no key that is read after `last` precedes the canonical `key`, in the order of the page."""
    if is_delayed(last, backward=backward):
        second, reached = second_of(key), second_of(last)
        return second < reached if backward else second > reached
    return key <= canonical(last) if backward else key >= last
