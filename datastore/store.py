"""`Store`: one request's way to the tables. Every call is metered and honours the request's deadline."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from datastore.asking import Ask, asking
from datastore.attributes import Item, decode_item, encode, encode_item
from datastore.client import Client, ConditionFailed, RequestRefused
from datastore.declarations import AccessPattern, Table, aliases_in, values_in
from datastore.keyspace.parts import Key, checked, key_attributes, key_of
from datastore.keyspace.versioning import counts
from datastore.loading import Address, PointReads
from datastore.metering import Deadline, Meter
from datastore.writing import write_batches


@dataclass(frozen=True, slots=True)
class Written:
    """How a conditional write ended: `ok` with the item as it is now, or not, with the item that was in the way.

    `repeated` tells that the answer to an earlier try was lost, so that the write may itself have put that item there.
    """

    ok: bool
    item: Item | None
    repeated: bool = False


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


@dataclass(frozen=True, slots=True)
class QueryPage:
    """One page of a Query: the items that passed the filter, how many were looked at, where the next page starts."""

    items: list[Item]
    scanned: int
    next_start: Item | None


class Store:
    """A request's view of the store. Point reads of one tick go out as one BatchGetItem (see `loading`)."""

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
        self._client = client
        self._prefix = prefix
        self._token = token
        self._on_close: list[Callable[[], None]] = []

    @cached_property
    def _reads(self) -> PointReads:
        return self._reading(False)

    @cached_property
    def _consistent_reads(self) -> PointReads:
        return self._reading(True)

    def _reading(self, consistent: bool) -> PointReads:
        reads = PointReads(self._client, self._prefix, consistent, self.meter, self.deadline)
        self.on_close(reads.give_up)
        return reads

    def on_close(self, act: Callable[[], None]) -> None:
        """Have this done when the store is closed."""
        self._on_close.append(act)

    def close(self) -> None:
        """Give up all reads that others may share: whoever asked for them has gone."""
        for act in self._on_close:
            act()

    async def get(self, pattern: AccessPattern, key: Key) -> Item | None:
        reads = self._consistent_reads if pattern.consistent else self._reads
        return await reads.read(pattern, key)

    def get_ahead(self, pattern: AccessPattern, key: Key) -> None:
        """Have what will be asked for in a moment read together with what is asked for now."""
        reads = self._consistent_reads if pattern.consistent else self._reads
        reads.read_ahead(pattern, key)

    @contextmanager
    def leading_on(self) -> Iterator[None]:
        """While a list is read whose items lead on to point reads: others wait and go out with those, as one batch."""
        with self._reads.held():
            yield

    def forget(self, table: Table, key: Key) -> None:
        """Drop what was read of a key, because it was just written."""
        for name in ("_reads", "_consistent_reads"):
            if name in self.__dict__:
                self.__dict__[name].clear((table, key))

    def _remember(self, table: Table, key: Key, item: Item | None) -> None:
        """Keep what a write left at a key, once forgotten: an eventually consistent read may not have it yet."""
        for reads in (self._reads, self._consistent_reads):
            reads.prime((table, key), item)

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
        request = self._query(pattern, values) | {"ScanIndexForward": pattern.descending is backward}
        if start is not None:
            request["ExclusiveStartKey"] = encode_item(start)
        if limit is not None:
            request["Limit"] = limit
        if attributes is not None:
            request.update(_projection(attributes, request.get("ExpressionAttributeNames", {})))
        answer = await self._call(pattern, "Query", request)
        return QueryPage([decode_item(item) for item in answer["Items"]], answer["ScannedCount"], _next(answer))

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
        request = self._filtered(pattern, "", values)
        found: list[Item] = []
        while True:
            answer = await self._call(pattern, "Scan", request)
            found += [decode_item(item) for item in answer["Items"]]
            if not answer.get("LastEvaluatedKey"):
                return found
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def count(self, pattern: AccessPattern, values: Mapping[str, Any]) -> int:
        """How many items the pattern's Query has, over all pages, without fetching them."""
        request = self._query(pattern, values) | {"Select": "COUNT"}
        total = 0
        while True:
            answer = await self._call(pattern, "Query", request)
            total += int(answer["Count"])
            if not answer.get("LastEvaluatedKey"):
                return total
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def put(self, pattern: AccessPattern, item: Mapping[str, Any], **values: Any) -> Written:
        """Put the item if the pattern's condition holds; else the item that is there."""
        key = self._checked_key(pattern.table, item)
        request = self._write(pattern.table, pattern.condition, "", values) | {"Item": encode_item(item)}
        return await self._conditional(pattern, "PutItem", request, key, lambda _: decode_item(request["Item"]))

    async def update(self, pattern: AccessPattern, key: Key, *, update: str = "", **values: Any) -> Written:
        """Update the item if the pattern's condition holds; `update` says what where the pattern leaves it open."""
        clauses = [clause for clause in pattern.guard if values_in(clause) <= values.keys()]
        condition = " AND ".join(([f"({pattern.condition})"] if clauses else [pattern.condition]) + clauses)
        request = self._write(pattern.table, condition, pattern.update or update, values)
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        try:
            return await self._conditional(pattern, "UpdateItem", request, key, _attributes)
        except RequestRefused:
            attribute = counts(request["UpdateExpression"])
            if attribute is None:
                raise
            await self._take_away_null(pattern, key, attribute)
            return await self._conditional(pattern, "UpdateItem", request, key, _attributes)

    async def _take_away_null(self, pattern: AccessPattern, key: Key, attribute: str) -> None:
        """Others write a version that is not there as null, too, to which nothing can be added. Both are 0."""
        condition, update = f"attribute_type(#{attribute}, :nothing)", f"REMOVE #{attribute}"
        request = self._write(pattern.table, condition, update, {"nothing": "NULL"})
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_NEW"}
        await self._conditional(pattern, "UpdateItem", request, key, _attributes)

    async def write_all(
        self, where: AccessPattern | Table, *, puts: Sequence[Mapping[str, Any]] = (), deletes: Sequence[Key] = ()
    ) -> None:
        """Put and delete any number of items, unconditionally: see `writing`. Of two with one key the last counts."""
        table = _table(where)
        requests = {self._checked_key(table, item): {"PutRequest": {"Item": encode_item(item)}} for item in puts}
        requests |= {key: {"DeleteRequest": {"Key": self._key(table, key)}} for key in deletes}
        try:
            await write_batches(
                partial(self._call, where), self.deadline, self._prefix + table.name, list(requests.values())
            )
        finally:
            for key in requests:
                self.forget(table, key)

    async def delete(self, pattern: AccessPattern, key: Key, **values: Any) -> Written:
        """Delete the item if the pattern's condition holds; `item` is what was there, None when nothing was."""
        request = self._write(pattern.table, pattern.condition, "", values)
        request |= {"Key": self._key(pattern.table, key), "ReturnValues": "ALL_OLD"}
        return await self._conditional(pattern, "DeleteItem", request, key, _attributes)

    async def transact(self, where: AccessPattern | Table, actions: Sequence[Action]) -> None:
        """All of the actions or none. Raises `TransactionCancelled` with a reason and an item for each.

        They are on that table, or on the pattern's, unless they name another.

        The request carries a token, so that a try repeated after a lost answer is applied once.
        """
        table = _table(where)
        bodies = [self._action(action.table or table, action) for action in actions]
        places = [self._place(action.table or table, action) for action in actions]
        request = {
            "TransactItems": [{action.kind: body} for action, body in zip(actions, bodies, strict=True)],
            "ClientRequestToken": self._token(),
            "ReturnConsumedCapacity": "TOTAL",
        }
        try:
            await self._call(where, "TransactWriteItems", request)
        finally:
            for place in places:
                self.forget(*place)
        for action, place, body in zip(actions, places, bodies, strict=True):
            if action.kind in ("Put", "Delete"):
                self._remember(*place, decode_item(body["Item"]) if "Item" in body else None)

    def _place(self, table: Table, action: Action) -> Address:
        return table, action.key or self._checked_key(table, action.item or {})

    def _action(self, table: Table, action: Action) -> dict[str, Any]:
        body = self._write(table, action.condition, action.update, action.values or {})
        del body["ReturnConsumedCapacity"]
        if action.item is not None:
            self._checked_key(table, action.item)
            return body | {"Item": encode_item(action.item)}
        assert action.key is not None
        return body | {"Key": self._key(table, action.key)}

    async def _conditional(
        self,
        pattern: AccessPattern,
        operation: str,
        request: Mapping[str, Any],
        key: Key,
        result: Callable[[Mapping[str, Any]], Item | None],
    ) -> Written:
        try:
            answer = await self._call(pattern, operation, request)
        except ConditionFailed as failed:
            return Written(False, failed.item, repeated=failed.repeated)
        finally:
            self.forget(pattern.table, key)  # if the write failed, what was read before is no longer true either
        item = result(answer)
        self._remember(pattern.table, key, None if operation == "DeleteItem" else item)
        return Written(True, item)

    def _query(self, pattern: AccessPattern, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._filtered(pattern, pattern.key, values) | {"KeyConditionExpression": pattern.key}

    def _filtered(self, pattern: AccessPattern, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        clauses = [clause for clause in pattern.filter if values_in(clause) <= values.keys()]
        request: dict[str, Any] = {
            "TableName": self._prefix + pattern.table.name,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if pattern.index is not None:
            request["IndexName"] = pattern.index
        if pattern.consistent:
            request["ConsistentRead"] = True
        if clauses:
            request["FilterExpression"] = " AND ".join(clauses)
        request.update(_placeholders((key, *clauses), values))
        return request

    def _write(self, table: Table, condition: str, update: str, values: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "TableName": self._prefix + table.name,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if condition:
            request["ConditionExpression"] = condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if update:
            request["UpdateExpression"] = update
        return request | _placeholders((condition, update), values)

    def _key(self, table: Table, key: Key) -> dict[str, Any]:
        return encode_item(key_attributes(table, checked(key, sorts=table.sort is not None)))

    def _checked_key(self, table: Table, item: Mapping[str, Any]) -> Key:
        return checked(key_of(table, item), sorts=table.sort is not None)

    async def _call(self, where: AccessPattern | Table, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        pattern = where.id if isinstance(where, AccessPattern) else ""
        return await self._client.call(
            operation,
            request,
            timeout=self.deadline.remaining(),
            meter=self.meter,
            patterns=(pattern,) if pattern else (),
            asks=(Ask(asking.get(), pattern, _table(where).name),) if self.meter.detailed else (),
        )


def _table(where: AccessPattern | Table) -> Table:
    return where.table if isinstance(where, AccessPattern) else where


def _placeholders(expressions: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The names and values that the expressions use, and no more: DynamoDB refuses unused ones."""
    names = aliases_in(*expressions)
    used = values_in(*expressions)
    found: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
    if used:
        found["ExpressionAttributeValues"] = {f":{name}": encode(values[name]) for name in used}
    return found


def _projection(attributes: Sequence[str], names: Mapping[str, str]) -> dict[str, Any]:
    aliases = {f"#{attribute}": attribute for attribute in attributes}
    return {"ProjectionExpression": ", ".join(aliases), "ExpressionAttributeNames": {**names, **aliases}}


def _next(answer: Mapping[str, Any]) -> Item | None:
    key = answer.get("LastEvaluatedKey")
    return decode_item(key) if key else None


def _attributes(answer: Mapping[str, Any]) -> Item | None:
    attributes = answer.get("Attributes")
    return decode_item(attributes) if attributes else None
