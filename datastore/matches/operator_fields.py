"""Fields of a fixture that an operator set. They keep their values until an operator clears them.

The attribute `operatorFields` of a fixture is the set of their names. Writers of the provider's values leave out the
attributes of these fields, on the condition that the set has not changed since they read it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from datastore.matches.cricket import Match


class FixtureField(StrEnum):
    """A field that `updateFixture` sets, by the name of its attribute."""

    START_TIME = "startTime"
    STATUS = "status"
    ROUND = "round"
    FORMAT = "format"
    NOTE = "note"
    VENUE = "venue"
    SCHEDULED_OVERS = "scheduledOvers"


OPERATOR_FIELDS = "operatorFields"

# A field not named here has the same name in the item and in the record. An operator who sets the status also fixes the
# phase, which follows from it.
_ITEM_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {FixtureField.STATUS: ("status", "phase")}
_RECORD_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    FixtureField.START_TIME: ("start_time",),
    FixtureField.STATUS: ("status", "phase"),
    FixtureField.SCHEDULED_OVERS: ("scheduled_overs",),
}


class OperatorConflict(Exception):
    """An operator set or cleared fields after the match was read. `stored` is the match as it is now."""

    def __init__(self, stored: Match) -> None:
        super().__init__(stored.match_id)
        self.stored = stored


def operator_fields_from(names: Iterable[str] | None) -> tuple[FixtureField, ...]:
    """Return the fields that the attribute `operatorFields` names, in the order of `FixtureField`."""
    present = set(names or ())
    return tuple(field for field in FixtureField if field in present)


def attributes_of(field: str) -> tuple[str, ...]:
    """Return the attributes of a field."""
    return _ITEM_ATTRIBUTES.get(field, (field,))


def with_operator_fields(match: Match, stored: Match | None) -> Match:
    """Return the provider's match, with the stored values of the fields that an operator set."""
    if stored is None or not stored.operator_fields:
        return match
    names = [name for field in stored.operator_fields for name in _RECORD_ATTRIBUTES.get(field, (field,))]
    values = {name: getattr(stored, name) for name in names}
    return replace(match, operator_fields=stored.operator_fields, **values)


def without_operator_fields(attributes: Mapping[str, Any], match: Match) -> dict[str, Any]:
    """Return the attributes that the provider may write: all but those of fields that an operator set.

    `match` is a result of `with_operator_fields`.
    """
    kept = {name for field in match.operator_fields or () for name in attributes_of(field)}
    return {name: value for name, value in attributes.items() if name not in kept}


def unchanged_values(match: Match) -> dict[str, Any]:
    """Return the values for `OPERATOR_GUARD`: the set that was read, or the type NULL if there was none."""
    return {"operator": set(match.operator_fields)} if match.operator_fields else {"absent": "NULL"}
