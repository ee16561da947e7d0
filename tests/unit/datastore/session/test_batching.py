"""The number of calls for the point reads of an operation is minimal, with graphql-core and with a compiled program."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.keyspace.feeds.table import FEED
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.feed_items import comment_item, following_item, post_item, user_item
from tests.support.served import NOON, Served


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    """Return options that send the gateway's calls through the proxy."""
    return replace(store_options, store=proxy.url)


AUTHORS = ("ada", "eve", "joe")
OPERATIONS = {
    '{ postsByAuthor(authorId: "ada") { nodes { text likeCount author { name } } } }': [
        "GetItem feed",
        "Query feed.GSI1",
    ],
    """{
      user(id: "joe") { name }
      postsByAuthor(authorId: "ada") { edges { cursor node { author { name } mentionedUserIds } } }
      eves: postsByAuthor(authorId: "eve") { nodes { author { name } } }
    }""": ["BatchGetItem feed", "Query feed.GSI1", "Query feed.GSI1"],
    """{ postsByAuthor(authorId: "ada") {
      nodes { author { name } comments(first: 2) { nodes { text author { name } } } }
    } }""": ["BatchGetItem feed", "Query feed", "Query feed", "Query feed", "Query feed.GSI1"],
    """{ postsByAuthor(authorId: "ada", first: 1) {
      nodes { comments(first: 2) { nodes { author { posts { nodes { author { name } } } } } } }
    } }""": ["BatchGetItem feed", "Query feed", "Query feed.GSI1", "Query feed.GSI1", "Query feed.GSI1"],
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=["one list", "lists beside a read", "lists in a list", "deeper"])
async def test_the_number_of_calls_is_minimal_with_every_executor(served: Served, operation: str) -> None:
    posts = [
        post_item(f"{author}{number}", author, NOON - timedelta(minutes=number)) | {"mentions": ["x"]}
        for author in AUTHORS
        for number in range(3)
    ]
    comments = [comment_item(post, f"c{number}", AUTHORS[number + 1]) for post in posts for number in range(2)]
    await served.store().write_all(FEED, puts=[*map(user_item, AUTHORS), *posts, *comments])

    answers = [await served.ask(operation) for _ in range(3)]

    assert [answer.made for answer in answers] == [OPERATIONS[operation]] * 3
    assert [answer.errors for answer in answers] == [None] * 3
    assert answers[0].data == answers[1].data == answers[2].data


SEVERAL = """{
  user(id: "joe") { name }
  postsByAuthor(authorId: "ada") { nodes { author { name } comments(first: 2) { nodes { author { name } } } } }
  eves: postsByAuthor(authorId: "eve") { nodes { author { name } likedByViewer } }
}"""


async def test_the_number_of_calls_does_not_depend_on_the_order_of_the_lists(
    served: Served, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some posts are for followers. Whether the viewer follows is read before and after the list of posts arrives."""
    rng = random.Random(7)
    posts = [
        post_item(f"{author}{number}", author, NOON - timedelta(minutes=number), visibility)
        for author in AUTHORS
        for number, visibility in enumerate(("public", "followers", "public"))
    ]
    comments = [comment_item(post, f"c{number}", AUTHORS[number + 1]) for post in posts for number in range(2)]
    follows = [following_item("joe", "ada"), following_item("joe", "eve")]
    await served.store().write_all(FEED, puts=[*map(user_item, AUTHORS), *posts, *comments, *follows])

    async def late(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        answer = await forward(proxy, seen)
        if seen.operation == "Query":
            await asyncio.sleep(rng.choice([0, 0.003, 0.006]))
        return answer

    proxy.always = late
    expected = await served.ask(SEVERAL, user="joe")

    for turns in [1] * 12 + [60]:
        monkeypatch.setattr("datastore.session.point_reads.COMPILED_TURNS", turns)
        answer = await served.ask(SEVERAL, user="joe")
        assert (answer.data, answer.errors) == (expected.data, None)
        assert Counter(call.operation for call in answer.calls) == {"Query": 5, "BatchGetItem": 2}
