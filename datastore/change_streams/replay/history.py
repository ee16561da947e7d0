"""The recent changes of one table, and the lookup of the changes after a resume token of any process."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto

from datastore.change_streams.broadcast import Broadcaster
from datastore.change_streams.change import Change
from datastore.change_streams.change_sizes import size_of
from datastore.change_streams.replay.resume_token import (
    MOVES,
    UNKNOWN,
    Key,
    Moves,
    Positions,
    ResumeToken,
    idle,
    idle_since,
    key_of,
)
from datastore.change_streams.replay.runs import EntryRun, LogEntry, oldest
from datastore.change_streams.shards.checkpoints import START, joined_by, sequence_at
from datastore.change_streams.shards.parents import Parents, Seen

MAX_CHANGES = 10_000
MAX_BYTES = 16_000_000
KEPT_SECONDS = 300.0
# The number of ended shards that are kept, since resume tokens may still name them.
MAX_ENDED_SHARDS = 100


class Lack(Enum):
    """The reason why the changes after a resume token are unknown."""

    LISTING = auto()  # the token names unknown shards
    AHEAD = auto()  # the token is later than the changes that have arrived
    OLDER = auto()  # changes after the token are no longer held


class History(Broadcaster[LogEntry]):
    """Changes in the order of their arrival, within bounds, preceded by older changes that were read again.

    Each new change is published to the subscribers. No method waits.
    """

    #: The ARN of the stream; "" before the first epoch.
    stream: str
    #: Increases when the older changes that were read again are replaced or dropped.
    generation: int
    #: The number of the last change that has arrived.
    last_number: int
    #: The resume token after that change.
    last_token: ResumeToken

    def __init__(
        self,
        *,
        on_publish: Callable[[LogEntry], None] = lambda _: None,
        max_changes: int = MAX_CHANGES,
        max_bytes: int = MAX_BYTES,
        kept_seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(on_publish)
        self._max_changes, self._max_bytes, self._kept = max_changes, max_bytes, kept_seconds
        self._clock = clock
        self.stream = ""
        self.parents = Parents()
        self._forgetting: asyncio.TimerHandle | None = None
        self._older: EntryRun | None = None
        self._changed = asyncio.Event()
        self.generation = 0
        self._clear()

    def _clear(self) -> None:
        self._forget_older()
        self._recent = EntryRun()
        self._frontier: dict[Key, str] = {}
        self._moves = Moves({})
        self.parents.clear()
        self.last_number = self._lowest = 0
        self.last_token = UNKNOWN

    # Input

    def start_epoch(
        self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float
    ) -> None:
        if stream != self.stream:
            self._clear()
            self.stream = stream
        for shard, parent in parents.items():
            self.parents.learn(self._key(shard), None if parent is None else self._key(parent))
        begun = {self._key(shard): position for shard, position in positions.items()}
        ended = self.parents.all_ancestors([*begun, *self._frontier])
        for key, position in begun.items():
            if key not in self._recent.shards and key not in ended:
                origin = joined_by(position)
                self._frontier[key] = position if origin is None else idle(origin[0], since)
                self._recent.begin(key, self._frontier[key])
        for key in ended:
            self._frontier.pop(key, None)
        self._set_positions(max(self.last_token.time, int(since)))

    def start_shard(self, shard: str, parent: str | None) -> None:
        key = self._key(shard)
        self.parents.learn(key, None if parent is None else self._key(parent))
        if key in self._recent.shards:
            return
        self._recent.begin(key, START)
        for ancestor in self.parents.ancestors(key):
            self._frontier.pop(ancestor, None)
        self._frontier[key] = START
        self._set_positions(self.last_token.time)
        self._wake()

    def deliver(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        key = key_of(self.stream, shard)
        if key not in self._frontier:
            self.start_shard(shard, parent)
        elif int(change.sequence) <= (sequence_at(self._frontier[key]) or -1):
            return  # a reader whose iterator has expired repeats changes that have arrived before
        number = self.last_number = self.last_number + 1
        if key in self._frontier:
            self._frontier[key] = change.sequence
            self._move(key, change.sequence, int(change.time.timestamp()))
        entry = LogEntry(number, key, int(change.sequence), self.last_token, change, size_of(change), self._clock())
        self._recent.add(entry)
        self.drop()
        if not is_past:
            self.publish(entry)
        self._wake()

    def _key(self, shard: str) -> Key:
        return key_of(self.stream, shard)

    def _set_positions(self, seconds: int) -> None:
        """Start a new set of positions after the set of shards has changed."""
        self._moves = Moves(self._frontier)
        self.last_token = ResumeToken(key_of(self.stream, ""), seconds, self._moves)

    def _move(self, key: Key, position: str, seconds: int) -> None:
        if len(self._moves.moves) >= max(MOVES, len(self._frontier)):
            self._set_positions(seconds)
        else:
            self._moves.moves.append((key, position))
            self.last_token = ResumeToken(self.last_token.stream, seconds, self._moves, len(self._moves.moves))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def drop(self) -> None:
        """Drop changes beyond the bounds. The owner also calls it from time to time while no change arrives."""
        earliest = self._clock() - self._kept
        run, entries, dropped, size = self._recent, self._recent.entries, 0, self._recent.bytes
        while len(entries) - dropped > 1 and (
            len(entries) - dropped > self._max_changes or size > self._max_bytes or entries[dropped].at < earliest
        ):
            size -= entries[dropped].size
            dropped += 1
        if not dropped:
            return
        gone = run.drop(dropped)
        self._forget_ended()
        if self._older is not None:
            self._older.add_all(gone)
            self._bound_older(self._older)

    def _forget_ended(self) -> None:
        """Drop the oldest ended shards beyond `MAX_ENDED_SHARDS`: resume tokens may still name the others."""
        shards = self._recent.shards
        limit = MAX_ENDED_SHARDS + len(self._frontier)
        if len(shards) <= limit:
            return
        ended = [key for key, shard in shards.items() if key not in self._frontier and not shard.sequences]
        for key in ended[: len(shards) - limit]:
            del shards[key]
        self.parents.keep(shards.keys())

    def _bound_older(self, older: EntryRun) -> None:
        dropped, size = 0, older.bytes
        while len(older.entries) - dropped > self._max_changes or size > self._max_bytes:
            size -= older.entries[dropped].size
            dropped += 1
        if dropped:
            older.drop(dropped)
            self.generation += 1

    # Queries

    def after(self, number: int, limit: int, generation: int) -> list[LogEntry] | None:
        """Return the first changes after a number, or None if the number must be looked up again by the token."""
        older, recent = self._older, self._recent
        if older is not None and older.entries and number < older.entries[-1].number:
            return older.after(number, limit) if generation == self.generation else None
        is_before = number < (recent.complete_after or 0)  # changes that were read again have negative numbers
        if is_before and (older is None or generation != self.generation):
            return None
        return recent.after(number, limit)

    def seen_by(self, token: ResumeToken) -> Seen:
        """Return the changes that a client with this token has seen."""
        return Seen(self.parents, token.positions)

    def is_news(self, seen: Seen, entry: LogEntry) -> bool:
        """Return whether a change comes after the client's positions."""
        position = seen.before(entry.shard)
        if position is None:
            return False
        since = idle_since(position)
        if since is None:
            return entry.sequence > (sequence_at(position) or -1)
        return self._is_same_joining(entry.shard, position) or entry.change.time.timestamp() >= oldest(since)

    def _is_same_joining(self, key: Key, position: str) -> bool:
        run = self._recent.shards.get(key)
        own, other = joined_by(run.floor if run else ""), joined_by(position)
        return own is not None and other is not None and own[0] == other[0]

    def _is_ahead(self, key: Key, position: str) -> bool:
        """Return whether a position is later than the changes of the shard that have arrived."""
        if key not in self._recent.shards:
            return any(ancestor in self._frontier for ancestor in self.parents.ancestors(key))
        sequence, arrived = sequence_at(position), sequence_at(self._frontier.get(key))
        if sequence is None or key not in self._frontier or joined_by(self._frontier[key]) is not None:
            return False
        return arrived is None or sequence > arrived

    def number_of(self, token: ResumeToken) -> int | None:
        """Return the number after which a follower with this token continues, or None if it is unknown."""
        found = self._found(token.positions)
        return found if isinstance(found, int) else None

    def _found(self, positions: Positions) -> int | Lack:
        seen, numbers = Seen(self.parents, positions), [self.last_number + 1]
        if not self.parents.is_known(positions):
            return Lack.LISTING
        if any(self._is_ahead(key, position) for key, position in positions.items()):
            return Lack.AHEAD
        older = () if self._older is None else self._older.shards
        for key in {*positions, *self._recent.shards, *older} - seen.ended:
            if key not in positions and not seen.is_related(key):
                return Lack.LISTING
            first = self._first_after(key, positions.get(key, START))
            if first is None:
                return Lack.OLDER
            numbers.append(first)
        return min(numbers) - 1

    def _first_after(self, key: Key, position: str) -> int | None:
        """Return the number of the shard's first change after a position, or None unless all of them are held."""
        for run in (self._recent, self._older):
            if run is not None and run.has_all_after(key, position):
                first = run.shards[key].first_after(position)
                recent = self._recent.shards.get(key)
                if first is None and recent is not None and recent.numbers:
                    first = recent.numbers[0]
                return self.last_number + 1 if first is None else first
        return None

    def _is_idle(self, key: Key) -> bool:
        return joined_by(self._frontier.get(key) or START) is not None

    def _insert_older(self, starts: Positions, changes: Collection[tuple[str, Change]]) -> bool:
        """Insert changes that were read from these positions on before the held ones; return False if beyond bounds."""
        older = self._older or EntryRun()
        size = sum(size_of(change) for _, change in changes)
        if len(older.entries) + len(changes) > self._max_changes or older.bytes + size > self._max_bytes:
            return False
        first = self._lowest - len(changes)
        entries = [
            LogEntry(first + index, self._key(shard), int(change.sequence), UNKNOWN, change, size_of(change))
            for index, (shard, change) in enumerate(changes)
        ]
        older.put_before(entries, starts)
        self._stop_forgetting()
        self._older, self._lowest = older, first
        self.generation += 1
        self._forgetting = asyncio.get_running_loop().call_later(self._kept, self._forget_older)
        return True

    def _forget_older(self) -> None:
        """Drop the changes that were read again. A follower that has not read them all has then missed changes."""
        self._stop_forgetting()
        self._older = None
        self.generation += 1

    def _stop_forgetting(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = None
