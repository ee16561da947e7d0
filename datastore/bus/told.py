"""What this process has told of a table's changes: each once, whoever brought it, and how far in each shard."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from datastore.bus.connection import EMPTY, Entry, Relayed, State
from datastore.positions import Reached, joined_by, lacks, sequence_at
from datastore.sources import Sink
from datastore.streams import Change, decode_change


class Told:
    """Between what brings changes and the `sink`. `on_error` hears of what cannot be decoded."""

    def __init__(self, table: str, sink: Sink, on_error: Callable[[str, Exception], None]) -> None:
        self._table = table
        self._sink = sink
        self._on_error = on_error
        self.stream = ""
        self.shards: dict[str, str] = {}
        self.order = ""
        self._single: str | None = None

    @property
    def reached(self) -> Reached | None:
        """How far changes have been told; None before anything is known."""
        return Reached(self.stream, dict(self.shards)) if self.shards else None

    def adopt(self, state: State, past: Iterable[Entry]) -> None:
        """Begin where the bus is. `past` is what it told last, for those who come back."""
        changes = [entry for entry in past if isinstance(entry, Relayed) and entry.epoch == state.epoch]
        self.shards = dict(state.positions)
        single = state.single if [*self.shards] == [state.single] else None
        self.begin(state.epoch, state.stream, single=single, is_new=state.last_id == EMPTY)
        for entry in changes:
            change = self._decoded(entry)
            if change is not None:
                self._sink.tell(entry.shard, change, is_past=True)

    def go_on_in(self, epoch: str) -> None:
        """All that was told is in this order, too, and all that comes."""
        if self.order != epoch:
            self._go_on(epoch, self._single)

    def take(self, entry: Relayed) -> bool:
        """Tell a change, unless it was told before. False when something before it has not been told."""
        at = self.shards.get(entry.shard)
        sequence, last = sequence_at(entry.sequence), sequence_at(at)
        if sequence is None:
            self._on_error(self._table, ValueError(f"The bus has a change without a sequence number: {entry.id}."))
            return True
        if last is not None and sequence <= last:
            return True
        if lacks(at, entry.follows):
            return False
        change = self._decoded(entry)
        self._move(entry.shard, entry.sequence)
        if change is not None:
            self._sink.tell(entry.shard, change)
        return True

    def note(self, reached: Reached | None) -> None:
        """How far a reader of the table's own stream has got, whose changes were told here."""
        if reached is not None:
            self.stream, self.shards = reached.stream, dict(reached.shards)

    def agree(self, positions: Mapping[str, str], before: Mapping[str, str]) -> None:
        """All that is noted had been told `before`: iterators may be newer there, and shards forgotten."""
        for shard in before.keys() - positions.keys():
            del self.shards[shard]
        for shard, at in positions.items():
            if joined_by(at) is not None and not lacks(self.shards.get(shard), at):
                self.shards[shard] = at

    # A sink itself, for a reader of the table's own stream.

    def begin(self, order: str, stream: str, *, single: str | None, is_new: bool = True) -> None:
        self.order, self.stream, self._single = order, stream, single
        self._sink.begin(order, stream, single=single, is_new=is_new)

    def tell(self, shard: str, change: Change, *, is_past: bool = False) -> None:
        last = sequence_at(self.shards.get(shard))
        if last is None or int(change.sequence) > last:
            self.shards[shard] = change.sequence
            self._sink.tell(shard, change, is_past=is_past)

    def lost(self, problem: Exception) -> None:
        """The source tells of it, which sees the reader end."""

    def _move(self, shard: str, sequence: str) -> None:
        self.shards[shard] = sequence
        if self._single is not None and shard != self._single:
            self._go_on(self.order, None)

    def _go_on(self, order: str, single: str | None) -> None:
        self.begin(order, self.stream, single=single, is_new=False)

    def _decoded(self, entry: Relayed) -> Change | None:
        """None for what makes no sense: it does not hold up what comes behind it."""
        try:
            record: Any = orjson.loads(entry.record)
            change = decode_change(self._table, record)
        except Exception as problem:
            self._on_error(self._table, problem)
            return None
        return change
