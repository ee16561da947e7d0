"""The TTL sweeper: it deletes expired items of the embedded engine, which unlike DynamoDB does not do so by itself."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from datastore.dynamodb.client import Client, ConditionFailed, RequestRefused
from datastore.dynamodb.codec import decode_item, encode
from datastore.errors import DomainError
from datastore.model.access_patterns import Table

SWEEP_SECONDS = 60.0
MAX_DELETIONS = 16  # at the same time

logger = logging.getLogger(__name__)


async def sweep_forever(client: Client, tables: Sequence[Table], prefix: str, now: Callable[[], datetime]) -> None:
    """Sweep now and once a minute, until cancelled."""
    while True:
        try:
            await sweep(client, tables, prefix, now())
        except (DomainError, RequestRefused) as problem:  # a table may be missing until the next start
            logger.warning("Expired items could not be deleted; the next sweep tries again: %s", problem)
        await asyncio.sleep(SWEEP_SECONDS)


async def sweep(client: Client, tables: Sequence[Table], prefix: str, now: datetime) -> int:
    """Delete the expired items, and return their number."""
    return sum([await _sweep(client, table, prefix, now) for table in tables if table.ttl])


async def _sweep(client: Client, table: Table, prefix: str, now: datetime) -> int:
    expired = {
        "TableName": prefix + table.name,
        "ExpressionAttributeNames": {"#ttl": table.ttl},
        "ExpressionAttributeValues": {":now": encode(int(now.timestamp()))},
    }
    keys = {f"#key{number}": attribute for number, attribute in enumerate(table.key_attributes())}
    scan: dict[str, Any] = expired | {
        "FilterExpression": "#ttl <= :now",
        "ProjectionExpression": ", ".join(keys),
        "ExpressionAttributeNames": {"#ttl": table.ttl, **keys},
    }
    deleted = 0
    while True:
        answer = await client.call("Scan", scan)
        requests = [expired | {"Key": key, "ConditionExpression": "#ttl <= :now"} for key in answer["Items"]]
        for batch in range(0, len(requests), MAX_DELETIONS):
            chunk = requests[batch : batch + MAX_DELETIONS]
            deleted += sum(await asyncio.gather(*[_delete(client, table, prefix, request) for request in chunk]))
        if not answer.get("LastEvaluatedKey"):
            return deleted
        scan["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def _delete(client: Client, table: Table, prefix: str, request: dict[str, Any]) -> bool:
    try:
        await client.call("DeleteItem", request)
    except ConditionFailed:
        return False  # the expiry was extended in the meantime
    client.read_caches.invalidate_changed(prefix, table, decode_item(request["Key"]))
    return True
