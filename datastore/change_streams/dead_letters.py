"""A dead-letter queue: the records of a stream that could not be handled, each with its error (FEED-P3)."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from datastore.change_streams.change import SEQUENCE_DIGITS, position_of
from datastore.change_streams.consumer_table import ConsumerTable
from datastore.change_streams.shards.shard_reader import sequence_of, time_of
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store

LIFETIME = timedelta(days=14)
# The maximum size of a record's JSON. An item has at most 400 KB, with its other attributes.
MAX_RECORD_BYTES = 380 * 1024
MAX_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a stream that could not be handled, with the error of its handler."""

    table: str
    #: The same each time the same record is buried for the same handler.
    id: str
    #: The time of the change; the time of burial if it is unknown.
    moment: datetime
    #: The change's sequence number, padded with zeros; only zeros if it is unknown.
    sequence: str
    handler: str
    record: Mapping[str, Any]
    error_type: str
    error: str
    attempts: int
    buried_at: datetime
    #: False for a record that was too large to be stored with its images.
    whole: bool = True

    @property
    def event(self) -> str:
        return str(self.record.get("eventName", "?"))

    @property
    def item_keys(self) -> Any:
        """Return the keys of the changed item, in DynamoDB's notation; None if the record has none."""
        body = self.record.get("dynamodb")
        return body.get("Keys") if isinstance(body, Mapping) else None


def letter_of(
    table: str, handler: str, record: Mapping[str, Any], problem: Exception, attempts: int, now: datetime
) -> DeadLetter:
    """Return the dead letter for a record that a handler could not handle."""
    return DeadLetter(
        table=table,
        id=_id(handler, record),
        moment=time_of(record) or now,
        sequence=_padded(sequence_of(record)),
        handler=handler,
        record=record,
        error_type=type(problem).__name__,
        error=_text(problem),
        attempts=attempts,
        buried_at=now,
    )


class DeadLetters:
    """The dead letters of all tables."""

    def __init__(self, store: Store, table: ConsumerTable) -> None:
        self._store = store
        self._table = table

    async def bury(self, letter: DeadLetter) -> None:
        """FEED-P3: store a letter for `LIFETIME`. It replaces an earlier letter of the same record and handler."""
        text = orjson.dumps(letter.record)
        if len(text) > MAX_RECORD_BYTES:
            await self._put(letter, _without_images(letter.record), whole=False)
            return
        try:
            await self._put(letter, text, whole=letter.whole)
        except RequestRefused as refused:
            if refused.code != "ValidationException":
                raise
            await self._put(letter, _without_images(letter.record), whole=False)

    async def forget(self, letter: DeadLetter) -> None:
        """FEED-P3: delete a letter that was replayed."""
        await self._store.delete(self._table.delete_dead_letter, self._key(letter))

    async def _put(self, letter: DeadLetter, record: bytes, *, whole: bool) -> None:
        await self._store.put(self._table.put_dead_letter, _item(letter, self._key(letter), record, whole=whole))

    def _key(self, letter: DeadLetter) -> Key:
        return self._table.dead_letter(letter.table, iso(letter.moment), letter.sequence, letter.id)


async def every_letter(
    open_store: Callable[[], Store], consumer_table: ConsumerTable, table: str, now: datetime
) -> AsyncIterator[DeadLetter]:
    """FEED-P3: yield a table's letters, oldest first, without expired ones.

    Each page is read with a new store, since the caller may take long for each letter.
    """
    values = {"partition": consumer_table.dead_letter.partition_of(table), "now": to_seconds(now)}
    start: Item | None = None
    while True:
        page = await open_store().query(consumer_table.list_dead_letters, values, start=start)
        for letter in readable_records(partial(letter_from, consumer_table), page.items):
            yield letter
        if (start := page.next_start) is None:
            return


def letter_from(consumer_table: ConsumerTable, item: Mapping[str, Any]) -> DeadLetter:
    table, moment, sequence, letter_id = consumer_table.dead_letter.parts(Key(item["PK"], item["SK"]))
    return DeadLetter(
        table=table,
        id=letter_id,
        moment=from_iso(moment),
        sequence=sequence,
        handler=item["handler"],
        record=orjson.loads(item["record"]),
        error_type=item["error_type"],
        error=item["error"],
        attempts=item["attempts"],
        buried_at=from_iso(item["buried_at"]),
        whole=item["whole"],
    )


def _item(letter: DeadLetter, key: Key, record: bytes, *, whole: bool) -> dict[str, Any]:
    # The record is stored as text, because its attribute values may be invalid.
    return {
        "PK": key.partition,
        "SK": key.sort,
        "handler": letter.handler,
        "record": record.decode(),
        "error_type": letter.error_type,
        "error": letter.error,
        "attempts": letter.attempts,
        "buried_at": iso(letter.buried_at),
        "whole": whole,
        "expiresAt": to_seconds(letter.buried_at + LIFETIME),
    }


def _without_images(record: Mapping[str, Any]) -> bytes:
    """Return the parts that identify the change. An item's keys have at most three kilobytes."""
    body = record.get("dynamodb")
    identity = {"eventName": str(record.get("eventName", "?"))[:100]}
    if not isinstance(body, Mapping):
        return orjson.dumps(identity)
    names = ("Keys", "SequenceNumber", "ApproximateCreationDateTime")
    text = orjson.dumps({**identity, "dynamodb": {name: body[name] for name in names if name in body}})
    return text if len(text) <= MAX_RECORD_BYTES else orjson.dumps(identity)


def _padded(sequence: str | None) -> str:
    return position_of("") if sequence is None or len(sequence) > SEQUENCE_DIGITS else position_of(sequence)


def _id(handler: str, record: Mapping[str, Any]) -> str:
    """Return an id made from the sequence number and the keys, or from the whole record without them."""
    body = record.get("dynamodb")
    sequence = sequence_of(record)
    identity = record if sequence is None or not isinstance(body, Mapping) else (sequence, body.get("Keys"))
    return sha256(orjson.dumps((handler, identity), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _text(problem: Exception) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[:MAX_ERROR_CHARACTERS].encode(errors="replace").decode()
