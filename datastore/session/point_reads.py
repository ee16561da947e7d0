"""Batched point reads of one request: the reads of one turn of the event loop are sent together, over all tables."""

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Self

from datastore.dynamodb.calls import TracedRead, consumed_units
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Raw, decode_item
from datastore.dynamodb.read_cache import WHOLE_ITEMS, Address, PointReadFlight, Projection, Projections
from datastore.dynamodb.records import LazyItem
from datastore.dynamodb.requests import PreparedRequest, batch_get_item, point_read_template
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout
from datastore.model.access_patterns import AccessPattern, Table
from datastore.model.composite_keys import Key, check_key, key_of
from datastore.session.dataloader import CancellableDataLoader, Failure, Read
from datastore.session.metering import Deadline, Meter
from datastore.session.read_trace import ReadTrace
from datastore.session.request_reads import ReadFreshness, RequestReads

BATCH_KEYS = 100
UNPROCESSED = Backoff(initial=0.05, maximum=1.0, attempts=10)
# A held batch is sent after this number of turns of the event loop without another read. graphql-core's executor takes
# about five turns from the arrival of a list to the reads of its nodes.
QUIET_TURNS = 12
# Compiled execution takes none: it resolves the nodes as soon as the list has arrived. The one turn is for resolvers
# that filter a list in tasks (`asyncio.gather`) and so read a turn later. The task that holds shows the executor:
# graphql-core resolves fields in tasks, compiled execution in coroutine drivers, which are not `asyncio.Task`. A wrong
# number costs another batch or idle turns; the results are the same.
COMPILED_TURNS = 1


class PointReads(CancellableDataLoader[Address, LazyItem | None]):
    """The point reads of one request: GetItem for a single key, concurrent BatchGetItem calls of at most 100 keys.

    A missing item is None. A key that stays unprocessed until the deadline is `Throttled`, never None. The loader keeps
    its results for its own request. `freshness` decides which reads of other requests it uses (see `request_reads`).
    """

    def __init__(
        self,
        client: Client,
        prefix: str,
        consistent: bool,
        meter: Meter,
        deadline: Deadline,
        freshness: ReadFreshness = ReadFreshness.OWN,
    ) -> None:
        super().__init__(max_batch_size=BATCH_KEYS)
        self._client = client
        self._prefix = prefix
        self._consistent = consistent
        self._meter = meter
        self._deadline = deadline
        self._patterns: dict[Address, str] = {}
        # The requested attributes of items that are not read whole.
        self._projections: dict[Table, dict[Key, tuple[str, ...]]] = {}
        self._trace = ReadTrace(meter.hits)
        cache = client.read_caches.for_prefix(prefix)
        self._units = 0.0
        self._request_reads = None if cache is None else RequestReads(cache, consistent, freshness, deadline)
        self._quiet_turns = COMPILED_TURNS
        self._holds = 0
        self._just_released = False

    def __enter__(self) -> None:
        """Hold back reads until `__exit__`, to send them together with the reads that follow.

        It is for lists with items that cause point reads. No caller may wait for a held read inside the block.
        """
        self._holds += 1
        if isinstance(asyncio.current_task(), asyncio.Task):
            self._quiet_turns = QUIET_TURNS
        if self._released is None:
            self._released = asyncio.Event()
        self._released.clear()

    def __exit__(self, *_: object) -> None:
        self._holds -= 1
        if not self._holds and self._released is not None:
            self._just_released = True
            self._released.set()

    async def _wait_for_release(self) -> None:
        # Wait also after a hold that ended before this ran: the reads that its list causes may not be queued yet.
        while self._released is not None and (self._holds or self._just_released):
            await self._released.wait()
            self._just_released = False
            await self._wait_until_quiet()
            if not self._holds:
                self._quiet_turns = COMPILED_TURNS

    async def _wait_until_quiet(self) -> None:
        size, turns = self._queued_count(), 0
        while turns < self._quiet_turns:
            await asyncio.sleep(0)
            turns = turns + 1 if size == self._queued_count() else 0
            size = self._queued_count()

    def _queued_count(self) -> int:
        return sum(len(batch.reads) for batch in self._queued)

    def read(self, pattern: AccessPattern, key: Key) -> Awaitable[LazyItem | None]:
        """Return one item. Raises `BadUserInput` at once for a key that DynamoDB would refuse."""
        return self._result(self._register(pattern, key))

    async def read_all(
        self, pattern: AccessPattern, keys: Sequence[Key], attributes: tuple[str, ...] | None = None
    ) -> list[LazyItem | Exception | None]:
        """Return for each key its item, None, or its error.

        `attributes` is the projection that the caller needs besides the keys. A later read of more attributes is sent
        again.
        """
        reads: list[Read[Address, LazyItem | None]] = []
        for key in keys:
            try:
                reads.append(self._register(pattern, key, attributes))
            except BadUserInput as refusal:
                reads.append(Read((pattern.table, key), None, Failure(refusal)))
        for read in reads:
            if read.batch is not None:
                await self._waiter(read.batch)
        return [_error_value(read.value) if read.value.__class__ is Failure else read.value for read in reads]

    def prefetch(self, pattern: AccessPattern, key: Key) -> None:
        """Enqueue a read that a caller will request soon. That caller receives the error of the read."""
        self._register(pattern, key, ahead=True)

    def _register(
        self, pattern: AccessPattern, key: Key, attributes: tuple[str, ...] | None = None, *, ahead: bool = False
    ) -> Read[Address, LazyItem | None]:
        table = pattern.table
        address = table, key
        read = self._reads.get(address)
        projections = self._projections.get(table)
        request_reads = self._request_reads
        if read is not None and projections and not self._covers(read, attributes):
            read = None
        if request_reads is not None:
            if pattern.shared_ms and read is None:
                request_reads.ttl_by_address[address] = pattern.shared_ms
            elif (
                request_reads.ttl_by_address and not pattern.shared_ms and not request_reads.is_usable_uncached(address)
            ):
                read = None
            if request_reads.tracks_order:
                request_reads.watermark = request_reads.cache.flights_sent
        if read is None:
            check_key(key, has_sort=table.sort is not None)
            self._patterns[address] = pattern.id
            if attributes is not None:
                if projections is None:
                    projections = self._projections[table] = {}
                projections[key] = attributes
            elif projections:
                projections.pop(key, None)
        if self._meter.detailed:
            self._trace.record(address, pattern, is_loaded=read is not None, prefetched=ahead)
        return self._enqueue(address) if read is None else read

    def _covers(self, read: Read[Address, LazyItem | None], attributes: tuple[str, ...] | None) -> bool:
        """Return whether an earlier read covers the attributes. Widen a queued read to the whole item."""
        table, key = read.key
        projections = self._projections[table]
        if projections.get(key, attributes) == attributes:
            return True
        if read.batch is None:
            return read.value is None  # a missing item covers every projection
        if read.batch not in self._queued:
            return False
        del projections[key]
        return True

    def prime(self, key: Address, value: LazyItem | None) -> Self:
        if self._meter.detailed:
            self._trace.mark_written(key)
        if not self.has(key):
            self._projections.get(key[0], {}).pop(key[1], None)
        return super().prime(key, value)

    def batch_load_fn(self, addresses: Sequence[Address]) -> Coroutine[Any, Any, list[Any]]:
        """Return the item, None or an exception for each address."""
        request_reads = self._request_reads
        if request_reads is None:
            return self._fetch(addresses, self._batch_projections(addresses) if self._projections else WHOLE_ITEMS)
        flight = request_reads.cache.start_unless_shared(addresses, self._consistent)
        if flight is None:
            return request_reads.load(addresses, self._fetch_as_flight, self._projection_of, self._on_shared_hit)
        return self._fetch_as_flight(flight, request_reads)

    async def _fetch_as_flight(self, flight: PointReadFlight, request_reads: RequestReads) -> list[Any]:
        """Fetch a flight of this request. Other requests may wait for it."""
        addresses = flight.addresses
        flight.projections = projections = self._batch_projections(addresses) if self._projections else WHOLE_ITEMS
        units = self._units
        try:
            values = await self._fetch(addresses, projections)
        except BaseException as problem:
            request_reads.cache.finish(flight, [problem] * len(addresses), None)
            raise
        # Concurrent batches may have added their units: the estimate of the cached size is then too high.
        request_reads.cache.finish(flight, values, self._units - units if request_reads.ttl_by_address else None)
        return values

    def _fetch(self, addresses: Sequence[Address], projections: Projections) -> Coroutine[Any, Any, list[Any]]:
        return self._get_item(addresses) if len(addresses) == 1 else self._batch_get_items(addresses, projections)

    def _projection_of(self, address: Address) -> Projection:
        table, key = address
        return self._projections[table].get(key) if table in self._projections else None

    def _on_shared_hit(self, address: Address, projections: Projection) -> None:
        """Record that another request's read returned the item, or a projection of it."""
        table, key = address
        if table in self._projections:
            if projections is None:
                self._projections[table].pop(key, None)
            else:
                self._projections[table][key] = projections
        if self._meter.detailed:
            self._trace.mark_shared(address)

    def _batch_projections(self, addresses: Sequence[Address]) -> Projections:
        """Return the projections of a batch, for each table whose items all need the same attributes."""
        if len(addresses) == 1:
            table, key = addresses[0]
            self._projections.get(table, {}).pop(key, None)
            return WHOLE_ITEMS
        keys: dict[Table, list[Key]] = {}
        for table, key in addresses:
            if table in self._projections:
                keys.setdefault(table, []).append(key)
        projections = {table: self._common_projection(table, of_table) for table, of_table in keys.items()}
        return {table: part for table, part in projections.items() if part is not None}

    async def _get_item(self, addresses: Sequence[Address]) -> list[LazyItem | None]:
        ((table, key),) = addresses
        request = point_read_template(table, self._prefix, self._consistent).get_item(key)
        answer = await self._call("GetItem", request, addresses, self._traced(addresses))
        if self._request_reads is not None:
            self._units += consumed_units(answer)
        return [LazyItem(answer["Item"]) if "Item" in answer else None]

    async def _batch_get_items(
        self, addresses: Sequence[Address], projections: Projections
    ) -> list[LazyItem | BaseException | None]:
        found: dict[tuple[Table, tuple[str, str]], LazyItem | BaseException] = {}
        keys: dict[Table, list[Key]] = {}
        for table, key in addresses:
            keys.setdefault(table, []).append(key)
        tables = {self._prefix + table.name: table for table in keys}
        request: PreparedRequest | Mapping[str, Any] = batch_get_item(
            {
                name: point_read_template(table, self._prefix, self._consistent).entry(of_table, projections.get(table))
                for (name, table), of_table in zip(tables.items(), keys.values(), strict=True)
            }
        )
        delays = UNPROCESSED.delays(random.random)
        traced = self._traced(addresses)  # the same in each round
        unprocessed = None
        while True:
            try:
                answer = await self._call("BatchGetItem", request, addresses, traced)
            except DomainError as problem:  # the items of earlier rounds are returned nevertheless
                for address in addresses if unprocessed is None else _addresses(tables, unprocessed):
                    found[address] = problem
                break
            if self._request_reads is not None:
                self._units += consumed_units(answer)
            for name, items in (answer.get("Responses") or {}).items():
                _store_items(tables[name], items, found)
            unprocessed = answer.get("UnprocessedKeys")
            if not unprocessed:
                break
            delay = next(delays, None)
            if not await self._wait_before_retry(delay):
                busy = Throttled("The store is busy; try again in a moment.")
                busy.out_of_time = delay is not None
                found.update(dict.fromkeys(_addresses(tables, unprocessed), busy))
                break
            request = {"RequestItems": unprocessed, "ReturnConsumedCapacity": "TOTAL"}
        return [found.get(address) for address in addresses]

    def _common_projection(self, table: Table, keys: Sequence[Key]) -> Projection:
        """Return the attributes that all these items need, or None to read them whole if the needs differ."""
        projections = self._projections[table]
        needs = set(map(projections.get, keys))
        if len(needs) == 1:
            return needs.pop()
        for key in keys:
            projections.pop(key, None)
        return None

    async def _wait_before_retry(self, delay: float | None) -> bool:
        try:
            if delay is None or delay >= self._deadline.remaining():
                return False
        except Timeout:
            return False
        await asyncio.sleep(delay)
        return True

    def _traced(self, addresses: Sequence[Address]) -> tuple[TracedRead, ...]:
        return self._trace.traced(addresses) if self._meter.detailed else ()

    def _call(
        self,
        operation: str,
        request: PreparedRequest | Mapping[str, Any],
        addresses: Sequence[Address],
        traced: tuple[TracedRead, ...],
    ) -> Awaitable[dict[str, Any]]:
        return self._client.call(
            operation,
            request,
            timeout=self._deadline.remaining(),
            meter=self._meter,
            patterns=tuple(dict.fromkeys(map(self._patterns.__getitem__, addresses))),
            traced=traced,
        )


def _error_value(failure: Failure) -> Exception:
    """Return the error as a value. Raises a cancellation."""
    if isinstance(failure.error, Exception):
        return failure.error
    raise failure.exception()


def _store_items(table: Table, items: Sequence[Raw], found: dict[tuple[Table, tuple[str, str]], Any]) -> None:
    """Store the items of a table by their addresses. A plain tuple equals a `Key` and is faster to make."""
    partition, sort = table.partition, table.sort
    for raw in items:
        found[table, (raw[partition]["S"], raw[sort]["S"] if sort else "")] = LazyItem(raw)


def _addresses(tables: Mapping[str, Table], unprocessed: Mapping[str, Any]) -> list[Address]:
    keys = [(tables[name], decode_item(key)) for name, entry in unprocessed.items() for key in entry["Keys"]]
    return [(table, key_of(table, key)) for table, key in keys]
