"""The scalars DateTime and Date, with errors that show the expected format."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime

import orjson
from strawberry.exceptions import StrawberryInputCoercionError
from strawberry.scalars import JSON
from strawberry.schema.types.base_scalars import DateDefinition, DateTimeDefinition
from strawberry.schema.types.scalar import DEFAULT_SCALAR_REGISTRY
from strawberry.types.scalar import ScalarDefinition

from resolvers.shared import validation as validate

LONGEST_SHOWN = 100
_UP_TO_SECONDS = len('"2026-06-25T14:30:00')
_UP_TO_MILLISECONDS = len('"2026-06-25T14:30:00.000')


def _described(
    scalar: ScalarDefinition, example: str, description: str, parse: Callable[[object], object] | None
) -> ScalarDefinition:
    """Return the scalar with this description and parser, and with errors that show the example."""
    assert parse is not None

    def parse_value(value: object) -> object:
        try:
            return parse(value)
        except StrawberryInputCoercionError:
            shown = f'"{value[:LONGEST_SHOWN]}"' if isinstance(value, str) else "a value that is not a string"
            raise StrawberryInputCoercionError(f"A {scalar.name} is written as in {example}, not as {shown}.") from None

    return replace(scalar, parse_value=parse_value, description=description)


def format_time(time: datetime) -> str:
    """Return a time in RFC 3339, in UTC with milliseconds: `2026-06-25T14:30:00.000Z`. Microseconds are cut off.

    A time without an offset is in UTC.
    """
    if time.tzinfo is not UTC:
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    # In a third of the time of `isoformat`. orjson writes a fraction of six digits, or none for a whole second.
    text = orjson.dumps(time)
    return text[1:_UP_TO_MILLISECONDS].decode() + "Z" if time.microsecond else text[1:_UP_TO_SECONDS].decode() + ".000Z"


SCALARS: dict[object, ScalarDefinition] = {
    datetime: replace(
        _described(
            DateTimeDefinition,
            '"2026-06-25T14:30:00Z"',
            "A time in RFC 3339, in UTC with milliseconds: `2026-06-25T14:30:00.000Z`. An input may have any offset "
            "and any fraction, is in UTC without an offset, and means midnight in UTC if it is a date alone.",
            validate.parse_timestamp,
        ),
        serialize=format_time,
        specified_by_url="https://scalars.graphql.org/andimarek/date-time.html",
    ),
    JSON: replace(
        DEFAULT_SCALAR_REGISTRY[JSON],
        description="A JSON value of any kind. The description of a field states the values that it has.",
    ),
    date: replace(
        _described(DateDefinition, '"2026-06-25"', "A day in UTC: `2026-06-25`.", DateDefinition.parse_value),
        specified_by_url="https://scalars.graphql.org/andimarek/local-date.html",
    ),
}
