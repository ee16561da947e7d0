"""Batched point reads of one request: the reads of one turn of the event loop are sent together, over all tables."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, cast

from datastore.dynamodb.calls import consumed_units
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Raw, decode_item
from datastore.dynamodb.read_cache import Address, PointReadFlight, Projection, Projections
from datastore.dynamodb.records import LazyItem
from datastore.dynamodb.requests import PreparedRequest, batch_get_item, point_read_template
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout
from datastore.model.access_patterns import AccessPattern, Table
from datastore.model.composite_keys import Key, check_key, key_of
from datastore.session.dataloader import CancellableDataLoader, Failure, Read, ReadBatch
from datastore.session.metering import Deadline, Meter
from datastore.session.read_trace import ReadTrace
from datastore.session.request_reads import ReadFreshness, RequestReads

BATCH_KEYS = 100
UNPROCESSED = Backoff(initial=0.05, maximum=1.0, attempts=10)
# A held batch is sent after this number of turns of the event loop without another read. graphql-core's executor takes
# about five turns from the arrival of a list to the reads of its nodes.
QUIET_TURNS = 12
# Compiled execution takes none: it resolves the nodes as soon as the list has arrived. The one turn is for resolvers
# that filter a list in tasks (`asyncio.gather`) and so read a turn later. A wrong number costs another batch or idle
# turns; the results are the same.
COMPILED_TURNS = 1


class PointRead(Read[Address, LazyItem | None], eq=False):
    """The read of one item."""

    #: The id of the access pattern that caused it.
    pattern: str = ""
    #: The attributes that are read, None for the whole item.
    attributes: Projection = None


class PointReads(CancellableDataLoader[Address, LazyItem | None]):
    """The point reads of one request: GetItem for a single key, concurrent BatchGetItem calls of at most 100 keys.

    A missing item is None. A key that stays unprocessed until the deadline is `Throttled`, never None. The loader keeps
    its results for its own request. `freshness` decides which reads of other requests it uses (see `request_reads`).
    `resolves_at_once`: see `Store`.
    """

    _read_class = PointRead
    _reads: dict[Address, PointRead]  # type: ignore[assignment]

    def __init__(
        self,
        client: Client,
        prefix: str,
        consistent: bool,
        meter: Meter,
        deadline: Deadline,
        freshness: ReadFreshness = ReadFreshness.OWN,
        resolves_at_once: bool = False,
    ) -> None:
        super().__init__(max_batch_size=BATCH_KEYS)
        self._client = client
        self._prefix = prefix
        self._consistent = consistent
        self._meter = meter
        self._deadline = deadline
        self._trace = ReadTrace(meter.hits)
        cache = client.read_caches.for_prefix(prefix)
        self._units = 0.0
        self._request_reads = None if cache is None else RequestReads(cache, consistent, freshness, deadline)
        self._quiet_turns = COMPILED_TURNS if resolves_at_once else QUIET_TURNS
        self._holds = 0
        self._just_released = False

    def __enter__(self) -> None:
        """Hold back reads until `__exit__`, to send them together with the reads that follow.

        It is for lists with items that cause point reads. No caller may wait for a held read inside the block.
        """
        self._holds += 1
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

    async def _wait_until_quiet(self) -> None:
        size, turns = self._queued_count(), 0
        while turns < self._quiet_turns:
            await asyncio.sleep(0)
            turns = turns + 1 if size == self._queued_count() else 0
            size = self._queued_count()

    def _queued_count(self) -> int:
        return sum(len(batch.reads) for batch in self._queued)

    def read(self, pattern: AccessPattern, key: Key) -> Awaitable[LazyItem | None]:
        """Return one item. Raises `BadUserInput` for a key that DynamoDB would refuse."""
        (read,) = self._register(pattern, (key,))
        return self._result(read)

    async def read_all(
        self, pattern: AccessPattern, keys: Sequence[Key], attributes: tuple[str, ...] | None = None
    ) -> list[LazyItem | Exception | None]:
        """Return for each key its item, None, or its error.

        `attributes` is the projection that the caller needs besides the keys. A later read of more attributes is sent
        again.
        """
        reads = self._register(pattern, keys, attributes)
        for read in reads:
            if read.batch is not None:
                await self._waiter(read.batch)
        return [_error_value(read.value) if read.value.__class__ is Failure else read.value for read in reads]

    def prefetch(self, pattern: AccessPattern, key: Key) -> None:
        """Enqueue a read that a caller will request soon. That caller receives the error of the read."""
        self._register(pattern, (key,), ahead=True)

    def _register(
        self,
        pattern: AccessPattern,
        keys: Iterable[Key],
        attributes: tuple[str, ...] | None = None,
        *,
        ahead: bool = False,
    ) -> list[PointRead]:
        """Return the read of each key, enqueued unless an earlier read serves.

        The value of a key that DynamoDB would refuse is the error.
        """
        table, loaded, request_reads = pattern.table, self._reads, self._request_reads
        if request_reads is not None and request_reads.tracks_order:
            request_reads.watermark = request_reads.cache.flights_sent
        reads: list[PointRead] = []
        for key in keys:
            address = table, key
            read = loaded.get(address)
            if read is not None and read.attributes is not None and not self._covers(read, attributes):
                read = None
            if request_reads is not None:
                if pattern.shared_ms and read is None:
                    request_reads.ttl_by_address[address] = pattern.shared_ms
                elif (
                    request_reads.ttl_by_address
                    and not pattern.shared_ms
                    and not request_reads.is_usable_uncached(address)
                ):
                    read = None
            is_loaded = read is not None
            if read is None:
                try:
                    check_key(key, has_sort=table.sort is not None)
                except BadUserInput as refusal:
                    reads.append(PointRead(address, None, Failure(refusal)))
                    continue
                read = PointRead(address, None, None, pattern.id, attributes)
                self._enqueue(read)
            if self._meter.detailed:
                self._trace.record(address, pattern, is_loaded=is_loaded, prefetched=ahead)
            reads.append(read)
        return reads

    def _covers(self, read: PointRead, attributes: tuple[str, ...] | None) -> bool:
        """Return whether an earlier read covers the attributes. Widen a queued read to the whole item."""
        if read.attributes == attributes:
            return True
        if read.batch is None:
            return read.value is None  # a missing item covers every projection
        if read.batch not in self._queued:
            return False
        read.attributes = None
        return True

    def prime(self, key: Address, value: LazyItem | None) -> Self:
        if self._meter.detailed:
            self._trace.mark_written(key)
        return super().prime(key, value)

    def _begin(self, batch: ReadBatch) -> bool:
        """Send the read of a single item, unless a read of another request may serve it."""
        if len(batch.reads) > 1:
            return False
        read = cast(PointRead, batch.reads[0])
        request_reads, flight = self._request_reads, None
        if request_reads is not None:
            flight = request_reads.cache.start_unless_shared((read.key,), self._consistent)
            if flight is None:
                return False
        read.attributes = None
        receive = partial(self._receive, batch, flight)
        table, key = read.key
        try:
            batch.cancel = self._client.start(
                "GetItem",
                point_read_template(table, self._prefix, self._consistent).get_item(key),
                receive,
                timeout=self._deadline.remaining(),
                meter=self._meter,
                patterns=(read.pattern,),
                traced=self._trace.traced((read.key,)) if self._meter.detailed else (),
            ).abandon
        except Exception as problem:
            receive(problem)
        return True

    def _receive(self, batch: ReadBatch, flight: PointReadFlight | None, result: Any) -> None:
        """Complete a single read with the response of its GetItem, or the exception of the call."""
        failed = isinstance(result, BaseException)
        value = result if failed else LazyItem(result["Item"]) if "Item" in result else None
        if flight is not None and self._request_reads is not None:
            caches = self._request_reads.ttl_by_address and not failed
            self._request_reads.cache.finish(flight, (value,), consumed_units(result) if caches else None)
        self._complete(batch, (value,))

    def _load(self, reads: list[PointRead]) -> Coroutine[Any, Any, list[Any]]:  # type: ignore[override]
        """Return the item, None or an exception for each read."""
        request_reads = self._request_reads
        if request_reads is None:
            return self._fetch(reads)
        addresses = [read.key for read in reads]
        flight = request_reads.cache.start_unless_shared(addresses, self._consistent)
        if flight is not None:
            return self._fetch_as_flight(flight, reads, request_reads)
        by_address = {read.key: read for read in reads}

        def fetch(flight: PointReadFlight) -> Awaitable[list[Any]]:
            return self._fetch_as_flight(flight, [by_address[address] for address in flight.addresses], request_reads)

        def on_shared_hit(address: Address, projection: Projection) -> None:
            """Record that another request's read returned the item, or a projection of it."""
            by_address[address].attributes = projection
            if self._meter.detailed:
                self._trace.mark_shared(address)

        return request_reads.load(addresses, fetch, lambda address: by_address[address].attributes, on_shared_hit)

    async def _fetch_as_flight(
        self, flight: PointReadFlight, reads: Sequence[PointRead], request_reads: RequestReads
    ) -> list[Any]:
        """Fetch a flight of this request. Other requests may wait for it."""
        units = self._units
        try:
            values = await self._fetch(reads, flight)
        except BaseException as problem:
            request_reads.cache.finish(flight, [problem] * len(reads), None)
            raise
        # Concurrent batches may have added their units: the estimate of the cached size is then too high.
        request_reads.cache.finish(flight, values, self._units - units if request_reads.ttl_by_address else None)
        return values

    def _fetch(
        self, reads: Sequence[PointRead], flight: PointReadFlight | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Return the results of the reads. Set the projections of the flight."""
        if len(reads) == 1:
            reads[0].attributes = None
            return self._get_item(reads[0])
        by_table: defaultdict[Table, list[PointRead]] = defaultdict(list)
        for read in reads:
            by_table[read.key[0]].append(read)
        common = {table: _common_projection(of_table) for table, of_table in by_table.items()}
        projections = {table: projection for table, projection in common.items() if projection is not None}
        if flight is not None:
            flight.projections = projections
        return self._batch_get_items(reads, by_table, projections)

    async def _get_item(self, read: PointRead) -> list[LazyItem | None]:
        table, key = read.key
        response = await self._client.call(
            "GetItem",
            point_read_template(table, self._prefix, self._consistent).get_item(key),
            timeout=self._deadline.remaining(),
            meter=self._meter,
            patterns=(read.pattern,),
            traced=self._trace.traced((read.key,)) if self._meter.detailed else (),
        )
        if self._request_reads is not None:
            self._units += consumed_units(response)
        return [LazyItem(response["Item"]) if "Item" in response else None]

    async def _batch_get_items(
        self, reads: Sequence[PointRead], by_table: Mapping[Table, Sequence[PointRead]], projections: Projections
    ) -> list[LazyItem | BaseException | None]:
        found: dict[Table, dict[tuple[str, str], LazyItem | BaseException]] = {table: {} for table in by_table}
        tables = {self._prefix + table.name: table for table in by_table}
        request: PreparedRequest | Mapping[str, Any] = batch_get_item(
            {
                name: point_read_template(table, self._prefix, self._consistent).entry(
                    [read.key[1] for read in by_table[table]], projections.get(table)
                )
                for name, table in tables.items()
            }
        )
        delays = UNPROCESSED.delays(random.random)
        patterns = tuple(dict.fromkeys([read.pattern for read in reads]))
        traced = self._trace.traced([read.key for read in reads]) if self._meter.detailed else ()
        unprocessed = None
        while True:
            try:
                response = await self._client.call(
                    "BatchGetItem",
                    request,
                    timeout=self._deadline.remaining(),
                    meter=self._meter,
                    patterns=patterns,
                    traced=traced,
                )
            except DomainError as problem:  # the items of earlier rounds are returned nevertheless
                failed = [read.key for read in reads] if unprocessed is None else _addresses(tables, unprocessed)
                for table, key in failed:
                    found[table][key] = problem
                break
            if self._request_reads is not None:
                self._units += consumed_units(response)
            for name, items in (response.get("Responses") or {}).items():
                found[tables[name]] |= _items_by_key(tables[name], items)
            unprocessed = response.get("UnprocessedKeys")
            if not unprocessed:
                break
            delay = next(delays, None)
            if not await self._wait_before_retry(delay):
                busy = Throttled("The store is busy; try again in a moment.")
                busy.out_of_time = delay is not None
                for table, key in _addresses(tables, unprocessed):
                    found[table][key] = busy
                break
            request = {"RequestItems": unprocessed, "ReturnConsumedCapacity": "TOTAL"}
        return [found[read.key[0]].get(read.key[1]) for read in reads]

    async def _wait_before_retry(self, delay: float | None) -> bool:
        try:
            if delay is None or delay >= self._deadline.remaining():
                return False
        except Timeout:
            return False
        await asyncio.sleep(delay)
        return True


def _common_projection(reads: Sequence[PointRead]) -> Projection:
    """Return the attributes that all these reads need. If the needs differ, read the items whole."""
    needs = {read.attributes for read in reads}
    if len(needs) == 1:
        return needs.pop()
    for read in reads:
        read.attributes = None
    return None


def _error_value(failure: Failure) -> Exception:
    """Return the error as a value. Raises a cancellation."""
    if isinstance(failure.error, Exception):
        return failure.error
    raise failure.exception()


def _items_by_key(table: Table, items: Sequence[Raw]) -> dict[tuple[str, str], LazyItem]:
    """Return the items of a table by their keys. A plain tuple equals a `Key` and is faster to make."""
    partition, sort = table.partition, table.sort
    if sort is None:
        return {(raw[partition]["S"], ""): LazyItem(raw) for raw in items}
    return {(raw[partition]["S"], raw[sort]["S"]): LazyItem(raw) for raw in items}


def _addresses(tables: Mapping[str, Table], unprocessed: Mapping[str, Any]) -> list[Address]:
    keys = [(tables[name], decode_item(key)) for name, entry in unprocessed.items() for key in entry["Keys"]]
    return [(table, key_of(table, key)) for table, key in keys]
