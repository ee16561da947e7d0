"""Point reads of an operation go out in as few calls, whoever executes it: graphql-core at first, then a program."""

from datetime import timedelta

import pytest
from conftest import NOON, Served
from feed_items import comment_item, post_item, user_item

from datastore.keyspace.feeds.table import FEED

AUTHORS = ("ada", "eve", "joe")
OPERATIONS = {
    '{ postsByAuthor(authorId: "ada") { nodes { text likeCount author { name } } } }': [
        "GetItem feed",
        "Query feed.GSI1",
    ],
    """{
      user(id: "joe") { name }
      postsByAuthor(authorId: "ada") { edges { cursor node { author { name } mentions } } }
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
async def test_calls_are_as_few_whoever_executes(served: Served, operation: str) -> None:
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
