"""A request's session with the tables: reads, writes and transactions, metered and limited by its deadline."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from datastore.dynamodb.calls import TracedRead
from datastore.dynamodb.client import Client, ConditionFailed, RequestRefused, TransactionCancelled
from datastore.dynamodb.codec import Item, Raw, decode, decode_item, encode_item
from datastore.dynamodb.read_cache import Address
from datastore.dynamodb.records import LazyItem, QueryPage
from datastore.dynamodb.requests import PreparedRequest, query_or_scan_base, query_template, value_placeholders
from datastore.model.access_patterns import AccessPattern, Table, values_in
from datastore.model.composite_keys import Key
from datastore.model.versioning import incremented_attribute, not_applied_condition
from datastore.session.batch_write import write_batches
from datastore.session.metering import Deadline, Meter
from datastore.session.point_reads import PointReads
from datastore.session.read_trace import current_field
from datastore.session.request_reads import ReadFreshness
from datastore.session.writes import (
    Action,
    WriteResult,
    action_request,
    checked_key,
    encoded_key,
    is_already_applied,
    puts_were_applied,
    with_condition,
    write_request,
)


class Store:
    """The session of one request. Point reads of one turn of the event loop are batched (see `point_reads`)."""

    def __init__(
        self,
        client: Client,
        *,
        prefix: str,
        deadline: Deadline,
        token: Callable[[], str],
        now: Callable[[], datetime],
        meter: Meter | None = None,
    ) -> None:
        self.meter = Meter() if meter is None else meter
        self.deadline = deadline
        #: The reads of other requests that may serve this one. It may be set before the first read.
        self.freshness = ReadFreshness.OWN
        #: Whether the fields of a list's items are resolved as soon as the list has arrived, as compiled operations do.
        self.resolves_at_once = False
        #: Whether another process may have made the same writes before it ended.
        self.is_retry = False
        self._client = client
        #: The prefix of the tables' names.
        self.prefix = prefix
        self._token = token
        #: The time of the request.
        self.now = now
        self._loaders: dict[bool, PointReads] = {}
        self._close_callbacks: list[Callable[[], None]] = []

    def reopened(self, deadline: Deadline) -> "Store":
        """Return a store of the same request, with its own deadline and no previous reads."""
        store = Store(
            self._client, prefix=self.prefix, deadline=deadline, token=self._token, now=self.now, meter=self.meter
        )
        store.freshness, store.resolves_at_once = self.freshness, self.resolves_at_once
        store.is_retry = self.is_retry
        return store

    def _reads(self, consistent: bool) -> PointReads:
        if consistent in self._loaders:
            return self._loaders[consistent]
        reads = PointReads(
            self._client, self.prefix, consistent, self.meter, self.deadline, self.freshness, self.resolves_at_once
        )
        self._loaders[consistent] = reads
        self._close_callbacks.append(reads.abandon)
        return reads

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        self._close_callbacks.append(callback)

    def close(self) -> None:
        """Cancel the queued and in-flight point reads, and call the close callbacks."""
        for callback in self._close_callbacks:
            callback()

    async def get(self, pattern: AccessPattern, key: Key) -> Item | None:
        """Return one item as a plain dict, or None."""
        found = await self.find(pattern, key)
        return None if found is None else found.item

    def find(self, pattern: AccessPattern, key: Key) -> Awaitable[LazyItem | None]:
        """Return one item, decoded later, or None."""
        found = self._reads(pattern.consistent).read(pattern, key)
        return self._unexpired(pattern, found) if pattern.hidden_ttl else found

    async def _unexpired(self, pattern: AccessPattern, found: Awaitable[LazyItem | None]) -> LazyItem | None:
        item = await found
        ttl = None if item is None else item.raw.get(pattern.hidden_ttl)
        return None if ttl is not None and pattern.hides(decode(ttl), self._seconds()) else item

    def _seconds(self) -> float:
        """Return the time with which TTL attributes are compared, in epoch seconds."""
        return self.now().timestamp()

    def _with_time(self, pattern: AccessPattern, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a request, with the time if the pattern leaves out expired items."""
        return {**values, "now": self._seconds()} if pattern.hidden_ttl else values

    def find_all(
        self, pattern: AccessPattern, keys: Sequence[Key], attributes: tuple[str, ...] | None = None
    ) -> Awaitable[list[LazyItem | Exception | None]]:
        """Return for each key its item, None, or its error, in the order of the keys.

        `attributes` is the projection that the caller needs.
        """
        assert not pattern.hidden_ttl, f"{pattern.id}: lists by ids see expired items."
        return self._reads(pattern.consistent).read_all(pattern, keys, attributes)

    def prefetch(self, pattern: AccessPattern, key: Key) -> None:
        """Enqueue a read that a caller will request soon, to batch it with the reads of this turn."""
        self._reads(pattern.consistent).prefetch(pattern, key)

    def defer_dispatch(self) -> AbstractContextManager[None]:
        """Return a context that holds back point reads while a list is read.

        They are then batched with the reads that the list's items cause.
        """
        return self._reads(False)

    def invalidate(self, table: Table, key: Key) -> None:
        """Drop a key from the loaders and the read cache, because it was just written."""
        for reads in self._loaders.values():
            reads.clear((table, key))
        cache = self._client.read_caches.for_prefix(self.prefix)
        if cache is not None:
            cache.invalidate_written((table, key))

    def _prime_loaders(self, table: Table, key: Key, item: Raw | None) -> None:
        """Store a written item in the loaders: an eventually consistent read may not return it yet."""
        for consistent in (False, True):
            self._reads(consistent).prime((table, key), None if item is None else LazyItem(item))

    async def query(
        self,
        pattern: AccessPattern,
        values: Mapping[str, Any],
        *,
        start: Item | None = None,
        limit: int | None = None,
        backward: bool = False,
        attributes: Sequence[str] | None = None,
    ) -> QueryPage:
        """Return one page of the pattern's Query. `backward` reverses its order. `attributes` is the projection."""
        projected = None if attributes is None else tuple(attributes)
        values = self._with_time(pattern, values)
        template = query_template(pattern, self.prefix, tuple(values), backward, projected)
        response = await self._call(pattern, "Query", template.prepared(values, limit, start))
        return QueryPage.of(response)

    async def query_each(
        self, pattern: AccessPattern, partitions: Sequence[Mapping[str, Any]], *, limit: int, backward: bool
    ) -> list[QueryPage | BaseException]:
        """Return the first page of each partition's Query (see `query`), or its error. The Queries are sent at once."""
        partitions = [self._with_time(pattern, values) for values in partitions]
        template = query_template(pattern, self.prefix, tuple(partitions[0]), backward, None)
        responses = await self._client.call_each(
            "Query",
            [template.prepared(values, limit) for values in partitions],
            timeout=self.deadline.remaining(),
            meter=self.meter,
            patterns=(pattern.id,),
            traced=(TracedRead(current_field.get(), pattern.id, pattern.table.name),) if self.meter.detailed else (),
        )
        return [response if isinstance(response, BaseException) else QueryPage.of(response) for response in responses]

    async def query_all(self, pattern: AccessPattern, values: Mapping[str, Any]) -> AsyncIterator[Item]:
        """Yield every item of the pattern's Query."""
        start: Item | None = None
        while True:
            page = await self.query(pattern, values, start=start)
            for item in page.items:
                yield item
            if (start := page.next_start) is None:
                return

    async def query_pages(
        self, pattern: AccessPattern, values: Mapping[str, Any], *, attributes: Sequence[str] | None = None
    ) -> AsyncIterator[list[Item]]:
        """Yield the items by pages of up to one megabyte, also empty ones, for lists that do not fit into memory."""
        start: Item | None = None
        while True:
            page = await self.query(pattern, values, start=start, attributes=attributes)
            yield page.items
            if (start := page.next_start) is None:
                return

    async def scan(self, pattern: AccessPattern, **values: Any) -> list[Item]:
        """Return every item that passes the pattern's filter. The table must be small."""
        return [item async for page in self.scan_pages(pattern, **values) for item in page]

    async def scan_pages(self, pattern: AccessPattern, **values: Any) -> AsyncIterator[list[Item]]:
        """Yield the items by pages of up to one megabyte, for tables that do not fit into memory."""
        start: Item | None = None
        while True:
            page = await self.scan_page(pattern, values, start=start)
            yield page.items
            if (start := page.next_start) is None:
                return

    async def scan_page(
        self, pattern: AccessPattern, values: Mapping[str, Any], *, start: Item | None = None
    ) -> QueryPage:
        """Return one page of the Scan, of up to one megabyte read, for Scans that take longer than a deadline."""
        values = self._with_time(pattern, values)
        request, used = query_or_scan_base(pattern, self.prefix, values)
        request |= value_placeholders(used, values)
        request |= {} if start is None else {"ExclusiveStartKey": encode_item(start)}
        response = await self._call(pattern, "Scan", request)
        return QueryPage.of(response)

    async def count(self, pattern: AccessPattern, values: Mapping[str, Any]) -> int:
        """Return the number of items of the pattern's Query, over all pages, without fetching them."""
        values = self._with_time(pattern, values)
        template = query_template(pattern, self.prefix, tuple(values), False, None, True)
        start: Item | None = None
        total = 0
        while True:
            response = await self._call(pattern, "Query", template.prepared(values, None, start))
            total += int(response["Count"])
            if not response.get("LastEvaluatedKey"):
                return total
            start = decode_item(response["LastEvaluatedKey"])

    async def put(self, pattern: AccessPattern, item: Mapping[str, Any], **values: Any) -> WriteResult:
        """Put the item if the pattern's condition holds."""
        key = checked_key(pattern.table, item)
        condition = pattern.condition
        if condition and pattern.hidden_ttl:
            condition, values = f"{condition} OR {pattern.has_expired}", {**values, "now": self._seconds()}
        request = write_request(self.prefix, pattern.table, condition, "", values) | {"Item": encode_item(item)}
        return await self._write_conditionally(pattern, "PutItem", request, key, lambda _: request["Item"])

    async def update(self, pattern: AccessPattern, key: Key, *, update: str = "", **values: Any) -> WriteResult:
        """Update the item if the pattern's condition holds. `update` is the expression if the pattern has none.

        The retry of an update that increments an attribute has the condition that the item is not yet as the update
        leaves it, so that an ambiguous attempt is not counted twice.
        """
        clauses = [clause for clause in pattern.guard if values_in(clause) <= values.keys()]
        if pattern.condition and pattern.hidden_ttl:
            clauses, values = [pattern.is_live, *clauses], {**values, "now": self._seconds()}
        condition = " AND ".join(([f"({pattern.condition})"] if clauses else [pattern.condition]) + clauses)
        request = write_request(self.prefix, pattern.table, condition, pattern.update or update, values)
        request |= {"Key": encoded_key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        not_applied = not_applied_condition(request["UpdateExpression"])
        retry_request = partial(with_condition, request, not_applied) if not_applied else None
        try:
            written = await self._write_conditionally(pattern, "UpdateItem", request, key, _attributes, retry_request)
        except RequestRefused:
            attribute = incremented_attribute(request["UpdateExpression"])
            if attribute is None:
                raise
            await self._remove_null(pattern, key, attribute)
            written = await self._write_conditionally(pattern, "UpdateItem", request, key, _attributes, retry_request)
        if retry_request is None or written.ok or not written.is_retry or "expected" in values or "never" in values:
            return written
        return WriteResult(
            is_already_applied(request["UpdateExpression"], values, written.item), written.item, is_retry=True
        )

    async def _remove_null(self, pattern: AccessPattern, key: Key, attribute: str) -> None:
        """Remove a version that another program stored as NULL, for version 0. NULL cannot be incremented."""
        condition, update = f"attribute_type(#{attribute}, :null_type)", f"REMOVE #{attribute}"
        request = write_request(self.prefix, pattern.table, condition, update, {"null_type": "NULL"})
        request |= {"Key": encoded_key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        await self._write_conditionally(pattern, "UpdateItem", request, key, _attributes)

    async def write_all(
        self, where: AccessPattern | Table, *, puts: Sequence[Mapping[str, Any]] = (), deletes: Sequence[Key] = ()
    ) -> None:
        """Put and delete any number of items unconditionally (see `batch_write`).

        The last write of a key wins. Deletes come after puts.
        """
        table = _table(where)
        requests = {checked_key(table, item): {"PutRequest": {"Item": encode_item(item)}} for item in puts}
        requests |= {key: {"DeleteRequest": {"Key": encoded_key(table, key)}} for key in deletes}
        try:
            await write_batches(
                partial(self._call, where), self.deadline, self.prefix + table.name, list(requests.values())
            )
        finally:
            for key in requests:
                self.invalidate(table, key)

    async def delete(self, pattern: AccessPattern, key: Key, **values: Any) -> WriteResult:
        """Delete the item if the pattern's condition holds. The result has the deleted item, or None if it was missing.

        `is_retry` is set if an ambiguous attempt may have deleted the item.
        """
        request = write_request(self.prefix, pattern.table, pattern.condition, "", values)
        request |= {"Key": encoded_key(pattern.table, key), "ReturnValues": "ALL_OLD"}
        exists = f"attribute_exists({pattern.table.partition})"
        written = await self._write_conditionally(
            pattern, "DeleteItem", request, key, _attributes, partial(with_condition, request, exists)
        )
        return WriteResult(True, None, is_retry=True) if written.is_retry and written.item is None else written

    async def transact(self, where: AccessPattern | Table, actions: Sequence[Action]) -> None:
        """Apply all of the actions or none. Raises `TransactionCancelled`.

        The request has a client token, so that a retry after a lost response is applied once. DynamoDB remembers the
        token for ten minutes, the embedded engine until its process ends. A transaction that was applied just before
        the engine was killed is recognised by the items that it put.
        """
        table = _table(where)
        bodies = [action_request(self.prefix, action.table or table, action) for action in actions]
        addresses = [self._address(action.table or table, action) for action in actions]
        request = {
            "TransactItems": [{action.kind: body} for action, body in zip(actions, bodies, strict=True)],
            "ClientRequestToken": self._token(),
            "ReturnConsumedCapacity": "TOTAL",
        }
        try:
            await self._call(where, "TransactWriteItems", request)
        except TransactionCancelled as cancelled:
            if not (cancelled.after_lost_response and puts_were_applied(actions, cancelled)):
                raise
        finally:
            for address in addresses:
                self.invalidate(*address)
        for action, address, body in zip(actions, addresses, bodies, strict=True):
            if action.kind in ("Put", "Delete"):
                self._prime_loaders(*address, body.get("Item"))

    def _address(self, table: Table, action: Action) -> Address:
        return table, action.key or checked_key(table, action.item or {})

    async def _write_conditionally(
        self,
        pattern: AccessPattern,
        operation: str,
        request: Mapping[str, Any],
        key: Key,
        result: Callable[[Mapping[str, Any]], Raw | None],
        retry_request: Callable[[], Mapping[str, Any]] | None = None,
    ) -> WriteResult:
        try:
            response = await self._call(pattern, operation, request, retry_request)
        except ConditionFailed as failed:
            return WriteResult(
                False, self._live(pattern, failed.item), is_retry=failed.after_lost_response or self.is_retry
            )
        finally:
            self.invalidate(pattern.table, key)  # after a failed write, too: an earlier read of the item is stale
        item = result(response)
        self._prime_loaders(pattern.table, key, None if operation == "DeleteItem" else item)
        stored = None if item is None else decode_item(item)
        return WriteResult(True, self._live(pattern, stored) if operation == "DeleteItem" else stored)

    def _live(self, pattern: AccessPattern, item: Item | None) -> Item | None:
        """Return the item of a write, or None if it had expired and the pattern leaves out such items."""
        if item is None or not pattern.hidden_ttl:
            return item
        return None if pattern.hides(item.get(pattern.hidden_ttl), self._seconds()) else item

    def _call(
        self,
        where: AccessPattern | Table,
        operation: str,
        request: Mapping[str, Any] | PreparedRequest,
        retry_request: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Awaitable[dict[str, Any]]:
        pattern = where.id if isinstance(where, AccessPattern) else ""
        return self._client.call(
            operation,
            request,
            timeout=self.deadline.remaining(),
            meter=self.meter,
            patterns=(pattern,) if pattern else (),
            traced=(TracedRead(current_field.get(), pattern, _table(where).name),) if self.meter.detailed else (),
            retry_request=retry_request,
        )


def _table(where: AccessPattern | Table) -> Table:
    return where.table if isinstance(where, AccessPattern) else where


def _attributes(response: Mapping[str, Any]) -> Raw | None:
    return response.get("Attributes") or None
