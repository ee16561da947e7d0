"""Parsing of the values in SportMonks payloads: numbers may be texts, and includes may have a wrapper."""

import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from datastore.model.timestamps import from_iso

Row: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

# No number of runs or balls and no id comes near it. A larger number is an error, and too large for the tables.
LARGEST = 10**15
_INTEGER = re.compile(r"[+-]?\d{1,16}(\.0*)?")
_OVERS = re.compile(r"(\d{1,4})(?:\.(\d{1,3}))?")
_YES = frozenset({"1", "true", "yes"})

logger = logging.getLogger(__name__)


class UnreadableRow(ValueError):
    """A row lacks a required value, or has a value of another type."""


def unwrapped(value: Any) -> Any:
    """Return an include without its wrapper: some responses have it in `{"data": …}`, unlike the documentation."""
    if isinstance(value, Mapping) and "data" in value and "id" not in value:
        return value["data"]
    return value


def row(value: Any) -> Row:
    """Return the row of a single include, or an empty row when there is none."""
    included = unwrapped(value)
    return included if isinstance(included, Mapping) else {}


def convert_rows(kind: str, value: Any, convert: Callable[[Row], T | None]) -> list[T]:
    """Convert the rows of a list, and leave out the rows that convert to None.

    A row that cannot be read is logged with its id and left out. A value that is not a list is logged, too.
    """
    rows = unwrapped(value)
    if not isinstance(rows, list):
        if rows:
            logger.warning("SportMonks: the list of each %s is a %s", kind, type(rows).__name__)
        return []
    converted = (_convert_row(kind, row, convert) for row in rows)
    return [record for record in converted if record is not None]


def _convert_row(kind: str, row: Any, convert: Callable[[Row], T | None]) -> T | None:
    if not isinstance(row, Mapping):
        logger.warning("SportMonks: a %s is left out: it is a %s", kind, type(row).__name__)
        return None
    try:
        return convert(row)
    except UnreadableRow as problem:
        logger.warning("SportMonks: %s %.40r is left out: %s", kind, row.get("id"), problem)
        return None


def whole(value: Any) -> int | None:
    """Return a whole number, also from a text, float or boolean; None for any other value."""
    if isinstance(value, str):
        match = _INTEGER.fullmatch(value.strip())
        value = int(value.strip().partition(".")[0]) if match else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or abs(value) > LARGEST:
        return None
    return int(value)


def count(value: Any) -> int:
    """Return a whole number of at least 0, and 0 for a missing or another value."""
    return max(whole(value) or 0, 0)


def decimal(value: Any) -> float | None:
    """Return a finite number, also from a text; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST else None


def flag(value: Any) -> bool:
    """Return a truth value, also from 0, 1 or a text."""
    return value.strip().lower() in _YES if isinstance(value, str) else isinstance(value, int) and bool(value)


def text(value: Any) -> str | None:
    """Return a text that is not blank, stripped; None for any other value."""
    return value.strip() or None if isinstance(value, str) else None


def ident(value: Any) -> str | None:
    """Return an id as a text of digits; None for null, 0 and any value that is not an id."""
    number = None if isinstance(value, bool) else whole(value)
    return str(number) if number and number > 0 else None


def required_id(row: Row, name: str) -> str:
    id = ident(row.get(name))
    if id is None:
        raise UnreadableRow(f"{name} is not an id")
    return id


def required_text(row: Row, name: str) -> str:
    value = text(row.get(name))
    if value is None:
        raise UnreadableRow(f"{name} is empty")
    return value


def moment(value: Any) -> datetime | None:
    """Return a time such as `2021-08-06T12:00:00.000000Z`, in UTC where it names no zone; None for any other value."""
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
    """Return whole overs and balls: 15.4 is (15, 4). The text `0.10` has ten balls, the number 0.1 has one."""
    if isinstance(value, float):
        # 15.399999 is 15.4 as the sum of floats.
        value = str(Decimal(str(value)).quantize(Decimal("0.1"))) if abs(value) < LARGEST else ""
    match = None if isinstance(value, bool) else _OVERS.fullmatch(str(value).strip())
    return None if match is None else (int(match[1]), int(match[2] or 0))


def innings_number(row: Row) -> int:
    """Return the number of an innings: `S2` is the second. Raises `UnreadableRow`."""
    written = text(row.get("scoreboard")) or ""
    if re.fullmatch(r"[Ss][1-9]", written) is None:
        raise UnreadableRow(f"scoreboard is {written[:20]!r}")
    return int(written[1])
