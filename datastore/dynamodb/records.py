"""Conversion of items into records. A damaged item fails alone, not the page that contains it."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.errors import Internal
from datastore.model.log_redaction import redact_emails

Record = TypeVar("Record")

# The attributes that identify an item in the log.
LOGGED_KEYS = frozenset({"pk", "sk", "matchid", "teamid", "seasonid", "leagueid"})
# The errors of converting a damaged item.
DAMAGE_ERRORS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)

DAMAGED_RECORD = "A stored record is damaged."

logger = logging.getLogger(__name__)


def record_or_error(convert: Callable[[Mapping[str, Any]], Record], item: Mapping[str, Any]) -> Record | Internal:
    """Return the record, or the error for its place in a list. The log names the damaged item."""
    try:
        return convert(item)
    except DAMAGE_ERRORS as problem:
        logger.error("An item cannot be read: %s in %r", redact_emails(repr(problem)), logged_keys(item))
        return Internal(DAMAGED_RECORD)


def record(convert: Callable[[Mapping[str, Any]], Record], item: Mapping[str, Any] | None) -> Record | None:
    """Return the record of a point read, or None. Raises `Internal` if the item is damaged."""
    found = None if item is None else record_or_error(convert, item)
    if isinstance(found, Internal):
        raise found
    return found


def raw_record_or_error(convert: RecordDecoder[Record], raw: Raw) -> Record | Internal:
    """Return the record of an item as DynamoDB returned it, or the error for its place in a list."""
    try:
        return convert.raw(raw)
    except DAMAGE_ERRORS:
        return record_or_error(convert, decode_item(raw))  # logs the damage


def raw_records(convert: RecordDecoder[Record], items: Sequence[Raw]) -> list[Record | Internal]:
    """Return the record or error of each item, in their order."""
    try:
        return [*map(convert.raw, items)]
    except DAMAGE_ERRORS:
        found: list[Record | Internal] = []
        for raw in items:
            record = raw_record_or_error(convert, raw)
            found.append(record)
        return found


def point_records(
    convert: RecordDecoder[Record], items: Sequence["LazyItem | Exception | None"]
) -> list[Record | Exception | None]:
    """Return the record of each point read, None for a missing item, or the error of the read or the record."""
    found = raw_records(convert, [item.raw for item in items if isinstance(item, LazyItem)])
    records = iter(found)
    return [next(records) if isinstance(item, LazyItem) else item for item in items]


def existence(items: Iterable["LazyItem | Exception | None"]) -> list[bool | Exception]:
    """Return for each point read whether there is an item, or the error of the read."""
    return [item if isinstance(item, Exception) else item is not None for item in items]


def raw_record(convert: RecordDecoder[Record], raw: Raw) -> Record:
    """Return the record of an item as DynamoDB returned it. Raises `Internal` if the item is damaged."""
    found = raw_record_or_error(convert, raw)
    if isinstance(found, Internal):
        raise found
    return found


def readable_records(
    convert: Callable[[Mapping[str, Any]], Record], items: Iterable[Mapping[str, Any]]
) -> list[Record]:
    """Return the records of the items that are not damaged, for lists that cannot contain errors."""
    return [record for item in items if not isinstance(record := record_or_error(convert, item), Internal)]


def logged_keys(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that identify an item, with emails redacted for the log."""
    return {name: redact_emails(value) for name, value in item.items() if name.lower() in LOGGED_KEYS}


class LazyItem(Struct, eq=False):
    """An item as DynamoDB returned it (`raw`), decoded and converted at the first access."""

    raw: Raw
    _item: Item | None = None
    _converted: tuple[RecordDecoder[Any], Any] | None = None

    @property
    def item(self) -> Item:
        """The item as a plain dict."""
        if self._item is None:
            self._item = decode_item(self.raw)
        return self._item

    def record(self, convert: RecordDecoder[Record]) -> Record:
        """Return the item as a record. Raises `Internal` if the item is damaged."""
        if self._converted is not None and self._converted[0] is convert:
            known: Record = self._converted[1]
            return known
        try:
            record = convert.raw(self.raw)
        except DAMAGE_ERRORS:
            record = raw_record(convert, self.raw)
        self._converted = convert, record
        return record


class QueryPage(Struct, eq=False):
    """One page of a Query or a Scan."""

    #: The items that passed the filter, as DynamoDB returned them.
    raw: list[Raw]
    #: The number of items that DynamoDB read.
    scanned: int
    #: The start key of the next page as DynamoDB returned it.
    last_key: Raw | None = None
    _items: list[Item] | None = None

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> "QueryPage":
        """Return the page of a response."""
        return cls(response["Items"], response["ScannedCount"], response.get("LastEvaluatedKey"))

    @property
    def items(self) -> list[Item]:
        """The items as plain dicts."""
        if self._items is None:
            self._items = [decode_item(raw) for raw in self.raw]
        return self._items

    @property
    def next_start(self) -> Item | None:
        """The start key of the next page, None after the last one."""
        return decode_item(self.last_key) if self.last_key else None
