"""Values of SportMonks payloads, read with distrust: numbers come as text, includes with or without a wrapper."""

import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from datastore.model.timestamps import from_iso

Row: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

# No run, ball or id comes near it; more is nonsense that no table could hold.
LARGEST = 10**15
_INTEGER = re.compile(r"[+-]?\d{1,16}(\.0*)?")
_OVERS = re.compile(r"(\d{1,4})(?:\.(\d{1,3}))?")
_YES = frozenset({"1", "true", "yes"})

logger = logging.getLogger(__name__)


class UnreadableRow(ValueError):
    """A row lacks what it cannot do without, or holds something of another kind."""


def unwrapped(value: Any) -> Any:
    """An include as it is: the documentation shows it bare, some answers have it in `{"data": …}`."""
    if isinstance(value, Mapping) and "data" in value and "id" not in value:
        return value["data"]
    return value


def row(value: Any) -> Row:
    """The row of a single include; an empty one when there is none."""
    found = unwrapped(value)
    return found if isinstance(found, Mapping) else {}


def readable(kind: str, value: Any, convert: Callable[[Row], T | None]) -> list[T]:
    """The rows of a list that can be read, without those that convert to None.

    One that cannot be read is logged with its id and left out; so is a list that is none.
    """
    found = unwrapped(value)
    if not isinstance(found, list):
        if found:
            logger.warning("SportMonks: the list of each %s is a %s", kind, type(found).__name__)
        return []
    converted = (_converted(kind, one, convert) for one in found)
    return [one for one in converted if one is not None]


def _converted(kind: str, one: Any, convert: Callable[[Row], T | None]) -> T | None:
    if not isinstance(one, Mapping):
        logger.warning("SportMonks: a %s is left out: it is a %s", kind, type(one).__name__)
        return None
    try:
        return convert(one)
    except UnreadableRow as problem:
        logger.warning("SportMonks: %s %.40r is left out: %s", kind, one.get("id"), problem)
        return None


def whole(value: Any) -> int | None:
    """A whole number, also as text, float or truth value; None for anything else."""
    if isinstance(value, str):
        match = _INTEGER.fullmatch(value.strip())
        value = int(value.strip().partition(".")[0]) if match else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or abs(value) > LARGEST:
        return None
    return int(value)


def count(value: Any) -> int:
    """How many: 0 for what is missing or no number. Never negative."""
    return max(whole(value) or 0, 0)


def decimal(value: Any) -> float | None:
    """Any finite number, also as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST else None


def flag(value: Any) -> bool:
    """Whether: also as 0 and 1, and as text."""
    return value.strip().lower() in _YES if isinstance(value, str) else isinstance(value, int) and bool(value)


def text(value: Any) -> str | None:
    """Text that says something; None for blanks and everything else."""
    return value.strip() or None if isinstance(value, str) else None


def ident(value: Any) -> str | None:
    """An id as text: its digits. None for null, 0 and what is no id."""
    number = None if isinstance(value, bool) else whole(value)
    return str(number) if number and number > 0 else None


def needed_id(row: Row, name: str) -> str:
    found = ident(row.get(name))
    if found is None:
        raise UnreadableRow(f"{name} is no id")
    return found


def needed_text(row: Row, name: str) -> str:
    found = text(row.get(name))
    if found is None:
        raise UnreadableRow(f"{name} is empty")
    return found


def moment(value: Any) -> datetime | None:
    """`2021-08-06T12:00:00.000000Z`; what names no zone is UTC."""
    written = text(value)
    if written is None:
        return None
    try:
        zoned = written if _has_zone(written) else f"{written}Z"
        return from_iso(zoned)
    except (ValueError, OverflowError):
        return None


def _has_zone(written: str) -> bool:
    return written[-1:] in "Zz" or re.search(r"[T ].*[+-]\d\d:?\d\d$", written) is not None


def overs(value: Any) -> tuple[int, int] | None:
    """Whole overs and balls: 15.4 is (15, 4). As text `0.10` has ten balls; as a number it is 0.1 and has one."""
    if isinstance(value, float):
        # 15.399999 is 15.4 that somebody added up.
        value = str(Decimal(str(value)).quantize(Decimal("0.1"))) if abs(value) < LARGEST else ""
    match = None if isinstance(value, bool) else _OVERS.fullmatch(str(value).strip())
    return None if match is None else (int(match[1]), int(match[2] or 0))


def innings_number(row: Row) -> int:
    """`S2` is the second innings. Raises `UnreadableRow`."""
    written = text(row.get("scoreboard")) or ""
    if re.fullmatch(r"[Ss][1-9]", written) is None:
        raise UnreadableRow(f"scoreboard is {written[:20]!r}")
    return int(written[1])
