"""Conversion of items into records. A damaged item fails alone, not the page that contains it."""

import logging
from collections.abc import Callable, Iterable, Mapping
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


def raw_records(convert: RecordDecoder[Record], items: Iterable[Raw]) -> list[Record | Internal]:
    """Return the record or error of each item, in their order."""
    read = convert.raw
    found: list[Record | Internal] = []
    for raw in items:
        try:
            found.append(read(raw))
        except DAMAGE_ERRORS:
            record = raw_record_or_error(convert, raw)
            found.append(record)
    return found


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
        converted = self._converted
        if converted is None or converted[0] is not convert:
            converted = self._converted = convert, raw_record(convert, self.raw)
        record: Record = converted[1]
        return record
