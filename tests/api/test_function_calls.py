"""The functions that a request and an event take: bounds of their CPU that are the same on every machine."""

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import server.app
from datastore.change_streams.shards.stream_reader import StreamReader
from datastore.keyspace.feeds.table import FEED
from server.subscriptions.broadcast_group import BroadcastGroup
from tests.support.comments import an_id
from tests.support.feed_items import comment_item, post_item
from tests.support.match_updates import advance, register_at_version_1
from tests.support.posts import create_feed_post, create_users
from tests.support.served import Served

# Calls by the product's own code, of its functions and of built-in ones. Libraries and generated code are not counted.
MOST_CALLS = 262
# The same for each list of three comments with their authors, below a post of a list.
MOST_CALLS_OF_LIST = 148
ENTRIES, COMMENTS = 20, 3
# Different functions of the product between the record of an event and the socket of its only subscriber.
MOST_FUNCTIONS = 109
PRODUCT = Path(server.app.__file__).parent.parent
PACKAGES = tuple(f"{PRODUCT / name}/" for name in ("datastore", "jit", "resolvers", "runtime", "schema", "server"))

QUERY = """query Post($id: ID!) {
  post(id: $id) { postId authorId createdAt visibility text mediaRef tags likeCount commentCount }
}"""

LISTS = """{ postsByAuthor(authorId: "ada", first: 20) { nodes {
  comments(first: 3) { nodes { commentId text createdAt author { userId name } } }
} } }"""


class ProductCalls:
    """Counts calls by the product's code in this thread."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        self.count += event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGES)


async def fewest_calls(served: Served, query: str, **variables: Any) -> tuple[int, Any]:
    """Return the least number of the product's calls for repeated requests of `ada`, and the data."""
    content = json.dumps({"query": query, "variables": variables}).encode()
    head = (
        b"POST /graphql HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n" % (served.token("ada").encode(), len(content))
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    counts, data = [], None
    for _ in range(5):  # the operation is compiled at its second execution
        calls = ProductCalls()
        sys.setprofile(calls)
        try:
            writer.write(head + content)
            response_head = await reader.readuntil(b"\r\n\r\n")
        finally:
            sys.setprofile(None)
        assert response_head.startswith(b"HTTP/1.1 200 OK\r\n")
        length = int(response_head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        data = json.loads(await reader.readexactly(length))["data"]
        counts.append(calls.count)
    writer.close()
    return min(counts), data


async def test_a_repeated_request_for_a_post_takes_few_function_calls(served: Served) -> None:
    await create_users(served, "ada")
    await create_feed_post(served, "ada", postId="p1")

    count, data = await fewest_calls(served, QUERY, id="p1")

    assert data["post"]["postId"] == "p1"
    assert count <= MOST_CALLS


async def test_a_list_in_a_list_takes_few_function_calls(served: Served) -> None:
    posts = [post_item(f"p{number:02}", "ada") for number in range(ENTRIES)]
    comments = [comment_item(post, an_id(number), f"user{number}") for post in posts for number in range(COMMENTS)]
    await served.store().write_all(FEED, puts=[*posts, *comments])

    count, data = await fewest_calls(served, LISTS)

    nodes = data["postsByAuthor"]["nodes"]
    assert [len(node["comments"]["nodes"]) for node in nodes] == [COMMENTS] * ENTRIES
    assert count <= MOST_CALLS + MOST_CALLS_OF_LIST * ENTRIES


SUBSCRIPTION = """subscription { matchUpdates(matchId: "m1") {
  version changed liveScore { status note innings { runs wickets overs } }
} }"""
# The functions that pass a record on, and a group that delivers its events.
ENTRANCES = {StreamReader._publish_all.__code__, BroadcastGroup._run.__code__}


class ProductFunctions:
    """Lists the product's functions, in the order of their first calls, that an event passes in this thread."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGES) or code.co_name == "_run":
            return
        caller: FrameType | None = frame
        while caller is not None and caller.f_code not in ENTRANCES:
            caller = caller.f_back
        if caller is not None:
            self.names[f"{Path(code.co_filename).stem}.{code.co_qualname}"] = None


async def test_an_event_passes_few_functions_from_its_record_to_the_socket(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await served.listen(SUBSCRIPTION)
    assert (await listener.event())["matchUpdates"]["version"] == 1
    passed = []
    for version in range(2, 7):  # the operation is compiled at its second execution
        functions = ProductFunctions()
        sys.setprofile(functions)
        try:
            await advance(served)
            assert (await listener.event())["matchUpdates"]["version"] == version
        finally:
            sys.setprofile(None)
        passed.append([*functions.names])

    fewest = min(passed, key=len)
    assert len(fewest) <= MOST_FUNCTIONS, "\n".join(["", *fewest])
