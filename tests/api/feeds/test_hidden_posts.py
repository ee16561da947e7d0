"""The responses, the reads and the charges are the same for a hidden post and a missing one."""

from dataclasses import replace
from typing import Any

import pytest

from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from server.admission.settings import Capacity
from server.settings import Settings
from tests.support.comments import an_id
from tests.support.feed_items import comment_item, like_item, post_item, user_item
from tests.support.home_feeds import feed_entry
from tests.support.notifications import notification_item
from tests.support.served import Answer, Served

MISSING = "none-such"
HIDDEN = ("private", "followers", "long")
UNITS = 5000
BY_ID = {
    "post": "query ($id: ID!) { post(id: $id) { text } }",
    "twice": "query ($id: ID!) { a: post(id: $id) { text } b: post(id: $id) { text } }",
    "comments": "query ($id: ID!) { comments(postId: $id, first: 100) { nodes { text } } }",
    "likes": "query ($id: ID!) { likes(postId: $id, first: 100) { nodes { userId } } }",
    "like": "mutation ($id: ID!) { likePost(postId: $id) { userId } }",
    "comment": 'mutation ($id: ID!) { createComment(postId: $id, input: {text: "x"}) { text } }',
    "delete": "mutation ($id: ID!) { deletePost(id: $id) { postId } }",
}
# The lists of a user whose items name posts.
IN_LISTS = {
    "homeFeed": "query ($id: ID!) { homeFeed(userId: $id) { nodes { post { text } } } }",
    "notifications": "query ($id: ID!) { notifications(userId: $id) { nodes { post { text } } } }",
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with budgets that practically do not refill."""
    capacity = Capacity(
        budget_units=UNITS,
        budget_units_per_second=1e-6,
        anonymous_budget_units=UNITS,
        anonymous_budget_units_per_second=1e-6,
    )
    return replace(settings, capacity=capacity)


@pytest.fixture(autouse=True)
async def posts(served: Served) -> None:
    """Store posts that only Ada may see, with 45 comments and likes on each."""
    private = post_item("private", visibility="private")
    followers = post_item("followers", visibility="followers")
    long = post_item("long", visibility="followers") | {"text": "\u20ac" * 2000}
    items = [user_item("ada"), private, followers, long]
    for post in (private, followers, long):
        items += [comment_item(post, an_id(seconds=at), "ada") | {"text": "c" * 990} for at in range(45)]
        items += [like_item(post, f"fan{number}") for number in range(45)]
    await served.store().write_all(FEED, puts=items)


async def answer_and_budget(served: Served, query: str, post: str, caller: str | None) -> tuple[Answer, str]:
    answer = await served.ask(query, {"id": post}, user=caller)
    return answer, answer.headers["ratelimit-remaining"]


@pytest.mark.parametrize("field", BY_ID)
async def test_the_budget_of_a_user_does_not_reveal_hidden_posts(served: Served, field: str) -> None:
    await served.store().write_all(FEED, puts=[user_item(f"spy-{post}") for post in (MISSING, *HIDDEN)])
    answers: dict[str, Any] = {}

    for post in (MISSING, *HIDDEN):
        # The header rounds to whole units, and earlier reads may be shared. Several requests show fractions, too.
        for _ in range(4):
            answer, remaining = await answer_and_budget(served, BY_ID[field], post, f"spy-{post}")
        answers[post] = (answer.data, answer.codes, [error["message"] for error in answer.errors or ()], remaining)

    assert {post: answers[post] for post in HIDDEN} == dict.fromkeys(HIDDEN, answers[MISSING])


@pytest.mark.parametrize("field", IN_LISTS)
async def test_the_budget_does_not_reveal_hidden_posts_of_a_list(served: Served, field: str) -> None:
    left: dict[str, list[str]] = {}
    for post in (MISSING, *HIDDEN):
        stored = post_item(post, visibility="public" if post == MISSING else "followers")
        entry = feed_entry(stored, f"spy-{post}")
        notification = notification_item("n", f"spy-{post}", post_id=post)
        await served.store().write_all(FEED, puts=[user_item(f"spy-{post}"), entry, notification])
        answers = [await answer_and_budget(served, IN_LISTS[field], f"spy-{post}", f"spy-{post}") for _ in range(4)]
        assert [answer.data for answer, _ in answers] == [{field: {"nodes": [{"post": None}]}}] * 4
        left[post] = [remaining for _, remaining in answers]

    assert left == dict.fromkeys(left, left[MISSING])


async def test_the_budget_of_an_address_does_not_reveal_hidden_posts(served: Served) -> None:
    left, charges = float(UNITS), []
    for post in (MISSING, *HIDDEN):
        for _ in range(4):
            _, remaining = await answer_and_budget(served, BY_ID["comments"], post, None)
        charges.append(left - float(remaining))
        left = float(remaining)

    assert charges == charges[:1] * 4


async def test_the_charge_of_a_subscription_does_not_reveal_a_hidden_post(served: Served) -> None:
    left = {}
    for post in (MISSING, *HIDDEN):
        for _ in range(4):
            events = await events_of(served, post)
            assert events.count('"NOT_FOUND"') == 1
        _, left[post] = await answer_and_budget(served, BY_ID["post"], "public", f"spy-{post}")

    assert left == dict.fromkeys(left, left[MISSING])


async def events_of(served: Served, post: str) -> str:
    """Return all events of a subscription to a post, until it has ended and is charged."""
    query = f'subscription {{ postEngagement(postId: "{post}") {{ likeCount }} }}'
    headers = served.headers(f"spy-{post}", Role.USER) | {"Accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        return await response.text()


@pytest.mark.parametrize("field", ["comments", "likes"])
async def test_items_below_a_hidden_post_are_not_read(served: Served, field: str) -> None:
    private, _ = await answer_and_budget(served, BY_ID[field], "private", "eve")
    shown, _ = await answer_and_budget(served, BY_ID[field], "private", "ada")

    assert (private.made, private.data) == (["GetItem feed"], {field: {"nodes": []}})
    assert (shown.made, len(shown.data[field]["nodes"])) == (["GetItem feed", "Query feed"], 45)


async def test_a_visible_post_is_charged_as_it_was_read(served: Served) -> None:
    answer, remaining = await answer_and_budget(served, BY_ID["comments"], "private", "ada")

    assert UNITS - float(remaining) == pytest.approx(sum(call.units for call in answer.calls), abs=0.51)


async def test_a_used_id_is_refused_alike_whether_or_not_its_post_is_visible(served: Served) -> None:
    public, gone = post_item("public"), post_item("gone") | {"deleted_at": "2026-06-25T12:00:00.000Z"}
    await served.store().write_all(FEED, puts=[user_item("eve"), public, gone])
    create = 'mutation ($id: ID!) { createPost(input: {postId: $id, text: "mine"}) { text } }'

    answers = {post: await served.ask(create, {"id": post}, user="eve") for post in ("public", "gone", *HIDDEN)}

    assert {tuple(answer.codes) for answer in answers.values()} == {("CONFLICT",)}
    assert len({(answer.errors or [])[0]["message"].replace(post, "") for post, answer in answers.items()}) == 1
