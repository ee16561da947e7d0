"""The items of the table `feed` as its document lists them, written by another program with boto3."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import encode_item
from datastore.keyspace.feeds.table import FEED
from pipelines.feeds.handlers import feed_handlers
from tests.support.boto_client import boto_client
from tests.support.feed_changes import feed_changes, store_of
from tests.support.moments import whole_seconds
from tests.support.served import NOON, Served


class Pipeline:
    """The handlers of the feed's stream. Each call of `run` gives them the new changes."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        self.database = served.gateway.database
        self.handlers = feed_handlers(lambda: store_of(self.database), served.clock)
        self._seen = 0

    def skip(self, changes: Sequence[Change]) -> None:
        """Skip the oldest unhandled changes, as a pipeline does at its first run."""
        self._seen += len(changes)

    async def run(self) -> None:
        """Handle changes until there are no new ones."""
        while changes := await feed_changes(self.database, self._seen):
            self._seen += len(changes)
            for handler in self.handlers:
                await handler.handle(changes)


def user_document(id: str) -> dict[str, Any]:
    return {"PK": f"USER#{id}", "SK": "META", "name": id.title(), "created_at": whole_seconds(NOON)}


def post_document(id: str, author: str = "u001", at: datetime = NOON, visibility: str = "public") -> dict[str, Any]:
    return {
        "PK": f"POST#{id}",
        "SK": "META",
        "GSI1PK": f"USER#{author}",
        "GSI1SK": f"{whole_seconds(at)}#POST#{id}",
        "author_id": author,
        "created_at": whole_seconds(at),
        "visibility": visibility,
        "media_ref": f"s3://media/{id}.jpg",
    }


def tag_document(post_id: str, name: str = "dynamodb", at: datetime = NOON) -> dict[str, Any]:
    return {
        "PK": f"POST#{post_id}",
        "SK": f"TAG#{name}",
        "GSI2PK": f"TAG#{name}",
        "GSI2SK": f"{whole_seconds(at)}#POST#{post_id}",
    }


def comment_document(post_id: str, id: str, user_id: str = "u002", at: datetime = NOON) -> dict[str, Any]:
    keys = {"PK": f"POST#{post_id}", "SK": f"COMMENT#{id}"}
    return keys | {"user_id": user_id, "created_at": whole_seconds(at), "text_len": 42}


def like_document(post_id: str, user_id: str = "u002", at: datetime = NOON) -> dict[str, Any]:
    return {"PK": f"POST#{post_id}", "SK": f"LIKE#{user_id}", "created_at": whole_seconds(at)}


def edge_document(follower: str, followee: str, at: datetime = NOON - timedelta(hours=1)) -> dict[str, Any]:
    partition, moment = f"FOLLOWEE#{followee}", whole_seconds(at)
    return {
        "PK": partition,
        "SK": f"FOLLOWER#{follower}#{moment}",
        "GSI_FOLPK": partition,
        "GSI_FOLSK": f"{moment}#FOLLOWER#{follower}",
    }


def bare_user(id: str) -> dict[str, Any]:
    """A user item as the document has it: all key."""
    return {"PK": f"USER#{id}", "SK": "META"}


def notification(user_id: str, name: str, at: datetime = NOON) -> dict[str, Any]:
    """A notification as the document has it: all key."""
    partition, sort = f"USER#{user_id}#UNREAD", f"{whole_seconds(at)}#{name}"
    return {"PK": partition, "SK": sort, "GSI_NOTIFPK": partition, "GSI_NOTIFSK": sort}


def entry_document(user_id: str, post_id: str, at: datetime = NOON, shard: int = 3) -> dict[str, Any]:
    """A feed entry as the document has it: all key."""
    partition, sort = f"FEED#{user_id}", f"{whole_seconds(at)}#{shard}#POST#{post_id}"
    return {"PK": partition, "SK": sort, "GSI3PK": partition, "GSI3SK": sort}


def write_feed_items(served: Served, *items: dict[str, Any]) -> None:
    """Put items into `feed` with boto3, as another program does."""
    client, name = _client(served)
    for item in items:
        client.put_item(TableName=name, Item=encode_item(item))


def delete_feed_items(served: Served, *items: dict[str, Any]) -> None:
    """Delete items of `feed` with boto3, as another program does."""
    client, name = _client(served)
    for item in items:
        client.delete_item(TableName=name, Key=encode_item({"PK": item["PK"], "SK": item["SK"]}))


def _client(served: Served) -> tuple[Any, str]:
    assert served.gateway.database is not None
    return boto_client(served.gateway.database), served.gateway.database.prefix + FEED.name
