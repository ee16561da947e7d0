"""Items to records, one by one: a damaged item is a damaged record, not a damaged page."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item, Raw, decode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.errors import Internal
from datastore.model.log_redaction import redact_emails

Record = TypeVar("Record")

# The attributes that tell which item it is, in the log.
LOGGED_KEYS = frozenset({"pk", "sk", "matchid", "teamid", "seasonid", "leagueid"})
# What an item that is not as it should be makes of reading it.
DAMAGE_ERRORS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)

DAMAGED_RECORD = "A stored record is damaged."

logger = logging.getLogger(__name__)


def record_or_error(convert: Callable[[Mapping[str, Any]], Record], item: Mapping[str, Any]) -> Record | Internal:
    """The record, or the error that stands in its place in a list; the log says which item it is."""
    try:
        return convert(item)
    except DAMAGE_ERRORS as problem:
        logger.error("An item cannot be read: %s in %r", redact_emails(repr(problem)), logged_keys(item))
        return Internal(DAMAGED_RECORD)


def record(convert: Callable[[Mapping[str, Any]], Record], item: Mapping[str, Any] | None) -> Record | None:
    """The record of a point read, or None. Raises `Internal` when the item is damaged."""
    found = None if item is None else record_or_error(convert, item)
    if isinstance(found, Internal):
        raise found
    return found


def raw_record_or_error(convert: RecordDecoder[Record], raw: Raw) -> Record | Internal:
    """The same of an item as DynamoDB answered it."""
    try:
        return convert.raw(raw)
    except DAMAGE_ERRORS:
        return record_or_error(convert, decode_item(raw))  # which tells what is wrong


def raw_records(convert: RecordDecoder[Record], items: Iterable[Raw]) -> list[Record | Internal]:
    """The same of each item, in their order."""
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
    """The record. Raises `Internal` when the item is damaged."""
    found = raw_record_or_error(convert, raw)
    if isinstance(found, Internal):
        raise found
    return found


def readable_records(
    convert: Callable[[Mapping[str, Any]], Record], items: Iterable[Mapping[str, Any]]
) -> list[Record]:
    """The records that can be read; for lists in which nothing may stand in the place of one that cannot."""
    return [record for item in items if not isinstance(record := record_or_error(convert, item), Internal)]


def logged_keys(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that tell which item it is, as logs may show them."""
    return {name: redact_emails(value) for name, value in item.items() if name.lower() in LOGGED_KEYS}


class LazyItem:
    """An item as DynamoDB returned it (`raw`), decoded and converted at the first access."""

    __slots__ = ("_converted", "_item", "raw")

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._item: Item | None = None
        self._converted: tuple[RecordDecoder[Any], Any] | None = None

    @property
    def item(self) -> Item:
        """The item as a plain dict."""
        if self._item is None:
            self._item = decode_item(self.raw)
        return self._item

    def record(self, convert: RecordDecoder[Record]) -> Record:
        """Return the item as a record. Raises `Internal` when it is damaged."""
        converted = self._converted
        if converted is None or converted[0] is not convert:
            converted = self._converted = convert, raw_record(convert, self.raw)
        record: Record = converted[1]
        return record
