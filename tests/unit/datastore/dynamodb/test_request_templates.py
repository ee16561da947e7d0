"""Requests from templates equal the JSON of requests that are built by hand."""

from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore.dynamodb.codec import decode_item, encode, encode_item
from datastore.dynamodb.requests import batch_get_item, point_read_template, query_template
from datastore.keyspace import PATTERNS, TABLES
from datastore.model.access_patterns import AccessPattern, aliases_in, values_in
from datastore.model.composite_keys import Key, key_attributes

QUERIES = [pattern for pattern in PATTERNS if ":" in pattern.key and "Query" in pattern.operations]
TEXTS = st.sampled_from(["", "a", "POST#1", '"\\\n\x00', "Zoë 日本 🏏", "#:name", "%b"])
VALUES = TEXTS | st.integers(-(10**15), 10**15) | st.booleans() | st.just(Decimal("1.5")) | st.lists(TEXTS, max_size=2)
PREFIX = 'dev-"%bé'


@given(st.data())
def test_queries(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(QUERIES))
    names = sorted(values_in(pattern.key)) + data.draw(
        st.lists(st.sampled_from(sorted(values_in(*pattern.filter)) or ["other"]), unique=True)
    )
    values = {name: data.draw(VALUES) for name in names}
    limit = data.draw(st.none() | st.integers(1, 2000))
    start = data.draw(st.none() | st.dictionaries(st.sampled_from(["PK", "SK", "gsi1sk"]), VALUES, min_size=1))
    backward, count_only = data.draw(st.booleans()), data.draw(st.booleans())
    attributes = data.draw(st.none() | st.just(("PK", "mag")))

    template = query_template(pattern, PREFIX, tuple(values), backward, attributes, count_only)
    request = template.prepared(values, limit, start)

    expected = by_hand(pattern, values, backward, attributes, count_only)
    expected |= {} if limit is None else {"Limit": limit}
    expected |= {} if start is None else {"ExclusiveStartKey": encode_item(start)}
    assert orjson.loads(request.body) == orjson.loads(orjson.dumps(expected))
    assert (request.tables, request.index) == ((PREFIX + pattern.table.name,), pattern.index)


def by_hand(
    pattern: AccessPattern, values: dict[str, Any], backward: bool, attributes: tuple[str, ...] | None, count_only: bool
) -> dict[str, Any]:
    clauses = [clause for clause in pattern.filter if values_in(clause) <= values.keys()]
    names = {**aliases_in(pattern.key, *clauses), **{f"#{name}": name for name in attributes or ()}}
    return {
        "TableName": PREFIX + pattern.table.name,
        "ReturnConsumedCapacity": "TOTAL",
        "KeyConditionExpression": pattern.key,
        **({"Select": "COUNT"} if count_only else {"ScanIndexForward": pattern.descending is backward}),
        **({"IndexName": pattern.index} if pattern.index else {}),
        **({"ConsistentRead": True} if pattern.consistent else {}),
        **({"FilterExpression": " AND ".join(clauses)} if clauses else {}),
        **({"ProjectionExpression": ", ".join(f"#{name}" for name in attributes)} if attributes else {}),
        **({"ExpressionAttributeNames": names} if names else {}),
        "ExpressionAttributeValues": {f":{name}": encode(values[name]) for name in values_in(pattern.key, *clauses)},
    }


def test_a_missing_value_is_an_error() -> None:
    pattern = QUERIES[0]

    with pytest.raises(KeyError):
        query_template(pattern, "", (), False, None).prepared({}, None, None)


@given(st.data())
def test_point_reads(data: st.DataObject) -> None:
    consistent = data.draw(st.booleans())
    addresses = data.draw(st.lists(st.tuples(st.sampled_from(TABLES), st.builds(Key, TEXTS, TEXTS)), min_size=1))
    single: list[dict[str, Any]] = []
    expected: dict[str, dict[str, Any]] = {}
    keys: dict[Any, list[Key]] = {}
    read = {"ConsistentRead": True} if consistent else {}
    for table, key in addresses:
        encoded = encode_item(key_attributes(table, key))
        single.append({"TableName": PREFIX + table.name, "Key": encoded, "ReturnConsumedCapacity": "TOTAL", **read})
        expected.setdefault(PREFIX + table.name, {"Keys": [], **read})["Keys"].append(encoded)
        keys.setdefault(table, []).append(key)

    gets = [point_read_template(table, PREFIX, consistent).get_item(key) for table, key in addresses]
    batch = batch_get_item(
        {
            PREFIX + table.name: point_read_template(table, PREFIX, consistent).entry(some)
            for table, some in keys.items()
        }
    )

    assert [orjson.loads(get.body) for get in gets] == single
    assert [get.tables for get in gets] == [(PREFIX + table.name,) for table, _ in addresses]
    assert batch.payload == {"RequestItems": expected, "ReturnConsumedCapacity": "TOTAL"}
    assert batch.tables == tuple(expected)
    assert all(decode_item(get.payload["Key"]) for get in gets)
