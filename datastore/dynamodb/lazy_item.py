"""What a point read found."""

from typing import Any

from datastore.dynamodb.codec import Item, Raw, decode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import Record, raw_record


class LazyItem:
    """An item as DynamoDB answered it (`raw`), and what was made of it: once, however many read it."""

    __slots__ = ("_item", "_made", "raw")

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._item: Item | None = None
        self._made: tuple[RecordDecoder[Any], Any] | None = None

    @property
    def item(self) -> Item:
        """As a plain dict."""
        if self._item is None:
            self._item = decode_item(self.raw)
        return self._item

    def record(self, convert: RecordDecoder[Record]) -> Record:
        """As a record. Raises `Internal` when it is damaged."""
        made = self._made
        if made is None or made[0] is not convert:
            made = self._made = convert, raw_record(convert, self.raw)
        record: Record = made[1]
        return record
