"""Point reads of one request: everything asked for in one tick goes out together, over all tables."""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from datastore.asking import Ask, Asks
from datastore.attributes import Item, decode_item, encode_item
from datastore.backoff import Backoff
from datastore.client import Client
from datastore.declarations import AccessPattern, Table
from datastore.errors import DomainError, Throttled, Timeout
from datastore.giving_up import Batches
from datastore.keyspace.parts import Key, checked, key_attributes, key_of
from datastore.metering import Deadline, Meter

BATCH_KEYS = 100
UNPROCESSED = Backoff(first=0.05, most=1.0, tries=10)
# Turns of the event loop without another read before a held batch goes out: from a list that came in to the reads of
# its nodes the executor takes some five.
QUIET_TURNS = 12

Address = tuple[Table, Key]


class PointReads(Batches[Address, Item | None]):
    """One GetItem for a single key, BatchGetItem for more, at most 100 keys a call, calls side by side.

    Answers in key order with None for what does not exist. A key that stays unprocessed until the deadline is
    `Throttled`, never None. Belongs to one request: what it read is remembered for that request alone.
    """

    def __init__(self, client: Client, prefix: str, consistent: bool, meter: Meter, deadline: Deadline) -> None:
        super().__init__(max_batch_size=BATCH_KEYS)
        self._client = client
        self._prefix = prefix
        self._consistent = consistent
        self._meter = meter
        self._deadline = deadline
        self._patterns: dict[Address, str] = {}
        self._asks = Asks(meter.hits)
        self._holders = 0
        self._just_released = False
        self._released = asyncio.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Reads asked for meanwhile go out at its end, together with those that are asked for just after it.

        For lists that lead on to point reads. Nothing inside may wait for such a read.
        """
        self._holders += 1
        self._released.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._just_released = True
                self._released.set()

    async def dispatch(self) -> None:
        """Send what is queued, when no list is awaited."""
        # Also when the last list came in before this ran: the reads that it leads to may not have been asked for yet.
        while self._holders or self._just_released:
            await self._released.wait()
            self._just_released = False
            await self._quiet()
        await super().dispatch()

    async def _quiet(self) -> None:
        size, turns = len(self._queue), 0
        while turns < QUIET_TURNS:
            await asyncio.sleep(0)
            turns = turns + 1 if size == len(self._queue) else 0
            size = len(self._queue)

    async def read(self, pattern: AccessPattern, key: Key) -> Item | None:
        """The item, or None. Raises `BadUserInput` for a key DynamoDB would refuse, before it joins a batch."""
        address = self._address(pattern, key)
        # One reader's cancellation is not the others': they wait for the same read.
        return await asyncio.shield(self.load(address))

    def read_ahead(self, pattern: AccessPattern, key: Key) -> None:
        """Have a key read with the others of this turn, for one who will ask for it soon. A failure is theirs."""
        address = self._address(pattern, key, ahead=True)
        self.load(address).add_done_callback(lambda read: read.cancelled() or read.exception())

    def _address(self, pattern: AccessPattern, key: Key, *, ahead: bool = False) -> Address:
        table = pattern.table
        address = table, checked(key, sorts=table.sort is not None)
        self._patterns[address] = pattern.id
        if self._meter.detailed:
            self._asks.note(address, pattern, known=address in self._cache, ahead=ahead)
        return address

    def prime(self, key: Address, value: Item | None) -> Self:
        if self._meter.detailed:
            self._asks.written(key)
        return super().prime(key, value)

    async def batch_load_fn(self, addresses: Sequence[Address]) -> list[Any]:
        """An item, None or an exception for each address."""
        if len(addresses) == 1:
            return [await self._one(*addresses[0])]
        values = await self._many(addresses)
        for address, value in zip(addresses, values, strict=True):
            if isinstance(value, BaseException):
                self.clear(address)  # a failure is not remembered: asked again, it is read again
        return values

    async def _one(self, table: Table, key: Key) -> Item | None:
        request = self._request(table) | {"Key": _encoded(table, key)}
        answer = await self._call("GetItem", request, [(table, key)], self._asked([(table, key)]))
        return decode_item(answer["Item"]) if "Item" in answer else None

    async def _many(self, addresses: Sequence[Address]) -> list[Item | BaseException | None]:
        found: dict[Address, Item | BaseException] = {}
        tables = {self._prefix + table.name: table for table, _ in addresses}
        wanted = self._batch(addresses)
        delays = UNPROCESSED.delays(random.random)
        asks = self._asked(addresses)  # the same in each round
        while wanted:
            try:
                request = {"RequestItems": wanted, "ReturnConsumedCapacity": "TOTAL"}
                answer = await self._call("BatchGetItem", request, addresses, asks)
            except DomainError as problem:  # what came in earlier rounds is served all the same
                found.update(_failed(tables, wanted, problem))
                break
            found.update(_received(tables, answer.get("Responses") or {}))
            wanted = answer.get("UnprocessedKeys") or {}
            if wanted and not await self._may_wait(next(delays, None)):
                found.update(_failed(tables, wanted, Throttled("The store is busy; try again in a moment.")))
                break
        return [found.get(address) for address in addresses]

    async def _may_wait(self, delay: float | None) -> bool:
        try:
            if delay is None or delay >= self._deadline.remaining():
                return False
        except Timeout:
            return False
        await asyncio.sleep(delay)
        return True

    def _asked(self, addresses: Sequence[Address]) -> tuple[Ask, ...]:
        return self._asks.of(addresses) if self._meter.detailed else ()

    async def _call(
        self, operation: str, payload: Mapping[str, Any], addresses: Sequence[Address], asks: tuple[Ask, ...]
    ) -> dict[str, Any]:
        return await self._client.call(
            operation,
            payload,
            timeout=self._deadline.remaining(),
            meter=self._meter,
            patterns=tuple({self._patterns[address]: None for address in addresses}),
            asks=asks,
        )

    def _request(self, table: Table) -> dict[str, Any]:
        request: dict[str, Any] = {"TableName": self._prefix + table.name, "ReturnConsumedCapacity": "TOTAL"}
        return request | ({"ConsistentRead": True} if self._consistent else {})

    def _batch(self, addresses: Sequence[Address]) -> dict[str, Any]:
        request: dict[str, Any] = {}
        for table, key in addresses:
            entry = request.setdefault(self._prefix + table.name, {"Keys": []})
            entry["Keys"].append(_encoded(table, key))
            if self._consistent:
                entry["ConsistentRead"] = True
        return request


def _encoded(table: Table, key: Key) -> dict[str, Any]:
    return encode_item(key_attributes(table, key))


def _received(tables: Mapping[str, Table], responses: Mapping[str, Any]) -> dict[Address, Item]:
    items = ((tables[name], decode_item(raw)) for name, raws in responses.items() for raw in raws)
    return {(table, key_of(table, item)): item for table, item in items}


def _failed(tables: Mapping[str, Table], wanted: Mapping[str, Any], problem: DomainError) -> dict[Address, DomainError]:
    keys = ((tables[name], decode_item(key)) for name, entry in wanted.items() for key in entry["Keys"])
    return {(table, key_of(table, key)): problem for table, key in keys}
