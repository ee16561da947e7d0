"""Point reads of one request: everything asked for in one tick goes out together, over all tables."""

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Self

from datastore.dynamodb.client import Client, consumed
from datastore.dynamodb.codec import Raw, decode_item
from datastore.dynamodb.lazy_item import LazyItem
from datastore.dynamodb.prepared_request import PreparedRequest
from datastore.dynamodb.request_templates import batch_get_item, point_requests
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout
from datastore.explain.trace import ReadTrace, TracedRead
from datastore.model.access_patterns import AccessPattern, Table
from datastore.model.composite_keys import Key, checked, key_of
from datastore.session.dataloader import CancellableDataLoader, Failure, Read
from datastore.session.metering import Deadline, Meter
from datastore.session.read_cache import WHOLE, Address, Narrowed, Parts, PointReadFlight, ReadFreshness
from datastore.session.request_reads import RequestReads

BATCH_KEYS = 100
UNPROCESSED = Backoff(initial=0.05, maximum=1.0, attempts=10)
# Turns of the event loop without another read before a held batch goes out: from a list that came in to the reads of
# its nodes graphql-core's executor takes some five.
QUIET_TURNS = 12
# Compiled execution takes none, for it goes on to the nodes where the list ends, and begins what they ask for. One turn
# is for resolvers that have a list looked through by tasks (`asyncio.gather`) before they answer it: those ask a turn
# later. Which of the two it is, who holds tells: graphql-core runs its fields in tasks, and compiled execution in
# strands, which are no `asyncio.Task`. One that is wrong costs a batch more or idle turns, no answer.
COMPILED_TURNS = 1


class _Held:
    """While it is entered, point reads are held."""

    __slots__ = ("_reads",)

    def __init__(self, reads: "PointReads") -> None:
        self._reads = reads

    def __enter__(self) -> None:
        self._reads.hold()

    def __exit__(self, *_: object) -> None:
        self._reads.release()


class PointReads(CancellableDataLoader[Address, LazyItem | None]):
    """One GetItem for a single key, BatchGetItem for more, at most 100 keys a call, calls side by side.

    Answers in key order with None for what does not exist. A key that stays unprocessed until the deadline is
    `Throttled`, never None. Belongs to one request: what it read is remembered for that request alone. Of what others
    of this process read it takes what `sharing` lets it have (see `read_cache`).
    """

    def __init__(
        self,
        client: Client,
        prefix: str,
        consistent: bool,
        meter: Meter,
        deadline: Deadline,
        sharing: ReadFreshness = ReadFreshness.NEW,
    ) -> None:
        super().__init__(max_batch_size=BATCH_KEYS)
        self._client = client
        self._prefix = prefix
        self._consistent = consistent
        self._meter = meter
        self._deadline = deadline
        self._patterns: dict[Address, str] = {}
        # What is read of items that are not read whole.
        self._parts: dict[Table, dict[Key, tuple[str, ...]]] = {}
        self._asks = ReadTrace(meter.hits)
        shared = client.shared.of(prefix)
        self._units = 0.0
        self._joiner = None if shared is None else RequestReads(shared, consistent, sharing, deadline)
        self._turns = COMPILED_TURNS
        self._holders = 0
        self._just_released = False
        self._released: asyncio.Event | None = None

    @property
    def held(self) -> "_Held":
        """While it is entered, point reads are held."""
        return _Held(self)

    def hold(self) -> None:
        """Reads asked for from now on go out with `release`, together with those that are asked for just after it.

        For lists that lead on to point reads. Nobody may wait for such a read before.
        """
        self._holders += 1
        if isinstance(asyncio.current_task(), asyncio.Task):
            self._turns = QUIET_TURNS
        if self._released is None:
            self._released = asyncio.Event()
        self._released.clear()

    def release(self) -> None:
        self._holders -= 1
        if not self._holders and self._released is not None:
            self._just_released = True
            self._released.set()

    async def dispatch(self) -> None:
        """Send what is queued, when no list is awaited."""
        # Also when the last list came in before this ran: the reads that it leads to may not have been asked for yet.
        while self._released is not None and (self._holders or self._just_released):
            await self._released.wait()
            self._just_released = False
            await self._quiet()
            if not self._holders:
                self._turns = COMPILED_TURNS
        await super().dispatch()

    async def _quiet(self) -> None:
        size, turns = self._size(), 0
        while turns < self._turns:
            await asyncio.sleep(0)
            turns = turns + 1 if size == self._size() else 0
            size = self._size()

    def _size(self) -> int:
        return sum(len(batch.reads) for batch in self._queued)

    def read(self, pattern: AccessPattern, key: Key) -> Awaitable[LazyItem | None]:
        """What is found, or None. Raises `BadUserInput` for a key DynamoDB would refuse, before it joins a batch."""
        return self._brought(self._asked_by(pattern, key))

    async def read_all(
        self, pattern: AccessPattern, keys: Sequence[Key], attributes: tuple[str, ...] | None = None
    ) -> list[LazyItem | Exception | None]:
        """What is found of each, or what went wrong with it: they are waited for together, however many they are.

        With `attributes` no more than those and the keys need be brought. Who asks for more, once they are on their
        way, has them read anew.
        """
        reads: list[Read[Address, LazyItem | None]] = []
        for key in keys:
            try:
                reads.append(self._asked_by(pattern, key, attributes))
            except BadUserInput as refusal:
                reads.append(Read((pattern.table, key), None, Failure(refusal)))
        for read in reads:
            if read.batch is not None:
                await self._over(read.batch)
        return [_problem(read.value) if read.value.__class__ is Failure else read.value for read in reads]

    def read_ahead(self, pattern: AccessPattern, key: Key) -> None:
        """Have a key read with the others of this turn, for one who will ask for it soon. A failure is theirs."""
        self._asked_by(pattern, key, ahead=True)

    def _asked_by(
        self, pattern: AccessPattern, key: Key, attributes: tuple[str, ...] | None = None, *, ahead: bool = False
    ) -> Read[Address, LazyItem | None]:
        table = pattern.table
        address = table, key
        read = self._reads.get(address)
        parts = self._parts.get(table)
        joiner = self._joiner
        if read is not None and parts and not self._is_enough(read, attributes):
            read = None
        if joiner is not None:
            if pattern.shared_ms and read is None:
                joiner.may_keep[address] = pattern.shared_ms
            elif joiner.may_keep and not pattern.shared_ms and not joiner.is_for_all(address):
                read = None
            if joiner.notes:
                joiner.asked_after = joiner.shared.sent
        if read is None:
            checked(key, sorts=table.sort is not None)
            self._patterns[address] = pattern.id
            if attributes is not None:
                if parts is None:
                    parts = self._parts[table] = {}
                parts[key] = attributes
            elif parts:
                parts.pop(key, None)
        if self._meter.detailed:
            self._asks.note(address, pattern, known=read is not None, ahead=ahead)
        return self._begun(address) if read is None else read

    def _is_enough(self, read: Read[Address, LazyItem | None], attributes: tuple[str, ...] | None) -> bool:
        """Whether it brings what is wanted. What is not sent yet is read whole then."""
        table, key = read.key
        parts = self._parts[table]
        if parts.get(key, attributes) == attributes:
            return True
        if read.batch is None:
            return read.value is None  # there is no such item
        if read.batch not in self._queued:
            return False
        del parts[key]
        return True

    def prime(self, key: Address, value: LazyItem | None) -> Self:
        if self._meter.detailed:
            self._asks.written(key)
        if not self.knows(key):
            self._parts.get(key[0], {}).pop(key[1], None)
        return super().prime(key, value)

    def batch_load_fn(self, addresses: Sequence[Address]) -> Coroutine[Any, Any, list[Any]]:
        """An item, None or an exception for each address."""
        joiner = self._joiner
        if joiner is None:
            return self._called(addresses, self._narrowed(addresses))
        flight = joiner.shared.lone(addresses, self._consistent)
        if flight is None:
            return joiner.values(addresses, self._flown, self._wanted, self._told_by_others)
        return self._flown(flight, joiner)

    async def _flown(self, flight: PointReadFlight, joiner: RequestReads) -> list[Any]:
        """The same, from calls of its own, which others may wait for."""
        addresses = flight.addresses
        flight.narrowed = narrowed = self._narrowed(addresses)
        units = self._units
        try:
            values = await self._called(addresses, narrowed)
        except BaseException as problem:
            joiner.shared.end(flight, [problem] * len(addresses), None)
            raise
        # Batches at its side may have added theirs: what is kept takes no more than that.
        joiner.shared.end(flight, values, self._units - units if joiner.may_keep else None)
        return values

    def _called(self, addresses: Sequence[Address], narrowed: Narrowed) -> Coroutine[Any, Any, list[Any]]:
        return self._one(addresses) if len(addresses) == 1 else self._many(addresses, narrowed)

    def _wanted(self, address: Address) -> Parts:
        table, key = address
        return self._parts[table].get(key) if table in self._parts else None

    def _told_by_others(self, address: Address, parts: Parts) -> None:
        """Another request's read has brought it, or those parts of it."""
        table, key = address
        if table in self._parts:
            if parts is None:
                self._parts[table].pop(key, None)
            else:
                self._parts[table][key] = parts
        if self._meter.detailed:
            self._asks.shared(address)

    def _narrowed(self, addresses: Sequence[Address]) -> Narrowed:
        """What is read of the items of each table that are not read whole: also where not all are wanted alike."""
        if not self._parts:
            return WHOLE
        if len(addresses) == 1:
            table, key = addresses[0]
            self._parts.get(table, {}).pop(key, None)
            return WHOLE
        keys: dict[Table, list[Key]] = {}
        for table, key in addresses:
            if table in self._parts:
                keys.setdefault(table, []).append(key)
        parts = {table: self._part(table, of_table) for table, of_table in keys.items()}
        return {table: part for table, part in parts.items() if part is not None}

    async def _one(self, addresses: Sequence[Address]) -> list[LazyItem | None]:
        ((table, key),) = addresses
        request = point_requests(table, self._prefix, self._consistent).get_item(key)
        answer = await self._call("GetItem", request, addresses, self._asked(addresses))
        self._units += consumed(answer)
        return [LazyItem(answer["Item"]) if "Item" in answer else None]

    async def _many(self, addresses: Sequence[Address], narrowed: Narrowed) -> list[LazyItem | BaseException | None]:
        found: dict[tuple[Table, tuple[str, str]], LazyItem | BaseException] = {}
        keys: dict[Table, list[Key]] = {}
        for table, key in addresses:
            keys.setdefault(table, []).append(key)
        tables = {self._prefix + table.name: table for table in keys}
        request: PreparedRequest | Mapping[str, Any] = batch_get_item(
            {
                name: point_requests(table, self._prefix, self._consistent).entry(of_table, narrowed.get(table))
                for (name, table), of_table in zip(tables.items(), keys.values(), strict=True)
            }
        )
        delays = UNPROCESSED.delays(random.random)
        asks = self._asked(addresses)  # the same in each round
        wanted = None
        while True:
            try:
                answer = await self._call("BatchGetItem", request, addresses, asks)
            except DomainError as problem:  # what came in earlier rounds is served all the same
                for address in addresses if wanted is None else _addresses(tables, wanted):
                    found[address] = problem
                break
            self._units += consumed(answer)
            for name, items in (answer.get("Responses") or {}).items():
                _receive(tables[name], items, found)
            wanted = answer.get("UnprocessedKeys")
            if not wanted:
                break
            delay = next(delays, None)
            if not await self._may_wait(delay):
                busy = Throttled("The store is busy; try again in a moment.")
                busy.out_of_time = delay is not None
                found.update(dict.fromkeys(_addresses(tables, wanted), busy))
                break
            request = {"RequestItems": wanted, "ReturnConsumedCapacity": "TOTAL"}
        return [found.get(address) for address in addresses]

    def _part(self, table: Table, keys: Sequence[Key]) -> Parts:
        """What is read of a table's items. None where they are read whole: also where not all are wanted alike."""
        parts = self._parts[table]
        wanted = set(map(parts.get, keys))
        if len(wanted) == 1:
            return wanted.pop()
        for key in keys:
            parts.pop(key, None)
        return None

    async def _may_wait(self, delay: float | None) -> bool:
        try:
            if delay is None or delay >= self._deadline.remaining():
                return False
        except Timeout:
            return False
        await asyncio.sleep(delay)
        return True

    def _asked(self, addresses: Sequence[Address]) -> tuple[TracedRead, ...]:
        return self._asks.of(addresses) if self._meter.detailed else ()

    def _call(
        self,
        operation: str,
        request: PreparedRequest | Mapping[str, Any],
        addresses: Sequence[Address],
        asks: tuple[TracedRead, ...],
    ) -> Awaitable[dict[str, Any]]:
        return self._client.call(
            operation,
            request,
            timeout=self._deadline.remaining(),
            meter=self._meter,
            patterns=tuple(dict.fromkeys(map(self._patterns.__getitem__, addresses))),
            asks=asks,
        )


def _problem(failure: Failure) -> Exception:
    """What is told in the place of an item. Raises what cuts off whoever waits for it."""
    if isinstance(failure.problem, Exception):
        return failure.problem
    raise failure.raised()


def _receive(table: Table, items: Sequence[Raw], found: dict[tuple[Table, tuple[str, str]], Any]) -> None:
    """Keep what was answered of a table under its address: a key is as good as the tuple that it is."""
    partition, sort = table.partition, table.sort
    for raw in items:
        found[table, (raw[partition]["S"], raw[sort]["S"] if sort else "")] = LazyItem(raw)


def _addresses(tables: Mapping[str, Table], wanted: Mapping[str, Any]) -> list[Address]:
    keys = [(tables[name], decode_item(key)) for name, entry in wanted.items() for key in entry["Keys"]]
    return [(table, key_of(table, key)) for table, key in keys]
