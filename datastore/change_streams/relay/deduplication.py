"""Deduplication of a table's changes. Both the bus and the table's stream deliver them, and each is passed on once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from datastore.change_streams.change import Change, decode_change
from datastore.change_streams.change_source import ChangeSink
from datastore.change_streams.relay.commands import Entry, Relayed, RelayState
from datastore.change_streams.shards.checkpoints import START, Reached, joined_by, lacks, sequence_at
from datastore.change_streams.shards.positioned_cursor import ITERATOR_LIFE
from datastore.change_streams.shards.shard_reader import sequence_of
from datastore.primitives.lru_cache import LruCache

Record = dict[str, Any]
# The maximum number of forgotten shards whose positions are kept. Only the stream of a very busy table lists more in
# the 24 hours for which it keeps them.
MAX_FORGOTTEN = 1_000


class Deduplicator:
    """A filter before `sink` that passes each change on once and records the position delivered in each shard.

    `on_error` is called with the table and the exception for each record that cannot be decoded. `now` returns the
    store's time.
    """

    def __init__(
        self, table: str, sink: ChangeSink, on_error: Callable[[str, Exception], None], now: Callable[[], datetime]
    ) -> None:
        self._table = table
        self._sink = sink
        self._on_error = on_error
        self._now = now
        self.stream = ""
        self.shards: dict[str, str] = {}
        # The positions delivered in shards that the bus has forgotten: it may deliver these shards again.
        self._forgotten = LruCache[str, str](MAX_FORGOTTEN)

    @property
    def reached(self) -> Reached | None:
        """The position up to which changes have been delivered; None until a position is known."""
        return Reached(self.stream, dict(self.shards)) if self.shards else None

    async def start_from(self, state: RelayState, past: Iterable[Entry]) -> None:
        """Begin at the bus's position. `past` are its latest entries, from which clients may resume."""
        entries = [entry for entry in past if isinstance(entry, Relayed) and entry.epoch == state.epoch]
        self._in_stream(state.stream)
        self.shards = dict(state.positions)
        parents = {**dict.fromkeys(self.shards), **state.parents}
        first = dict(self.shards)
        for entry in reversed(entries):
            first[entry.shard] = entry.follows_position
            parents[entry.shard] = entry.parent
        # A shard that begins at its first record, and whose parent is here too, is not started now but by `deliver`,
        # or after all entries.
        started_at = {shard: at for shard, at in first.items() if at != START or parents[shard] not in first}
        since = self._now() - ITERATOR_LIFE
        self._sink.start_epoch(state.stream, started_at, parents, since.timestamp())
        for entry in entries:
            for record in self._records(entry):
                change = self._decoded(record)
                if change is not None:
                    self._sink.deliver(entry.shard, change, parent=entry.parent, is_past=True)
                await asyncio.sleep(0)
        for shard in self.shards.keys() - started_at.keys():
            self._sink.start_shard(shard, parents[shard])

    def undelivered_records(self, entry: Relayed) -> Sequence[Record] | None:
        """Return the entry's records that are not delivered yet; None after a gap, or for a malformed entry.

        If the bus had forgotten the shard and repeats records of it, the position in the shard is restored.
        """
        records = self._records(entry)
        if not records:
            return None
        at = self._last(entry.shard)
        last = sequence_at(at)
        if at is not None and last is not None and last >= _number(records[0]):
            self.shards[entry.shard] = at
            return [record for record in records if _number(record) > last]
        return None if lacks(at, entry.follows_position) else records

    def deliver_record(self, shard: str, parent: str | None, record: Record) -> None:
        """Deliver one record of `undelivered_records`."""
        change = self._decoded(record)
        self.shards[shard] = record["dynamodb"]["SequenceNumber"]
        if change is not None:
            self._sink.deliver(shard, change, parent=parent)

    def set_position(self, reached: Reached | None) -> None:
        """Adopt the position of the direct reader, whose sink is this object. None changes nothing."""
        if reached is not None:
            self._in_stream(reached.stream)
            self.shards = dict(reached.shards)

    def reconcile(self, state: RelayState, before: Mapping[str, str]) -> None:
        """Take over the shards of the bus, and its positions of shards without a record since they were joined.

        All changes of the bus must be delivered. `before` are the positions delivered here before `state` was read. The
        bus may have newer iterators for such shards, may have new shards, and may lack shards that the stream no longer
        lists.
        """
        positions = state.positions
        for shard in before.keys() - positions.keys():
            at = self.shards.pop(shard)
            if sequence_at(at) is not None:
                self._forgotten.put(shard, at)
        for shard, at in positions.items():
            if joined_by(at) is not None and not lacks(self.shards.get(shard), at):
                self.shards[shard] = at
                self._sink.read_empty(shard)
            elif at == START and shard not in self.shards:
                self.shards[shard] = at
                self._sink.start_shard(shard, state.parents.get(shard))

    # The methods of a sink, for a reader of the table's own stream

    def start_epoch(
        self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float
    ) -> None:
        """Pass on, and forget earlier positions if the table has another stream."""
        self._in_stream(stream)
        self._sink.start_epoch(stream, positions, parents, since)

    def start_shard(self, shard: str, parent: str | None) -> None:
        """Pass on unless the shard has a position."""
        if self._last(shard) is None:
            self._sink.start_shard(shard, parent)

    def deliver(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        """Pass on unless already delivered, and record the position."""
        last = sequence_at(self._last(shard))
        if last is None or int(change.sequence) > last:
            self.shards[shard] = change.sequence
            self._sink.deliver(shard, change, parent=parent, is_past=is_past)

    def read_empty(self, shard: str) -> None:
        """Pass on."""
        self._sink.read_empty(shard)

    def lost(self, problem: Exception) -> None:
        """Do nothing: the follower that owns the reader notices its end, and reports it."""

    def _in_stream(self, stream: str) -> None:
        if stream != self.stream:
            self._forgotten.clear()
        self.stream = stream

    def _last(self, shard: str) -> str | None:
        """Return the position delivered in a shard, even if the bus or a reader delivers the shard again."""
        at, before = self.shards.get(shard), self._forgotten.peek(shard)
        return before if before is not None and lacks(at, before) else at

    def _records(self, entry: Relayed) -> Sequence[Record]:
        """Return the entry's records; none if another program wrote or changed the entry."""
        try:
            records: Any = orjson.loads(entry.records)
        except ValueError as problem:
            self._on_error(self._table, problem)
            return []
        is_sound = isinstance(records, list) and all(map(_is_numbered, records))
        return records if is_sound else []

    def _decoded(self, record: Record) -> Change | None:
        """Return the change; None for a malformed record, which is reported to `on_error` and delays no later one."""
        try:
            return decode_change(self._table, record)
        except Exception as problem:
            self._on_error(self._table, problem)
            return None


def _is_numbered(record: object) -> bool:
    return isinstance(record, dict) and sequence_of(record) is not None


def _number(record: Record) -> int:
    return int(record["dynamodb"]["SequenceNumber"])
