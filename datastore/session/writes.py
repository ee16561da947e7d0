"""Conditional writes: their actions and results, and the test whether an ambiguous write was applied.

DynamoDB may have applied a write although its response was lost. The retry then fails its condition, and the item shows
whether the first attempt was applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item, decode, decode_item, encode, encode_item
from datastore.dynamodb.requests import placeholders
from datastore.model.access_patterns import Table, aliases_in
from datastore.model.composite_keys import Key, check_key, key_attributes, key_of
from datastore.model.versioning import assignments

CONTENTION = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a conditional write."""

    #: Whether the write was applied.
    ok: bool
    #: The item after the write, the deleted item, or the item that failed the condition.
    item: Item | None
    #: Whether an earlier attempt may have been applied, so that `item` may be its result: the response was lost, or
    #: the process that executed the mutation before has ended.
    is_retry: bool = False

    def has_acquired(self, owner: str, fence: int) -> bool:
        """Return whether a write that acquires a lease was applied, by this attempt or by one with a lost response.

        `owner` and `fence`, the fencing token, are the lease's after the write. No other write leaves both.
        """
        item = self.item
        return self.ok or (item is not None and (item.get("owner"), item["fence"]) == (owner, fence))


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a transaction: "Put" with an item, "Update", "Delete" or "ConditionCheck" with a key."""

    kind: str
    item: Mapping[str, Any] | None = None
    key: Key | None = None
    update: str = ""
    condition: str = ""
    values: Mapping[str, Any] | None = None
    #: None for the table of the transaction.
    table: Table | None = None


def write_request(prefix: str, table: Table, condition: str, update: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a write request without its key or item."""
    request: dict[str, Any] = {"TableName": prefix + table.name, "ReturnConsumedCapacity": "TOTAL"}
    if condition:
        request["ConditionExpression"] = condition
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if update:
        request["UpdateExpression"] = update
    return request | placeholders((condition, update), values)


def action_request(prefix: str, table: Table, action: Action) -> dict[str, Any]:
    """Return the request of one action. Raises `BadUserInput` for a key that DynamoDB would refuse."""
    request = write_request(prefix, table, action.condition, action.update, action.values or {})
    del request["ReturnConsumedCapacity"]
    if action.item is not None:
        checked_key(table, action.item)
        return request | {"Item": encode_item(action.item)}
    assert action.key is not None
    return request | {"Key": encoded_key(table, action.key)}


def encoded_key(table: Table, key: Key) -> dict[str, Any]:
    """Return the key as DynamoDB expects it. Raises `BadUserInput` for a key that DynamoDB would refuse."""
    return encode_item(key_attributes(table, check_key(key, has_sort=table.sort is not None)))


def checked_key(table: Table, item: Mapping[str, Any]) -> Key:
    """Return the item's key. Raises `BadUserInput` for a key that DynamoDB would refuse."""
    return check_key(key_of(table, item), has_sort=table.sort is not None)


def with_condition(request: Mapping[str, Any], condition: str) -> Mapping[str, Any]:
    """Return the request with an added condition. If the condition fails, the response has the item."""
    original = request.get("ConditionExpression")
    return {
        **request,
        "ConditionExpression": f"({original}) AND {condition}" if original else condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def is_already_applied(update: str, values: Mapping[str, Any], item: Item | None) -> bool:
    """Return whether the item is as the update leaves it. Incremented attributes are ignored."""
    if item is None:
        return False
    sets, removes = assignments(update)
    names = aliases_in(update)
    is_set = all(item.get(names.get(name, name)) == decode(encode(values[value])) for name, value in sets)
    return is_set and not any(names.get(name, name) in item for name in removes)


def is_contended(problem: Exception) -> bool:
    """Return whether a transaction failed because another writer changed or is changing its items."""
    return isinstance(problem, TransactionCancelled) and not CONTENTION.isdisjoint(problem.reasons)


def puts_were_applied(actions: Sequence[Action], cancelled: TransactionCancelled) -> bool:
    """Return whether each conditional put failed because its item is already stored.

    Then the transaction was applied: it is applied as a whole.
    """
    puts = [
        (action, reason, stored)
        for action, reason, stored in zip(actions, cancelled.reasons, cancelled.items, strict=True)
        if action.item is not None and action.condition
    ]
    return bool(puts) and all(
        reason == "ConditionalCheckFailed" and is_stored(action.item, stored) for action, reason, stored in puts
    )


def is_stored(item: Mapping[str, Any] | None, stored: Item | None) -> bool:
    """Return whether the stored item is as a put of the item leaves it."""
    return item is not None and stored is not None and stored == decode_item(encode_item(item))
