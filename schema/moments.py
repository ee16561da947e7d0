"""Moments and days as clients write them, with errors that say how."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime

from strawberry.exceptions import StrawberryInputCoercionError
from strawberry.schema.types.base_scalars import DateDefinition, DateTimeDefinition
from strawberry.types.scalar import ScalarDefinition

LONGEST_SHOWN = 100


def _worded(scalar: ScalarDefinition, example: str) -> ScalarDefinition:
    """The scalar as it is, but for the words of the library that it parses with."""
    parse: Callable[[object], object] | None = scalar.parse_value
    assert parse is not None

    def parse_value(value: object) -> object:
        try:
            return parse(value)
        except StrawberryInputCoercionError:
            given = f'"{value[:LONGEST_SHOWN]}"' if isinstance(value, str) else "what is no text"
            raise StrawberryInputCoercionError(f"A {scalar.name} is written as in {example}, not as {given}.") from None

    return replace(scalar, parse_value=parse_value)


SCALARS: dict[object, ScalarDefinition] = {
    datetime: _worded(DateTimeDefinition, '"2026-06-25T14:30:00Z"'),
    date: _worded(DateDefinition, '"2026-06-25"'),
}
