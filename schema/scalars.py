"""The scalars DateTime and Date, with errors that show the expected format."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime

import orjson
from strawberry.exceptions import StrawberryInputCoercionError
from strawberry.schema.types.base_scalars import DateDefinition, DateTimeDefinition
from strawberry.types.scalar import ScalarDefinition

from resolvers.shared import validation as validate

LONGEST_SHOWN = 100


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
    """Return `datetime.isoformat()`. For a `datetime` in UTC, as in all records, this takes a third of the time."""
    if time.__class__ is datetime and time.tzinfo is UTC:
        return orjson.dumps(time)[1:-1].decode()
    return time.isoformat()


SCALARS: dict[object, ScalarDefinition] = {
    datetime: replace(
        _described(
            DateTimeDefinition,
            '"2026-06-25T14:30:00Z"',
            "A time in ISO 8601, such as `2026-06-25T14:30:00Z`. An input without an offset is in UTC. A date alone "
            "means its midnight in UTC.",
            validate.parse_timestamp,
        ),
        serialize=format_time,
    ),
    date: _described(
        DateDefinition, '"2026-06-25"', "A day in ISO 8601, such as `2026-06-25`.", DateDefinition.parse_value
    ),
}
