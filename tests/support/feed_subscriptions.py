"""Steps and data of the tests of feed subscriptions."""

from datastore.dynamodb.codec import Item
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from tests.support.served import Served


async def put(served: Served, *items: Item) -> None:
    """One after another, each a record of the stream."""
    for item in items:
        await served.store().write_all(FEED, puts=[item])


async def remove(served: Served, *items: Item) -> None:
    for item in items:
        await served.store().write_all(FEED, deletes=[Key(item["PK"], item["SK"])])
