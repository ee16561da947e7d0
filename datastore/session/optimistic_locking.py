"""Versions: an item's number that grows with every change of what updates change, so that no change is lost unseen.

An update may say which version it goes by: it is written only while the item has that. An item without one, which
another program wrote, or that was never updated, has version 0.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.dynamodb.requests import set_or_remove
from datastore.errors import Conflict
from datastore.model.composite_keys import Key
from datastore.model.versioning import VERSION, increment
from datastore.session.writes import WriteResult

T = TypeVar("T")
# The name of a table and a key in it.
ItemAddress = tuple[str, Key]

# Versions of puts are seconds since then, which a GraphQL Int holds until 2094.
VERSION_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# More than as many updates as are on their way to one item at once.
STRIDE = 8
# Only what was put twice, or deleted and made again, within about a second needs to be known.
PUT_VERSION_CAPACITY = 10_000


class Outdated(Conflict):
    """The item is at another version than the update expects. `current` is its record as it is now.

    `attribute` is the item's attribute that was compared.
    """

    def __init__(self, expected: int, version: int, current: object, attribute: str = VERSION) -> None:
        # The gateway never answered a version that is ahead of the item's: no change of the item explains that.
        how = "this was changed meanwhile: it is" if version > expected else "it is"
        super().__init__(
            f"`expectedVersion` is {expected}, but {how} at {attribute} {version}.",
            expectedVersion=expected,
            currentVersion=version,
        )
        self.current = current


def version_of(item: Mapping[str, Any], attribute: str = VERSION) -> int:
    """Others write an attribute that is not there as null, too."""
    return version(item.get(attribute))


def version(value: int | None) -> int:
    """The version that an attribute tells."""
    return int(value or 0)


def versioned_update(changes: Mapping[str, Any], attribute: str = VERSION) -> tuple[str, dict[str, Any]]:
    """The UpdateExpression for changes that make a new version, and its values."""
    expression, values = set_or_remove(changes)
    return f"{expression} {increment(attribute)}", {**values, "one": 1}


def version_values(expected: int | None) -> dict[str, Any]:
    """The values for the clauses of a `guard`; none where any version will do."""
    if expected is None:
        return {}
    return {"expected": expected} if expected else {"never": 0, "nothing": "NULL"}


def check_version(item: Item, expected: int | None, convert: Callable[[Mapping[str, Any]], object]) -> None:
    """Raise `Outdated` where the item as it was just read is at another version."""
    if expected is not None and version_of(item) != expected:
        raise Outdated(expected, version_of(item), record(convert, item))


def may_be_applied(item: Item, expected: int | None, changes: Mapping[str, Any]) -> bool:
    """Whether an update that went by that version may have left the item as it is."""
    return expected is not None and version_of(item) == expected + 1 and has_values(item, changes)


def updated_record(
    written: WriteResult,
    expected: int | None,
    changes: Mapping[str, Any],
    convert: Callable[[Mapping[str, Any]], T],
    missing: Callable[[], Exception],
    attribute: str = VERSION,
) -> T:
    """The record as an update left it. Raises what `missing` makes when there is no such item, and `Outdated`.

    `changes` are the attributes that were to be set; None takes one away. Where the answer to an earlier try was lost,
    the item may be as that try left it: then the update was done. If that is undecidable, the error says so.
    """
    if written.item is None:
        raise missing()
    found = record(convert, written.item)
    assert found is not None, "There is an item."
    if written.ok:
        return found
    version = version_of(written.item, attribute)
    if expected is None or version == expected:
        raise missing()  # something else of the condition did not hold
    if written.is_retry and version == expected + 1 and has_values(written.item, changes):
        return found
    outdated = Outdated(expected, version, found, attribute)
    if written.is_retry:
        outdated.extensions["mayHaveBeenApplied"] = True
    raise outdated


def has_values(item: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Whether the item has the values that changes give it."""
    return all(item.get(name) == value for name, value in changes.items())


class PutVersions:
    """Versions for items that are put, each greater than those that this process put or saw at its key before.

    They are the seconds since `BEGAN`, so that they are greater than those that others put or changed there, too: more
    than that many changes of one item do not happen. Each key is counted by itself, and `most` are kept, the last ones.
    """

    def __init__(self, capacity: int = PUT_VERSION_CAPACITY) -> None:
        self._capacity = capacity
        self._last: OrderedDict[ItemAddress, int] = OrderedDict()

    def next(self, now: datetime, address: ItemAddress, above: int = 0) -> int:
        """The version of what is put now, where there may be an item of the version `above`."""
        last = max(above, self._last.get(address, -STRIDE))
        version = max(_seconds(now), last + STRIDE)
        self.observe(address, version)
        return version

    def initial(self, now: datetime, address: ItemAddress) -> int:
        """What the version of an item that an update makes is counted from; one that is there goes on with its own."""
        return max(_seconds(now), self._last.get(address, 0))

    def observe(self, address: ItemAddress, version: int) -> None:
        """What is there, or was deleted there, has that version."""
        self._last[address] = max(version, self._last.pop(address, 0))
        if len(self._last) > self._capacity:
            self._last.popitem(last=False)


def _seconds(now: datetime) -> int:
    return int((now - VERSION_EPOCH).total_seconds())


# One per process: what the gateway and the jobs in it put and saw counts for both.
PUT_VERSIONS = PutVersions()
