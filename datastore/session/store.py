"""`Store`: one request's way to the tables. Every call is metered and honours the request's deadline."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from datastore.dynamodb.client import Client, ConditionFailed, RequestRefused, TransactionCancelled
from datastore.dynamodb.codec import Item, Raw, decode_item, encode_item
from datastore.dynamodb.expressions import placeholders, value_placeholders
from datastore.dynamodb.lazy_item import LazyItem
from datastore.dynamodb.prepared_request import PreparedRequest
from datastore.dynamodb.request_templates import QueryRequest, filtered, query_request
from datastore.explain.trace import TracedRead, current_field
from datastore.model.access_patterns import AccessPattern, Table, values_in
from datastore.model.composite_keys import Key, checked, key_attributes, key_of
from datastore.model.versioning import counts, undone
from datastore.session.batch_write import write_batches
from datastore.session.idempotent_writes import is_already_applied, is_stored, with_condition
from datastore.session.metering import Deadline, Meter
from datastore.session.point_reads import PointReads
from datastore.session.read_cache import Address, ReadFreshness


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How a conditional write ended: `ok` with the item as it is now, or not, with the item that was in the way.

    `repeated` tells that the answer to an earlier try was lost, or who executed this mutation before is gone: the write
    may itself have put that item there.
    """

    ok: bool
    item: Item | None
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a transaction: "Put" with an item, "Update", "Delete" or "ConditionCheck" with a key.

    `table` is for an action on another table than the transaction's.
    """

    kind: str
    item: Mapping[str, Any] | None = None
    key: Key | None = None
    update: str = ""
    condition: str = ""
    values: Mapping[str, Any] | None = None
    table: Table | None = None


class QueryPage:
    """One page of a Query: the items that passed the filter, how many were looked at, where the next page starts.

    `raw` are the items as DynamoDB answered them.
    """

    __slots__ = ("_items", "_next_start", "raw", "scanned")

    def __init__(self, raw: list[Raw], scanned: int, next_start: Raw | None) -> None:
        self.raw = raw
        self.scanned = scanned
        self._items: list[Item] | None = None
        self._next_start = next_start

    @property
    def items(self) -> list[Item]:
        """The items as plain dicts."""
        if self._items is None:
            self._items = [decode_item(raw) for raw in self.raw]
        return self._items

    @property
    def next_start(self) -> Item | None:
        return decode_item(self._next_start) if self._next_start else None


class Store:
    """A request's view of the store. Point reads of one tick go out as one BatchGetItem (see `point_reads`).

    `sharing` tells which reads of other requests serve this one; it may be set until the first is made. `repeats` tells
    that all that is written may have been written before, by another process that is gone.
    """

    def __init__(
        self,
        client: Client,
        *,
        prefix: str,
        deadline: Deadline,
        token: Callable[[], str],
        meter: Meter | None = None,
    ) -> None:
        self.meter = Meter() if meter is None else meter
        self.deadline = deadline
        self.freshness = ReadFreshness.OWN
        self.is_retry = False
        self._client = client
        self._prefix = prefix
        self._token = token
        self._loaders: dict[bool, PointReads] = {}
        self._close_callbacks: list[Callable[[], None]] = []

    def _reads(self, consistent: bool) -> PointReads:
        reads = self._loaders.get(consistent)
        if reads is None:
            reads = PointReads(self._client, self._prefix, consistent, self.meter, self.deadline, self.freshness)
            self._loaders[consistent] = reads
            self.add_close_callback(reads.abandon)
        return reads

    def add_close_callback(self, act: Callable[[], None]) -> None:
        """Have this done when the store is closed."""
        self._close_callbacks.append(act)

    def close(self) -> None:
        """Give up all reads that others may share: whoever asked for them has gone."""
        for act in self._close_callbacks:
            act()

    async def get(self, pattern: AccessPattern, key: Key) -> Item | None:
        found = await self.find(pattern, key)
        return None if found is None else found.item

    def find(self, pattern: AccessPattern, key: Key) -> Awaitable[LazyItem | None]:
        """The same, to make a record of."""
        return self._reads(pattern.consistent).read(pattern, key)

    def find_all(
        self, pattern: AccessPattern, keys: Sequence[Key], attributes: tuple[str, ...] | None = None
    ) -> Awaitable[list[LazyItem | Exception | None]]:
        """The same of many keys, in their order; what went wrong stands in the place of what it befell.

        With `attributes` nothing else has to be brought of the items.
        """
        return self._reads(pattern.consistent).read_all(pattern, keys, attributes)

    def prefetch(self, pattern: AccessPattern, key: Key) -> None:
        """Have what will be asked for in a moment read together with what is asked for now."""
        self._reads(pattern.consistent).prefetch(pattern, key)

    def defer_dispatch(self) -> AbstractContextManager[None]:
        """While a list is read whose items lead on to point reads: others wait and go out with those, as one batch."""
        return self._reads(False).dispatch_hold

    def invalidate(self, table: Table, key: Key) -> None:
        """Drop what was read of a key, because it was just written."""
        for reads in self._loaders.values():
            reads.clear((table, key))
        cache = self._client.shared.for_prefix(self._prefix)
        if cache is not None:
            cache.invalidate_written((table, key))

    def _prime_loaders(self, table: Table, key: Key, item: Raw | None) -> None:
        """Keep what a write left at a key, once forgotten: an eventually consistent read may not have it yet."""
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
        """One page of the pattern's Query. `backward` turns its declared order round; `attributes` projects."""
        projected = None if attributes is None else tuple(attributes)
        template = query_request(pattern, self._prefix, tuple(values), backward, projected)
        answer = await self._call(pattern, "Query", _fill(template, values, limit, start))
        return QueryPage(answer["Items"], answer["ScannedCount"], answer.get("LastEvaluatedKey"))

    async def query_all(self, pattern: AccessPattern, values: Mapping[str, Any]) -> AsyncIterator[Item]:
        """Every item of the pattern's Query, page after page."""
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
        """The same a page at a time, up to a megabyte each: for lists that are too long to hold. Empty pages too."""
        start: Item | None = None
        while True:
            page = await self.query(pattern, values, start=start, attributes=attributes)
            yield page.items
            if (start := page.next_start) is None:
                return

    async def scan(self, pattern: AccessPattern, **values: Any) -> list[Item]:
        """Every item of the table that passes the pattern's filter: for small tables whose pattern is a Scan."""
        return [item async for page in self.scan_pages(pattern, **values) for item in page]

    async def scan_pages(self, pattern: AccessPattern, **values: Any) -> AsyncIterator[list[Item]]:
        """Yield the items a page at a time, up to a megabyte each, for tables that do not fit into memory."""
        start: Item | None = None
        while True:
            page = await self.scan_page(pattern, values, start=start)
            yield page.items
            if (start := page.next_start) is None:
                return

    async def scan_page(
        self, pattern: AccessPattern, values: Mapping[str, Any], *, start: Item | None = None
    ) -> QueryPage:
        """Return one page of the Scan, of up to a megabyte read, for scans that take longer than a deadline."""
        request, used = filtered(pattern, self._prefix, values)
        request |= value_placeholders(used, values)
        request |= {} if start is None else {"ExclusiveStartKey": encode_item(start)}
        answer = await self._call(pattern, "Scan", request)
        return QueryPage(answer["Items"], answer["ScannedCount"], answer.get("LastEvaluatedKey"))

    async def count(self, pattern: AccessPattern, values: Mapping[str, Any]) -> int:
        """How many items the pattern's Query has, over all pages, without fetching them."""
        template = query_request(pattern, self._prefix, tuple(values), None, None)
        start: Item | None = None
        total = 0
        while True:
            answer = await self._call(pattern, "Query", _fill(template, values, None, start))
            total += int(answer["Count"])
            if not answer.get("LastEvaluatedKey"):
                return total
            start = decode_item(answer["LastEvaluatedKey"])

    async def put(self, pattern: AccessPattern, item: Mapping[str, Any], **values: Any) -> WriteResult:
        """Put the item if the pattern's condition holds; else the item that is there."""
        key = self._checked_key(pattern.table, item)
        request = self._write_request(pattern.table, pattern.condition, "", values) | {"Item": encode_item(item)}
        return await self._write_conditionally(pattern, "PutItem", request, key, lambda _: request["Item"])

    async def update(self, pattern: AccessPattern, key: Key, *, update: str = "", **values: Any) -> WriteResult:
        """Update the item if the pattern's condition holds; `update` says what where the pattern leaves it open.

        What counts is not counted again where the answer to an earlier try was lost: an item that is as the update
        leaves it was left so by that try.
        """
        clauses = [clause for clause in pattern.guard if values_in(clause) <= values.keys()]
        condition = " AND ".join(([f"({pattern.condition})"] if clauses else [pattern.condition]) + clauses)
        request = self._write_request(pattern.table, condition, pattern.update or update, values)
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        not_applied = undone(request["UpdateExpression"])
        retry_request = partial(with_condition, request, not_applied) if not_applied else None
        try:
            written = await self._write_conditionally(pattern, "UpdateItem", request, key, _attributes, retry_request)
        except RequestRefused:
            attribute = counts(request["UpdateExpression"])
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
        """Others write a version that is not there as null, too, to which nothing can be added. Both are 0."""
        condition, update = f"attribute_type(#{attribute}, :nothing)", f"REMOVE #{attribute}"
        request = self._write_request(pattern.table, condition, update, {"nothing": "NULL"})
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        await self._write_conditionally(pattern, "UpdateItem", request, key, _attributes)

    async def write_all(
        self, where: AccessPattern | Table, *, puts: Sequence[Mapping[str, Any]] = (), deletes: Sequence[Key] = ()
    ) -> None:
        """Put and delete any number of items unconditionally (see `batch_write`). The last of equal keys counts."""
        table = _table(where)
        requests = {self._checked_key(table, item): {"PutRequest": {"Item": encode_item(item)}} for item in puts}
        requests |= {key: {"DeleteRequest": {"Key": self._key(table, key)}} for key in deletes}
        try:
            await write_batches(
                partial(self._call, where), self.deadline, self._prefix + table.name, list(requests.values())
            )
        finally:
            for key in requests:
                self.invalidate(table, key)

    async def delete(self, pattern: AccessPattern, key: Key, **values: Any) -> WriteResult:
        """Delete the item if the pattern's condition holds; `item` is what was there, None when nothing was.

        Where the answer to an earlier try was lost and nothing is there, it is `repeated`.
        """
        request = self._write_request(pattern.table, pattern.condition, "", values)
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_OLD"}
        there = f"attribute_exists({pattern.table.partition})"
        written = await self._write_conditionally(
            pattern, "DeleteItem", request, key, _attributes, partial(with_condition, request, there)
        )
        return WriteResult(True, None, is_retry=True) if written.is_retry and written.item is None else written

    async def transact(self, where: AccessPattern | Table, actions: Sequence[Action]) -> None:
        """All of the actions or none. Raises `TransactionCancelled` with a reason and an item for each.

        They are on that table, or on the pattern's, unless they name another.

        The request carries a token, so that a try repeated after a lost answer is applied once. DynamoDB keeps it for
        ten minutes, and an embedded engine for as long as its process lives: one that was applied before it was killed
        is known by what it has put.
        """
        table = _table(where)
        bodies = [self._action(action.table or table, action) for action in actions]
        addresses = [self._address(action.table or table, action) for action in actions]
        request = {
            "TransactItems": [{action.kind: body} for action, body in zip(actions, bodies, strict=True)],
            "ClientRequestToken": self._token(),
            "ReturnConsumedCapacity": "TOTAL",
        }
        try:
            await self._call(where, "TransactWriteItems", request)
        except TransactionCancelled as cancelled:
            if not (cancelled.is_retry and _puts_were_applied(actions, cancelled)):
                raise
        finally:
            for address in addresses:
                self.invalidate(*address)
        for action, address, body in zip(actions, addresses, bodies, strict=True):
            if action.kind in ("Put", "Delete"):
                self._prime_loaders(*address, body.get("Item"))

    def _address(self, table: Table, action: Action) -> Address:
        return table, action.key or self._checked_key(table, action.item or {})

    def _action(self, table: Table, action: Action) -> dict[str, Any]:
        body = self._write_request(table, action.condition, action.update, action.values or {})
        del body["ReturnConsumedCapacity"]
        if action.item is not None:
            self._checked_key(table, action.item)
            return body | {"Item": encode_item(action.item)}
        assert action.key is not None
        return body | {"Key": self._key(table, action.key)}

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
            answer = await self._call(pattern, operation, request, retry_request)
        except ConditionFailed as failed:
            return WriteResult(False, failed.item, is_retry=failed.is_retry or self.is_retry)
        finally:
            self.invalidate(pattern.table, key)  # if the write failed, what was read before is no longer true either
        item = result(answer)
        self._prime_loaders(pattern.table, key, None if operation == "DeleteItem" else item)
        return WriteResult(True, None if item is None else decode_item(item))

    def _write_request(self, table: Table, condition: str, update: str, values: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "TableName": self._prefix + table.name,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if condition:
            request["ConditionExpression"] = condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if update:
            request["UpdateExpression"] = update
        return request | placeholders((condition, update), values)

    def _key(self, table: Table, key: Key) -> dict[str, Any]:
        return encode_item(key_attributes(table, checked(key, sorts=table.sort is not None)))

    def _checked_key(self, table: Table, item: Mapping[str, Any]) -> Key:
        return checked(key_of(table, item), sorts=table.sort is not None)

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


def _puts_were_applied(actions: Sequence[Action], cancelled: TransactionCancelled) -> bool:
    """Whether each item that is put on a condition was refused for being there as it is put. All are, or none."""
    puts = [
        found
        for found in zip(actions, cancelled.reasons, cancelled.items, strict=True)
        if _is_conditional_put(found[0])
    ]
    return bool(puts) and all(
        reason == "ConditionalCheckFailed" and is_stored(action.item, there) for action, reason, there in puts
    )


def _is_conditional_put(action: Action) -> bool:
    return action.item is not None and action.condition != ""


def _table(where: AccessPattern | Table) -> Table:
    return where.table if isinstance(where, AccessPattern) else where


def _fill(
    template: QueryRequest, values: Mapping[str, Any], limit: int | None, start: Mapping[str, Any] | None
) -> PreparedRequest:
    try:
        return template.prepared(values, limit, start)
    except TypeError as problem:  # half a surrogate pair
        raise RequestRefused("SerializationException", str(problem)) from problem


def _attributes(answer: Mapping[str, Any]) -> Raw | None:
    return answer.get("Attributes") or None
