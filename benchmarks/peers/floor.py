"""W1 … W4 by hand, without GraphQL and frameworks: about the lowest CPU that a server in Python can have.

Usage: python -m benchmarks.peers.floor PORT STORE_URL WIRE
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import httptools
import orjson
import uvloop

from benchmarks.peers import cursors
from benchmarks.peers.wire import WIRES, Call

SOURCES_EXPECTED = 8
BATCH_KEYS = 100

Json = dict[str, Any]


def last_part(key: str) -> str:
    return key.rpartition("#")[2]


def moment(stored: str) -> str:
    """Return a stored time in the form of responses: with an offset, and with a fraction unless it is 0."""
    return f"{stored[:-5]}+00:00" if stored.endswith(".000Z") else f"{stored[:-1]}000+00:00"


async def items_of(call: Call, table: str, keys: list[Json]) -> list[Json]:
    """Read items by one GetItem, or by BatchGetItem until all keys are processed."""
    if len(keys) == 1:
        answer = await call("GetItem", {"TableName": table, "Key": keys[0], "ReturnConsumedCapacity": "TOTAL"})
        return [answer["Item"]] if "Item" in answer else []
    found: list[Json] = []
    while keys:
        request = {"RequestItems": {table: {"Keys": keys[:BATCH_KEYS]}}, "ReturnConsumedCapacity": "TOTAL"}
        answer = await call("BatchGetItem", request)
        found += answer["Responses"].get(table, ())
        unprocessed = answer.get("UnprocessedKeys") or {}
        keys = keys[BATCH_KEYS:] + (unprocessed[table]["Keys"] if unprocessed else [])
    return found


async def users_of(call: Call, ids: Iterable[str]) -> Mapping[str, Json]:
    keys = [{"PK": {"S": f"USER#{user_id}"}, "SK": {"S": "META"}} for user_id in dict.fromkeys(ids)]
    return {
        (user_id := last_part(item["PK"]["S"])): {
            "userId": user_id,
            "name": item["name"]["S"],
            "avatarRef": item["avatar_ref"]["S"] if "avatar_ref" in item else None,
        }
        for item in await items_of(call, "feed", keys)
    }


def post_fields(post: Json) -> Json:
    """Return the fields of a post that all workloads show."""
    return {
        "text": post["text"]["S"],
        "mediaRef": post["media_ref"]["S"] if "media_ref" in post else None,
        "tags": [tag["S"] for tag in post["tags"]["L"]] if "tags" in post else [],
        "likeCount": int(post["likes"]["N"]),
        "commentCount": int(post["comments"]["N"]),
    }


async def post(call: Call, id: str) -> Json:
    found = await items_of(call, "feed", [{"PK": {"S": f"POST#{id}"}, "SK": {"S": "META"}}])
    if not found:
        return {"post": None}
    item = found[0]
    return {
        "post": {
            "postId": last_part(item["PK"]["S"]),
            "authorId": item["author_id"]["S"],
            "createdAt": moment(item["created_at"]["S"]),
            "visibility": item["visibility"]["S"].upper(),
            **post_fields(item),
        }
    }


async def posts_by_author(call: Call, authorId: str, first: int) -> Json:
    request = {
        "TableName": "feed",
        "IndexName": "GSI1",
        "KeyConditionExpression": "GSI1PK = :partition",
        "FilterExpression": "visibility <> :private",
        "ExpressionAttributeValues": {":partition": {"S": f"USER#{authorId}"}, ":private": {"S": "private"}},
        "ScanIndexForward": False,
        "Limit": first + 1,
        "ReturnConsumedCapacity": "TOTAL",
    }
    items = (await call("Query", request))["Items"]
    author = (await users_of(call, [authorId])).get(authorId)
    bound = cursors.binding(cursors.POSTS_BY_AUTHOR[0], {"authorId": authorId})
    edges = [
        {
            "cursor": cursors.sign({name: item[name] for name in cursors.POSTS_BY_AUTHOR[1]}, bound),
            "node": {
                "postId": last_part(item["PK"]["S"]),
                "createdAt": moment(item["GSI1SK"]["S"].partition("#")[0]),
                **post_fields(item),
                "author": author,
            },
        }
        for item in items[:first]
    ]
    ends = {"startCursor": edges[0]["cursor"], "endCursor": edges[-1]["cursor"]} if edges else {}
    info = {"hasNextPage": len(items) > first, "hasPreviousPage": False, "startCursor": None, "endCursor": None}
    return {"postsByAuthor": {"edges": edges, "pageInfo": info | ends}}


async def home_feed(call: Call, userId: str, first: int) -> Json:
    request = {
        "TableName": "feed",
        "IndexName": "GSI3",
        "KeyConditionExpression": "GSI3PK = :partition",
        "ExpressionAttributeValues": {":partition": {"S": f"FEED#{userId}"}},
        "ScanIndexForward": False,
        "Limit": first + 1 + SOURCES_EXPECTED,
        "ReturnConsumedCapacity": "TOTAL",
    }
    entries = [item for item in (await call("Query", request))["Items"] if not item["SK"]["S"].startswith("SOURCE#")]
    page = entries[:first]
    keys = [{"PK": {"S": f"POST#{last_part(item['SK']['S'])}"}, "SK": {"S": "META"}} for item in page]
    posts = {last_part(item["PK"]["S"]): item for item in await items_of(call, "feed", keys)}
    comments = dict(zip(posts, await asyncio.gather(*[comments_on(call, post_id) for post_id in posts]), strict=True))
    authors = [item["author_id"]["S"] for item in posts.values()]
    commenters = [comment["user_id"]["S"] for on_post in comments.values() for comment in on_post]
    users = await users_of(call, [*authors, *commenters])
    bound = cursors.binding(cursors.HOME_FEED[0], {"userId": userId})
    edges = []
    for item in page:
        sort = item["SK"]["S"]
        post_id = last_part(sort)
        found = posts.get(post_id)
        edges.append(
            {
                "cursor": cursors.sign({name: item[name] for name in cursors.HOME_FEED[1]}, bound),
                "node": {
                    "postId": post_id,
                    "createdAt": moment(sort.partition("#")[0]),
                    "post": found and entry_post(found, comments[post_id], users),
                },
            }
        )
    info = {"hasNextPage": len(entries) > first, "endCursor": edges[-1]["cursor"] if edges else None}
    return {"homeFeed": {"edges": edges, "pageInfo": info}}


def entry_post(item: Json, comments: list[Json], users: Mapping[str, Json]) -> Json:
    nodes = [
        {
            "commentId": last_part(comment["SK"]["S"]),
            "text": comment["text"]["S"],
            "createdAt": moment(comment["created_at"]["S"]),
            "author": users.get(comment["user_id"]["S"]),
        }
        for comment in comments
    ]
    return {**post_fields(item), "author": users.get(item["author_id"]["S"]), "comments": {"nodes": nodes}}


async def comments_on(call: Call, post_id: str, first: int = 3) -> list[Json]:
    request = {
        "TableName": "feed",
        "KeyConditionExpression": "PK = :partition AND begins_with(SK, :prefix)",
        "ExpressionAttributeValues": {":partition": {"S": f"POST#{post_id}"}, ":prefix": {"S": "COMMENT#"}},
        "ScanIndexForward": True,
        "Limit": first + 1,
        "ReturnConsumedCapacity": "TOTAL",
    }
    found: list[Json] = (await call("Query", request))["Items"]
    return found[:first]


async def matches(call: Call, ids: list[str]) -> Json:
    keys = [{"matchId": {"S": match_id}} for match_id in dict.fromkeys(ids)]
    found = {item["matchId"]["S"]: item for item in await items_of(call, "cricket-fixtures", keys)}
    sides = dict.fromkeys(item[side]["S"] for item in found.values() for side in ("homeTeamId", "awayTeamId"))
    teams = {
        item["teamId"]["S"]: {
            "teamId": item["teamId"]["S"],
            "name": item["name"]["S"],
            "code": item["code"]["S"],
            "imageUrl": item["imageUrl"]["S"] if "imageUrl" in item else None,
        }
        for item in await items_of(call, "cricket-teams", [{"teamId": {"S": team_id}} for team_id in sides])
    }
    return {"matches": [match(found[match_id], teams) if match_id in found else None for match_id in ids]}


def match(item: Json, teams: Mapping[str, Json]) -> Json:
    return {
        "matchId": item["matchId"]["S"],
        "leagueCode": item["leagueCode"]["S"],
        "startTime": moment(item["startTime"]["S"]),
        "status": item["status"]["S"],
        "phase": item["phase"]["S"].upper(),
        "round": item["round"]["S"] if "round" in item else None,
        "format": item["format"]["S"] if "format" in item else None,
        "homeTeam": teams.get(item["homeTeamId"]["S"]),
        "awayTeam": teams.get(item["awayTeamId"]["S"]),
    }


# The handlers by the start of the document.
HANDLERS: Mapping[str, Callable[..., Awaitable[Json]]] = {
    "query W1": post,
    "query W2": posts_by_author,
    "query W3": home_feed,
    "query W4": matches,
}


class Connection(asyncio.Protocol):
    """A persistent HTTP connection with sequential requests."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._parts)
        self._parts.clear()
        self._answering = asyncio.create_task(self._answer(body))

    async def _answer(self, body: bytes) -> None:
        request = orjson.loads(body)
        data = await HANDLERS[request["query"].partition("(")[0]](self._call, **request["variables"])
        content = orjson.dumps({"data": data})
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)
        self._transport.write(head + content)


async def main(port: str, store_url: str, wire: str) -> None:
    call = WIRES[wire](store_url).call
    server = await asyncio.get_running_loop().create_server(lambda: Connection(call), "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
