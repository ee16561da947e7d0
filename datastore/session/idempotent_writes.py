"""Writes that are sent again, as their answer was lost: what tells whether the first try did them."""

from collections.abc import Mapping
from typing import Any

from datastore.dynamodb.codec import Item, decode, decode_item, encode, encode_item
from datastore.model.access_patterns import aliases_in
from datastore.model.versioning import outcome


def with_condition(request: Mapping[str, Any], condition: str) -> Mapping[str, Any]:
    """The same request under one condition more; the item that is in the way comes with the refusal."""
    given = request.get("ConditionExpression")
    return {
        **request,
        "ConditionExpression": f"({given}) AND {condition}" if given else condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def is_already_applied(update: str, values: Mapping[str, Any], item: Item | None) -> bool:
    """Whether the item is as the update leaves it, but for what it counts."""
    if item is None:
        return False
    sets, removes = outcome(update)
    names = aliases_in(update)
    is_set = all(item.get(names.get(name, name)) == decode(encode(values[value])) for name, value in sets)
    return is_set and not any(names.get(name, name) in item for name in removes)


def is_stored(item: Mapping[str, Any] | None, there: Item | None) -> bool:
    """Whether what is there is as it would be if the item had been put."""
    return item is not None and there is not None and there == decode_item(encode_item(item))
