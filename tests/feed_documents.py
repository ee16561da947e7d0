"""The items of the table `feed` exactly as its document lists them, which another program writes with boto3."""

from datetime import datetime, timedelta
from typing import Any

from conftest import NOON, Served

from datastore.attributes import encode_item
from datastore.keyspace.feeds.table import FEED


def seconds(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def user(id: str) -> dict[str, Any]:
    return {"PK": f"USER#{id}", "SK": "META", "name": id.title(), "created_at": seconds(NOON)}


def post(id: str, author: str = "u001", at: datetime = NOON, visibility: str = "public") -> dict[str, Any]:
    return {
        "PK": f"POST#{id}",
        "SK": "META",
        "GSI1PK": f"USER#{author}",
        "GSI1SK": f"{seconds(at)}#POST#{id}",
        "author_id": author,
        "created_at": seconds(at),
        "visibility": visibility,
        "media_ref": f"s3://media/{id}.jpg",
    }


def tag(post_id: str, name: str = "dynamodb", at: datetime = NOON) -> dict[str, Any]:
    return {
        "PK": f"POST#{post_id}",
        "SK": f"TAG#{name}",
        "GSI2PK": f"TAG#{name}",
        "GSI2SK": f"{seconds(at)}#POST#{post_id}",
    }


def comment(post_id: str, id: str, user_id: str = "u002", at: datetime = NOON) -> dict[str, Any]:
    keys = {"PK": f"POST#{post_id}", "SK": f"COMMENT#{id}"}
    return keys | {"user_id": user_id, "created_at": seconds(at), "text_len": 42}


def like(post_id: str, user_id: str = "u002", at: datetime = NOON) -> dict[str, Any]:
    return {"PK": f"POST#{post_id}", "SK": f"LIKE#{user_id}", "created_at": seconds(at)}


def edge(follower: str, followee: str, at: datetime = NOON - timedelta(hours=1)) -> dict[str, Any]:
    partition, moment = f"FOLLOWEE#{followee}", seconds(at)
    return {
        "PK": partition,
        "SK": f"FOLLOWER#{follower}#{moment}",
        "GSI_FOLPK": partition,
        "GSI_FOLSK": f"{moment}#FOLLOWER#{follower}",
    }


def write(served: Served, *items: dict[str, Any]) -> None:
    """Put items into `feed` with boto3, as another program does."""
    client, name = _client(served)
    for item in items:
        client.put_item(TableName=name, Item=encode_item(item))


def delete(served: Served, *items: dict[str, Any]) -> None:
    """Delete items of `feed` with boto3, as another program does."""
    client, name = _client(served)
    for item in items:
        client.delete_item(TableName=name, Key=encode_item({"PK": item["PK"], "SK": item["SK"]}))


def _client(served: Served) -> tuple[Any, str]:
    assert served.gateway.database is not None
    return served.gateway.database.admin(), served.gateway.database.prefix + FEED.name
