"""The feed's stream handler for Lambda, and its events."""

from typing import Any

from datastore.change_streams.shards.shard_reader import ShardCursor, shards_of, stream_of
from datastore.database import Database
from datastore.keyspace.feeds.table import FEED


async def records_of(database: Database) -> list[dict[str, Any]]:
    """Return the stream's records as an event source mapping delivers them."""
    stream = await stream_of(database.client, FEED.name, database.prefix)
    (shard,) = await shards_of(database.client, stream)
    page = await ShardCursor(database.client, stream, shard.id, None).read()
    source = {"eventSource": "aws:dynamodb", "eventSourceARN": stream, "awsRegion": "us-east-1"}
    return [{**record, **source} for record in page.records]
