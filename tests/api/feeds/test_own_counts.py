"""Counts in the responses of mutations contain the caller's own change exactly once (FEED-N7)."""

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.feed_steps import cast, create_profiles, follow_user, mutate, unfollow
from tests.support.feed_workload_steps import pipeline
from tests.support.own_counts import (
    ADD,
    COMMENT_IDS,
    CREATE,
    DELETE,
    DELETE_POST,
    FOLLOW,
    LIKE,
    POST,
    UNFOLLOW,
    UNLIKE,
    CountingConsumer,
    consumer,
    likes_after,
    stored_post,
)
from tests.support.served import Answer, Served

__all__ = ["consumer"]  # fixtures

# The mark, the count and the mark again.
BRACKET = ["Query feed-pipeline", "GetItem feed", "Query feed-pipeline"]


def order_of(answer: Answer) -> list[str]:
    """Return the calls for the count in their order."""
    counted = [call for call in answer.calls if "FEED-N7" in call.patterns]
    return [f"{call.operation} {'+'.join(call.tables).split('__')[1]}" for call in counted]


async def test_a_like_and_its_removal_are_in_the_count_before_and_after_the_consumer(
    served: Served, consumer: CountingConsumer
) -> None:
    await stored_post(served, likes=6)

    before = [await likes_after(served, LIKE), await likes_after(served, LIKE), await likes_after(served, UNLIKE)]
    await consumer.count()
    after = [await likes_after(served, LIKE)]
    await consumer.count()
    after += [await likes_after(served, LIKE), await likes_after(served, UNLIKE)]

    assert before == [(7, True), (7, True), (6, False)]
    assert after == [(7, True), (7, True), (6, False)]


async def test_a_count_takes_two_reads_of_the_mark_and_one_of_the_post(served: Served) -> None:
    await stored_post(served, likes=6)

    counted = await served.ask(LIKE, {"post": "p"}, user="eve")
    bare = await served.ask('mutation { likePost(postId: "p") { createdAt post { text commentCount } } }', user="eve")

    assert order_of(counted) == BRACKET
    assert all(call.request["ConsistentRead"] for call in counted.calls if call.operation == "Query")
    assert order_of(bare) == []
    assert len(bare.calls) == 3  # the post and the user, the like, the post of the response


async def test_the_estimates_contain_the_reads_of_the_counts(served: Served) -> None:
    await stored_post(served)
    await create_profiles(served, "ada")
    steps = [(LIKE, {"post": "p"}), (UNLIKE, {"post": "p"}), (FOLLOW, {"id": "ada"}), (UNFOLLOW, {"id": "ada"})]
    steps += [(ADD, {"post": "p", "id": COMMENT_IDS[0]}), (DELETE, {"post": "p", "id": COMMENT_IDS[0]})]
    steps += [(CREATE, {"id": "q", "who": "PUBLIC"}), (DELETE_POST, {"id": "q"})]

    for mutation, variables in steps:
        answer = await served.ask(mutation, variables, user="eve")
        (report,) = served.reports
        assert answer.errors is None
        assert order_of(answer) == BRACKET, mutation
        assert report.cost <= report.estimate, mutation


@pytest.mark.parametrize("counted_before", ["Query", "GetItem"])
async def test_a_like_that_is_counted_during_the_reads_is_in_the_count_once(
    served: Served, consumer: CountingConsumer, monkeypatch: pytest.MonkeyPatch, counted_before: str
) -> None:
    await stored_post(served, likes=6)
    assert served.gateway.database is not None
    client = served.gateway.database.client
    call = client.call
    done: list[str] = []

    async def counting(operation: str, *arguments: Any, **options: Any) -> Any:
        """Count the like after the first read of the mark, or after the read of the count."""
        result = await call(operation, *arguments, **options)
        if "FEED-N7" in options.get("patterns", ()) and operation == counted_before and not done:
            done.append(operation)
            await consumer.count()
        return result

    monkeypatch.setattr(client, "call", counting)
    monkeypatch.setattr(client._transport, "start", lambda *_: None)  # every read is a `call`

    answer = await served.ask(LIKE, {"post": "p"}, user="eve")

    assert answer.data["likePost"]["post"]["likeCount"] == 7
    assert done == [counted_before]
    assert order_of(answer) == [*BRACKET, *BRACKET[1:]]


async def test_every_short_sequence_of_likes_and_counted_changes_shows_the_right_count(
    served: Served, consumer: CountingConsumer
) -> None:
    sequences = [*itertools.product(("like", "unlike", "count all", "count one"), repeat=4)]
    names = {f"p{number}": steps for number, steps in enumerate(sequences)}
    await asyncio.gather(*[stored_post(served, 6, post=post) for post in names])
    await consumer.count()

    async def run(post: str, step: str, is_liked: bool) -> bool:
        if step == "like":
            assert await likes_after(served, LIKE, post) == (7, True), names[post]
        elif step == "unlike":
            removed = await mutate(served, UNLIKE, "eve", post=post)
            shown = {"likeCount": 6, "commentCount": 0, "likedByViewer": False}
            assert removed == ({"post": shown} if is_liked else None), names[post]
        return step == "like" or (is_liked and step != "unlike")

    liked = dict.fromkeys(names, False)
    for turn in range(4):
        now = {post: steps[turn] for post, steps in names.items()}
        results = await asyncio.gather(*[run(post, step, liked[post]) for post, step in now.items()])
        liked = dict(zip(names, results, strict=True))
        first: set[str] = set()

        def is_counted(change: Any, now: dict[str, str] = now, first: set[str] = first) -> bool:
            post = change.keys["PK"].removeprefix("POST#")
            if now.get(post) != "count one" or post in first:
                return now.get(post) == "count all"
            first.add(post)
            return True

        await consumer.count_where(is_counted)


async def test_every_response_is_right_while_the_consumer_runs(served: Served) -> None:
    await stored_post(served, likes=6)
    await create_profiles(served, "ada")

    async with pipeline(served):
        for _ in range(12):
            likes = [await likes_after(served, mutation) for mutation in (LIKE, LIKE, UNLIKE)]
            users = [await mutate(served, mutation, "eve", id="ada") for mutation in (FOLLOW, FOLLOW, UNFOLLOW)]
            assert likes == [(7, True), (7, True), (6, False)]
            assert [user["user"]["followerCount"] for user in users] == [1, 1, 0]


async def test_comments_are_in_the_count_of_their_responses(served: Served, consumer: CountingConsumer) -> None:
    await stored_post(served, comments=2)

    async def shown(mutation: str, id: str) -> int:
        count: int = (await mutate(served, mutation, "eve", post="p", id=id))["post"]["commentCount"]
        return count

    first, repeated = await shown(ADD, COMMENT_IDS[0]), await shown(ADD, COMMENT_IDS[0])
    await consumer.count()
    counted, second = await shown(ADD, COMMENT_IDS[0]), await shown(ADD, COMMENT_IDS[1])
    deleted = await shown(DELETE, COMMENT_IDS[1])
    await consumer.count()
    last = await shown(DELETE, COMMENT_IDS[0])

    assert (first, repeated, counted, second, deleted, last) == (3, 3, 3, 4, 3, 2)


async def test_follows_are_in_the_counts_of_both_users(served: Served, consumer: CountingConsumer) -> None:
    await create_profiles(served, "ada", "eve", "fan")
    await follow_user(served, "fan", "ada")
    await consumer.count()

    async def shown(mutation: str) -> tuple[int, bool]:
        user = (await mutate(served, mutation, "eve", id="ada"))["user"]
        return user["followerCount"], user["followedByViewer"]

    before = [await shown(FOLLOW), await shown(FOLLOW), await shown(UNFOLLOW), await shown(FOLLOW)]
    await consumer.count()
    after = [await shown(FOLLOW), await shown(UNFOLLOW), await shown(FOLLOW)]

    assert before == [(2, True), (2, True), (1, False), (2, True)]
    assert after == [(2, True), (1, False), (2, True)]


async def test_the_number_of_followed_users_has_the_follow_too(served: Served) -> None:
    await create_profiles(served, "ada", "eve")
    nested = "user { followerCount followers { nodes { user { userId followingCount } } } }"

    followed = await mutate(served, f'mutation {{ follow(userId: "ada") {{ {nested} }} }}', "eve")

    assert followed["user"]["followerCount"] == 1
    assert followed["user"]["followers"]["nodes"] == [{"user": {"userId": "eve", "followingCount": 1}}]


async def test_a_post_is_in_the_count_of_its_author(served: Served, consumer: CountingConsumer) -> None:
    await create_profiles(served, "ada")

    async def shown(mutation: str, id: str, **visibility: str) -> int:
        count: int = (await mutate(served, mutation, "ada", id=id, **visibility))["author"]["postCount"]
        return count

    counts = [await shown(CREATE, "p", who="PUBLIC"), await shown(CREATE, "p", who="PUBLIC")]
    await consumer.count()
    counts += [await shown(CREATE, "p", who="PUBLIC"), await shown(CREATE, "q", who="FOLLOWERS")]
    counts += [await shown(CREATE, "r", who="PRIVATE"), await shown(DELETE_POST, "r"), await shown(DELETE_POST, "p")]
    await consumer.count()
    counts += [await shown(CREATE, "s", who="PRIVATE"), await shown(DELETE_POST, "q")]

    # Private posts do not count, and the posts that were written before are counted by the consumer.
    assert counts == [1, 1, 1, 2, 1, 1, 0, 1, 0]


async def test_mutations_of_one_operation_see_the_changes_before_them(served: Served) -> None:
    await stored_post(served, likes=6, comments=2)
    add = 'createComment(postId: "p", input: {commentId: "%s", text: "Hi"}) { post { commentCount likeCount } }'
    like, unlike = (f'{name}(postId: "p") {{ {POST} }}' for name in ("likePost", "unlikePost"))
    steps = [like, unlike, like, add % COMMENT_IDS[0], add % COMMENT_IDS[1]]
    document = " ".join(f"m{number}: {step}" for number, step in enumerate(steps))

    answer = await served.ask(f"mutation {{ {document} }}", user="eve")

    shown = [answer.data[f"m{number}"]["post"] for number in range(5)]
    assert [post["likeCount"] for post in shown] == [7, 6, 7, 7, 7]
    assert [post["commentCount"] for post in shown] == [2, 2, 2, 3, 4]
    assert [post["likedByViewer"] for post in shown[:3]] == [True, False, True]


async def test_changes_of_other_users_are_counted_by_the_consumer_alone(
    served: Served, consumer: CountingConsumer
) -> None:
    await cast(served, "PUBLIC")

    shown = [await likes_after(served, LIKE, user=user) for user in ("eve", "fan", "ada")]
    await consumer.count()

    assert shown == [(1, True)] * 3
    assert await likes_after(served, LIKE, user="eve") == (3, True)


async def test_concurrent_likes_of_different_users_have_each_their_own(
    served: Served, consumer: CountingConsumer
) -> None:
    await cast(served, "PUBLIC")

    shown = await asyncio.gather(*[likes_after(served, LIKE, user=user) for user in ("eve", "fan", "ada")])

    assert shown == [(1, True)] * 3


async def test_a_former_follower_unlikes_without_a_count(served: Served) -> None:
    await cast(served, "FOLLOWERS")
    await mutate(served, LIKE, "fan", post="p")
    await unfollow(served, "fan", "ada")

    assert await mutate(served, UNLIKE, "fan", post="p") == {"post": None}


async def test_a_dead_letter_that_is_replayed_late_is_counted_as_it_was_written(
    served: Served, consumer: CountingConsumer
) -> None:
    await stored_post(served, likes=6)
    await consumer.count()
    await mutate(served, LIKE, "eve", post="p")
    (letter,) = await consumer.pending()
    await mutate(served, UNLIKE, "eve", post="p")
    await consumer.count_where(lambda change: change.sequence != letter.sequence)
    await consumer.count([letter])

    assert await likes_after(served, LIKE) == (7, True)
    assert await likes_after(served, UNLIKE) == (6, False)


async def test_a_record_that_is_delivered_again_changes_neither_count_nor_mark(
    served: Served, consumer: CountingConsumer
) -> None:
    await stored_post(served, likes=6)
    await mutate(served, LIKE, "eve", post="p")
    changes = await consumer.pending()
    await consumer.count(changes)
    marks = await consumer.marks()

    await consumer.count(changes)

    assert await consumer.marks() == marks
    assert await likes_after(served, UNLIKE) == (6, False)


async def test_a_mark_of_a_newer_stream_is_later_than_those_of_the_replaced_one(
    served: Served, consumer: CountingConsumer
) -> None:
    await stored_post(served, likes=6)
    for mutation in (LIKE, UNLIKE, LIKE):
        await mutate(served, mutation, "eve", post="p")
    # The numbers of the stream that was replaced are greater.
    changes = [
        replace(change, sequence=f"{change.sequence}000", time=change.time - timedelta(days=2))
        for change in await consumer.pending()
    ]
    await consumer.count(changes)
    await consumer.skip()

    shown = []
    for mutation in (UNLIKE, LIKE, UNLIKE, LIKE):
        shown += [await likes_after(served, mutation)]
        await consumer.count()
        shown += [await likes_after(served, LIKE)] if mutation == LIKE else []

    assert shown == [(6, False), (7, True), (7, True), (6, False), (7, True), (7, True)]
