"""The source of a table's changes in a process with a bus: the bus, or the table's stream while the bus is away.

After any failure of the bus one comparison decides: the positions stored in Redis against those delivered here. A
process that is behind them reads the table's stream from its own position until it has caught up, and then returns to
the bus.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from datastore.change_streams.change_source import ChangeSink
from datastore.change_streams.relay.commands import BusUnavailable, Entry, Relayed, RelayState, is_later_id
from datastore.change_streams.relay.deduplication import Deduplicator, Record
from datastore.change_streams.relay.leader import RelayLeader
from datastore.change_streams.relay.publisher import MakeReader
from datastore.change_streams.shards.checkpoints import lacking
from datastore.change_streams.shards.stream_reader import FINAL, StreamReader
from datastore.primitives.tasks import cancel

if TYPE_CHECKING:
    from datastore.change_streams.relay.bus import Bus

# The seconds between two comparisons of the positions: usually, and during a transition.
TICK_SECONDS, SHORT_TICK_SECONDS = 1.0, 0.05
# After these seconds without a process that relays the table, this process reads the table's stream.
NO_LEADER_SECONDS = 1.0
PAST_MILLISECONDS = 120_000
SLICE, SLICE_PAUSE_SECONDS = 50, 0.001


class BusSource:
    """A `ChangeSource` that follows one table until it is stopped, or changes are lost."""

    #: The id of the bus's entry up to which it has read; None while it reads the table's own stream.
    position: str | None

    def __init__(
        self,
        bus: "Bus",
        table: str,
        sink: ChangeSink,
        make: MakeReader,
        on_error: Callable[[str, Exception], None],
        now: Callable[[], datetime],
    ) -> None:
        self.table = table
        self.problem: Exception | None = None
        self.position = None
        self._bus = bus
        self._sink = sink
        self._make = make
        self._on_error = on_error
        self._now = now
        self._delivered = Deduplicator(table, sink, on_error, now)
        self._leader = RelayLeader(
            bus,
            table,
            make,
            on_page=lambda page: bus.count_relayed(page, now()),
            on_end=self.wake,
            on_error=on_error,
        )
        self._direct: StreamReader | None = None
        self._epoch = ""
        self._is_inconsistent = False
        self._no_leader_since: float | None = None
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        bus.follow(self)
        self._task = asyncio.create_task(self._run(), name=f"changes of {table} by the bus")

    @property
    def is_attached(self) -> bool:
        return self._settled.is_set() and self.problem is None

    @property
    def is_direct(self) -> bool:
        """Whether this process reads the table's stream for itself."""
        return self._direct is not None

    @property
    def is_relaying(self) -> bool:
        return self._leader.is_relaying

    async def attached(self) -> None:
        """Return once `is_attached`. Raises the store's error if it cannot be reached at first."""
        await self._settled.wait()
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # followers share it: keep no frames of others

    async def stop(self) -> None:
        self._bus.forget(self)
        await cancel(self._task)

    def wake(self) -> None:
        """Reconcile the positions at once."""
        self._wake.set()

    # Entries of the bus

    async def receive(self, position: str, entries: Sequence[tuple[str, Entry]]) -> None:
        """Deliver the entries that follow `position`, unless the source moves to another position."""
        delivered = 0
        for entry_id, entry in entries:
            if self.position != position or self._is_inconsistent:
                return
            for shard, parent, record in self._new_in(entry_id, entry):
                self._delivered.deliver_record(shard, parent, record)
                delivered += 1
                # Spread a large page over time, so that only slow followers overflow.
                await asyncio.sleep(0 if delivered % SLICE else SLICE_PAUSE_SECONDS)
                if self.position != position:
                    return
            if self._is_inconsistent:
                return
            self.position = position = entry_id

    def mark_inconsistent(self, problem: Exception) -> None:
        """Report a problem with the bus's entries. The next reconciliation finds out whether changes were missed."""
        self._on_error(self.table, problem)
        self._is_inconsistent = True
        self.wake()

    def _new_in(self, entry_id: str, entry: Entry) -> Iterable[tuple[str, str | None, Record]]:
        if not isinstance(entry, Relayed):
            if b"free" in entry:
                self.wake()
            else:
                self._on_error(self.table, ValueError(f"Entry {entry_id} of the bus holds no changes."))
            return []
        records = self._delivered.undelivered_records(entry) if entry.epoch == self._epoch else None
        if records is None:
            # The entry is of another epoch, or follows a gap. The positions stored in Redis decide which.
            self.mark_inconsistent(
                ValueError(f"Entry {entry_id} of the bus does not follow the changes delivered before it.")
            )
            return []
        self._bus.count_received(entry, len(records))
        return [(entry.shard, entry.parent, record) for record in records]

    # Reconciliation

    async def _run(self) -> None:
        try:
            while True:
                seconds = await self._reconcile()
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._wake.wait()
                self._wake.clear()
        except Exception as problem:
            self.problem = problem
            self._sink.lost(problem)
            self._on_error(self.table, problem)
        finally:
            self.position = None
            self._settled.set()
            if self._direct is not None:
                await self._direct.stop()
            if self._bus.is_away:
                await self._leader.stop_relay()
            else:
                await self._leader.release()

    async def _reconcile(self) -> float:
        """Compare the positions and act on the result. Return the seconds until the next comparison."""
        try:
            is_passing = await self._check_bus()
        except BusUnavailable as problem:
            self._bus.mark_unavailable(problem)
            is_passing = False
        if self._bus.is_away:
            await self._leader.stop_relay()
            self._read_directly()
        self._check_reader()
        return SHORT_TICK_SECONDS if is_passing or not self._settled.is_set() else TICK_SECONDS

    async def _check_bus(self) -> bool:
        """Return whether a transition is under way, which needs another check soon. Raises `BusUnavailable`."""
        if self._bus.is_away:
            return False
        position, shards = self.position, dict(self._delivered.shards)
        state = await self._leader.claim()
        await self._leader.run_relay(state, self._delivered.reached)
        if not state.has_live_epoch:
            self._wait_for_leader()
            return True
        self._no_leader_since = None
        if self._direct is not None:
            await self._return_to_bus(state)
        elif self._delivered.reached is None:
            await self._join(state)
        elif position is None or not self._is_continuous(state, position):
            self._skip_to_bus_position(state)
        elif position == state.last_id:
            self._compare(state, shards)
        return self.is_direct

    def _is_continuous(self, state: RelayState, position: str) -> bool:
        """Return whether the bus's next entries follow the changes delivered here."""
        return state.epoch == self._epoch and not self._is_inconsistent and not is_later_id(position, state.last_id)

    def _is_behind(self, state: RelayState) -> bool:
        return state.stream != self._delivered.stream or lacking(self._delivered.shards, state.positions)

    def _skip_to_bus_position(self, state: RelayState) -> None:
        """Continue at the bus's present position if no change was missed."""
        if self._is_behind(state):
            self._read_directly()
        else:
            self._follow_bus(state)

    def _compare(self, state: RelayState, shards: Mapping[str, str]) -> None:
        """Check that no change is missing after all entries were received. `shards` are the positions at that time."""
        if self._is_behind(state):
            self._read_directly()
            return
        self._delivered.reconcile(state, shards)

    def _wait_for_leader(self) -> None:
        """Wait up to `NO_LEADER_SECONDS` for a process to relay the table, then read its stream."""
        now = asyncio.get_running_loop().time()
        if self._no_leader_since is None:
            self._no_leader_since = now
        if self._leader.refused is not None or now - self._no_leader_since > NO_LEADER_SECONDS:
            self._read_directly()

    async def _join(self, state: RelayState) -> None:
        """Begin with the bus's state. No change has been delivered here yet."""
        since = round(self._now().timestamp() * 1000) - PAST_MILLISECONDS
        past = await self._bus.commands.past(self.table, since, state.last_id)
        await self._delivered.start_from(state, past)
        self._follow_bus(state)

    def _follow_bus(self, state: RelayState) -> None:
        """Deliver changes from the bus from now on."""
        self._epoch, self.position, self._is_inconsistent = state.epoch, state.last_id, False
        self._leader.refused = None
        self._settled.set()
        self._bus.follow(self)

    # The table's own stream

    def _read_directly(self) -> None:
        if self._direct is None:
            self.position = None
            self._direct = self._make(StreamReader, self._delivered, self._delivered.reached)

    def _check_reader(self) -> None:
        """Record the reader's position. Raise the error that ended the reader, if a retry would fail as well."""
        reader = self._direct
        if reader is None:
            return
        self._delivered.set_position(reader.reached)
        if reader.problem is not None:
            if isinstance(reader.problem, FINAL) or not self._settled.is_set():
                raise reader.problem
            self._direct = None
        elif reader.is_attached:
            self._settled.set()

    async def _return_to_bus(self, state: RelayState) -> None:
        """Return to the bus once no change that was appended there is missing here."""
        reader = self._direct
        assert reader is not None
        self._delivered.set_position(reader.reached)
        if (reader.is_attached or state.lease) and not self._is_behind(state):
            await reader.stop()
            self._delivered.set_position(reader.reached)
            self._direct = None
            self._follow_bus(state)
