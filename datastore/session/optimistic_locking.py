"""Optimistic locking: each item has a version that grows with every update, so that no update is lost unseen.

An update may name the version that its caller read. It is applied only while the item has that version. An item
without a version has version 0: it was never updated, or another program wrote it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.dynamodb.requests import set_or_remove
from datastore.errors import Conflict
from datastore.model.composite_keys import Key
from datastore.model.versioning import VERSION, increment_clause, version_from
from datastore.primitives.lru_cache import LruCache
from datastore.session.writes import WriteResult

T = TypeVar("T")
# The name of a table and a key in it.
ItemAddress = tuple[str, Key]

# The versions of puts are seconds since this moment. A GraphQL Int holds them until 2094.
VERSION_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# The minimum distance of the versions of two puts of one item: more than the updates of it that are in flight at once.
STRIDE = 8
# Only keys that are put twice, or deleted and put again, within about a second need an entry.
PUT_VERSION_CAPACITY = 10_000


class Outdated(Conflict):
    """The item has another version than the update expects. `current` is its record, `attribute` holds its version."""

    def __init__(self, expected: int, version: int, current: object, attribute: str = VERSION) -> None:
        # An expected version above the item's never came from the gateway, so the item need not have changed.
        how = "the item was changed meanwhile: it is" if version > expected else "the item is"
        super().__init__(
            f"`expectedVersion` is {expected}, but {how} at {attribute} {version}.",
            expectedVersion=expected,
            currentVersion=version,
        )
        self.current = current


def version_of(item: Mapping[str, Any], attribute: str = VERSION) -> int:
    """Return the version of an item."""
    return version_from(item.get(attribute))


def versioned_update(changes: Mapping[str, Any], attribute: str = VERSION) -> tuple[str, dict[str, Any]]:
    """Return the UpdateExpression of changes that also increments the version, and its values."""
    expression, values = set_or_remove(changes)
    return f"{expression} {increment_clause(attribute)}", {**values, "one": 1}


def version_values(expected: int | None) -> dict[str, Any]:
    """Return the values for the clauses of a `guard`: none if no version is expected."""
    if expected is None:
        return {}
    return {"expected": expected} if expected else {"never": 0, "null_type": "NULL"}


def check_version(item: Item, expected: int | None, convert: Callable[[Mapping[str, Any]], object]) -> None:
    """Raise `Outdated` if an item that was just read has another version."""
    if expected is not None and version_of(item) != expected:
        raise Outdated(expected, version_of(item), record(convert, item))


def may_be_applied(item: Item, expected: int | None, changes: Mapping[str, Any]) -> bool:
    """Return whether an update of the expected version may have left the item as it is."""
    return expected is not None and version_of(item) == expected + 1 and has_values(item, changes)


def updated_record(
    written: WriteResult,
    expected: int | None,
    changes: Mapping[str, Any],
    convert: Callable[[Mapping[str, Any]], T],
    missing: Callable[[], Exception],
    attribute: str = VERSION,
) -> T:
    """Return the record as an update left it.

    `changes` are the new values of attributes, None for a removed one. After an ambiguous attempt the item may be as
    that attempt left it: the update was then applied. If this is undecidable, the error has `mayHaveBeenApplied`.

    Raises:
        Outdated: The item has another version.
        The error of `missing`: There is no such item, or another part of the condition failed.
    """
    if written.item is None:
        raise missing()
    found = record(convert, written.item)
    assert found is not None, "There is an item."
    if written.ok:
        return found
    version = version_of(written.item, attribute)
    if expected is None or version == expected:
        raise missing()  # another part of the condition failed
    if written.is_retry and version == expected + 1 and has_values(written.item, changes):
        return found
    outdated = Outdated(expected, version, found, attribute)
    if written.is_retry:
        outdated.extensions["mayHaveBeenApplied"] = True
    raise outdated


def has_values(item: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Return whether the item has the values of the changes."""
    return all(item.get(name) == value for name, value in changes.items())


class PutVersions:
    """The versions of items that are put. Each is greater than all that this process put or read at its key before.

    A version is the number of seconds since `VERSION_EPOCH`, so it also exceeds the versions of other processes, unless
    an item is changed more than once a second on average. The latest `capacity` keys are remembered, each by itself.
    """

    def __init__(self, capacity: int = PUT_VERSION_CAPACITY) -> None:
        self._last = LruCache[ItemAddress, int](capacity)

    def next(self, now: datetime, address: ItemAddress, above: int = 0) -> int:
        """Return the version of an item that is put now. `above` is the version of the item that it may replace."""
        last = max(above, self._last.peek(address) or -STRIDE)
        version = max(_seconds(now), last + STRIDE)
        self.observe(address, version)
        return version

    def initial(self, now: datetime, address: ItemAddress) -> int:
        """Return the start of the versions of an item that an update creates. An existing item keeps its own."""
        return max(_seconds(now), self._last.peek(address) or 0)

    def observe(self, address: ItemAddress, version: int) -> None:
        """Record the version of an item that is stored, or was deleted."""
        self._last.put(address, max(version, self._last.peek(address) or 0))


def _seconds(now: datetime) -> int:
    return int((now - VERSION_EPOCH).total_seconds())


# One per process, for the puts and reads of the gateway and of the jobs in its process.
PUT_VERSIONS = PutVersions()
