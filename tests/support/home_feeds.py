"""Home feeds with their items."""

from datastore.dynamodb.codec import Item
from datastore.feeds.home_feeds import MergedAuthor, entry_item
from datastore.keyspace.feeds.table import FEED
from tests.support.served import Served


def feed_entry(post: Item, user: str = "ada") -> Item:
    """Return the entry of a post in a user's feed."""
    followers_only = post["visibility"] == "followers"
    post_id = post["PK"].removeprefix("POST#")
    return entry_item(user, post["author_id"], post["created_at"], post_id, followers_only=followers_only)


async def put_feed_items(served: Served, *items: Item) -> None:
    await served.store().write_all(FEED, puts=items)


def source_item(user: str, author: str, since: str) -> Item:
    return MergedAuthor(user, author, since).item()
