"""Fields of a fixture that an operator set. They keep their values until an operator clears them.

The attribute `operatorFields` of a fixture is the set of their names. Writers of the provider's values leave out the
attributes of these fields, on the condition that the set has not changed since they read it.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.matches.cricket import FixtureField, Match

_FIELD_NAMES = {attribute.name: name for name, attribute in Match.__declaration__.attributes.items()}


class OperatorConflict(Exception):
    """An operator set or cleared fields after the match was read. `stored` is the match as it is now."""

    def __init__(self, stored: Match) -> None:
        super().__init__(stored.match_id)
        self.stored = stored


def field_names(fields: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names in `Match` of these fields. An operator who sets the status also fixes the phase."""
    names = (("status", "phase") if field == FixtureField.STATUS else (_FIELD_NAMES[field],) for field in fields or ())
    return tuple(name for group in names for name in group)


def with_operator_fields(match: Match, stored: Match | None) -> Match:
    """Return the provider's match, with the stored values of the fields that an operator set."""
    if stored is None or not stored.operator_fields:
        return match
    values = {name: getattr(stored, name) for name in field_names(stored.operator_fields)}
    return replace(match, operator_fields=stored.operator_fields, **values)


def provided_attributes(match: Match, names: Iterable[str]) -> Item:
    """Return the attributes of these fields that the provider may write: all but those that an operator set.

    `match` is a result of `with_operator_fields`.
    """
    kept = field_names(match.operator_fields)
    return match.attributes_of(name for name in names if name not in kept)


def unchanged_values(match: Match) -> dict[str, Any]:
    """Return the values for `OPERATOR_GUARD`: the set that was read, or the type NULL if there was none."""
    return {"operator": set(match.operator_fields)} if match.operator_fields else {"absent": "NULL"}
