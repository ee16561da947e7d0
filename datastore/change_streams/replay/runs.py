"""Runs of a table's changes without gaps: for each shard, all changes after a known position."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import NamedTuple

from datastore.change_streams.change import Change
from datastore.change_streams.replay.resume_token import Key, Positions, ResumeToken, idle_again, idle_since
from datastore.change_streams.shards.checkpoints import START, joined_by, sequence_at
from datastore.change_streams.shards.positioned_cursor import CLOCK_SKEW


class LogEntry(NamedTuple):
    """A change in a log."""

    #: Rises with each entry.
    number: int
    shard: Key
    sequence: int
    #: The resume token after the change.
    token: ResumeToken
    change: Change
    #: An estimate of the bytes in memory.
    size: int = 0
    #: The time of arrival (seconds of a monotonic clock).
    at: float = 0.0


@dataclass(slots=True)
class ShardRun:
    """A run's changes of one shard: all changes after a position."""

    #: That position.
    floor: str
    #: The time of the change at `floor`; infinite if it is unknown.
    floor_time: float = inf
    sequences: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def has_all_after(self, position: str) -> bool:
        """Return whether the run has all changes of the shard after a position."""
        if self.floor == START:
            return True
        since, floor = idle_since(position), sequence_at(self.floor)
        if since is not None:
            joined_at = idle_since(self.floor)
            if joined_at is None:
                return self.floor_time <= oldest(since)
            return _origin(self.floor) == _origin(position) or joined_at <= oldest(since)
        sequence = sequence_at(position)
        if sequence is None:
            return False
        if floor is None:
            return bool(self.sequences) and sequence >= self.sequences[0]
        return sequence >= floor

    def first_after(self, position: str) -> int | None:
        """Return the number of the first change that may follow a position; None if there is none yet."""
        start = bisect_right(self.sequences, sequence_at(position) or -1)
        return self.numbers[start] if start < len(self.numbers) else None


class EntryRun:
    """Entries in the order of their numbers, and the position in each shard after which they begin."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.shards: dict[Key, ShardRun] = {}
        self.bytes = 0
        #: The number of the entry that was dropped last.
        self.complete_after: int | None = None

    def has_all_after(self, key: Key, position: str) -> bool:
        shard = self.shards.get(key)
        return shard is not None and shard.has_all_after(position)

    def begin(self, key: Key, floor: str) -> ShardRun:
        """Return the run of a shard. A new run begins after the position `floor`."""
        shard = self.shards.get(key)
        if shard is None:
            shard = self.shards[key] = ShardRun(floor)
        return shard

    def add(self, entry: LogEntry) -> None:
        shard = self.shards.get(entry.shard) or self.begin(entry.shard, START)
        shard.sequences.append(entry.sequence)
        shard.numbers.append(entry.number)
        self.entries.append(entry)
        self.bytes += entry.size

    def drop(self, count: int) -> list[LogEntry]:
        """Drop the oldest entries, and return them."""
        gone = self.entries[:count]
        del self.entries[:count]
        counts: dict[Key, int] = {}
        for entry in gone:
            counts[entry.shard] = counts.get(entry.shard, 0) + 1
            shard = self.shards[entry.shard]
            shard.floor, shard.floor_time = entry.change.sequence, entry.change.time.timestamp()
            self.bytes -= entry.size
        for key, count in counts.items():
            del self.shards[key].sequences[:count], self.shards[key].numbers[:count]
        if gone:
            self.complete_after = gone[-1].number
        return gone

    def after(self, number: int, limit: int) -> list[LogEntry]:
        start = bisect_right(self.entries, number, key=_number)
        return self.entries[start : start + limit]

    def add_all(self, entries: Iterable[LogEntry]) -> None:
        """Add the entries after the last of each shard."""
        for entry in entries:
            shard = self.shards.get(entry.shard)
            if shard is None or not shard.sequences or entry.sequence > shard.sequences[-1]:
                self.add(entry)

    def put_before(self, entries: list[LogEntry], starts: Positions) -> None:
        """Insert entries before all present ones. Their shards were read from the positions in `starts` on."""
        before: dict[Key, list[LogEntry]] = {}
        for entry in entries:
            before.setdefault(entry.shard, []).append(entry)
        for key, position in starts.items():
            self._begin_earlier(key, position, before.get(key, []))
        self.entries[:0] = entries
        self.bytes += sum(entry.size for entry in entries)
        self.complete_after = None

    def _begin_earlier(self, key: Key, position: str, entries: list[LogEntry]) -> None:
        shard, since = self.shards.get(key), idle_since(position)
        # The shard was read from that time on, so the floor contains it.
        floor = position if since is None else idle_again(position, int(oldest(since)))
        if shard is None:
            shard = self.shards[key] = ShardRun(floor)
        elif since is None or entries:
            shard.floor, shard.floor_time = floor, inf
        else:
            shard.floor_time = min(shard.floor_time, oldest(since))
        shard.sequences[:0] = [entry.sequence for entry in entries]
        shard.numbers[:0] = [entry.number for entry in entries]


def oldest(since: int) -> float:
    """Return the time of the oldest change that may follow an `idle` position, allowing for clock differences."""
    return since - CLOCK_SKEW / timedelta(seconds=1)


def _origin(position: str) -> str | None:
    parts = joined_by(position)
    return None if parts is None else parts[0]


def _number(entry: LogEntry) -> int:
    return entry.number
