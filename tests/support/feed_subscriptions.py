"""Items of the feed that reach the subscriptions one by one."""

from datastore.dynamodb.codec import Item
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from tests.support.served import Served


async def put_one_by_one(served: Served, *items: Item) -> None:
    """Put items one after another, each a record of the stream."""
    for item in items:
        await served.store().write_all(FEED, puts=[item])


async def delete_one_by_one(served: Served, *items: Item) -> None:
    for item in items:
        await served.store().write_all(FEED, deletes=[Key(item["PK"], item["SK"])])
