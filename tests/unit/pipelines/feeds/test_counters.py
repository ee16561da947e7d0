"""The counters of the feed's pipeline are exact, even if records are repeated, split and interrupted."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.codec import Item
from datastore.feeds.leaderboards import Leaderboards
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import leaderboards
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from datastore.keyspace.feeds.table import FEED
from datastore.model.timestamps import to_seconds
from pipelines.feeds.counters import Counters
from tests.support.fault_proxy import Proxy, apply_and_refuse, client_of, forward, refuse
from tests.support.feed_changes import delete_feed_records, feed_changes, items_of, put_feed_records, store_of
from tests.support.feed_items import (
    comment_item,
    following_item,
    inserted,
    like_item,
    modified,
    post_item,
    removed,
    tombstone,
    user_item,
)
from tests.support.served import NOON, Clock


def counters(database: Database, client: Client | None = None, clock: Clock | None = None) -> Counters:
    return Counters(lambda: store_of(database, client), clock or Clock(), uniform=lambda: 0.01)


async def nonzero_counters(database: Database) -> dict[str, dict[str, int]]:
    """Return the counters of users and posts that are not 0, by key."""
    counted = ("posts", "followers", "following", "likes", "comments")
    found = {
        item["PK"]: {name: item[name] for name in counted if item.get(name)}
        for item in await items_of(database, FEED)
        if item["SK"] == "META"
    }
    return {key: counts for key, counts in found.items() if counts}


async def metrics(database: Database) -> dict[str, dict[str, int]]:
    """Return the counts of months and windows that are not 0, by period and name."""
    found: dict[str, dict[str, int]] = {}
    for item in await items_of(database, FEED_METRICS):
        counts = {name: item[name] for name in ("posts", "likes", "comments", "score") if item.get(name)}
        if item["SK"] != leaderboards.BOARD and counts:
            found[f"{item['PK'].split('#')[1]} {item['SK']}"] = counts
    return found


async def boards(database: Database) -> dict[str, list[tuple[str, int]]]:
    return {
        item["PK"]: [(member["name"], member.get("score", member["posts"])) for member in item["members"]]
        for item in await items_of(database, FEED_METRICS)
        if item["SK"] == leaderboards.BOARD
    }


async def counters_and_boards(database: Database) -> Any:
    """Return all counters, counts and leaderboards."""
    return await nonzero_counters(database), await metrics(database), await boards(database)


def scenario(name: str = "", at: datetime = NOON) -> tuple[list[Item], list[Item]]:
    """Return the items that are added in order, and the items of them that are deleted later."""
    ada, bob, cleo = (f"{user}{name}" for user in ("ada", "bob", "cleo"))
    post = post_item(f"p1{name}", ada, at, tags=["tea", "cake"])
    followers_only = post_item(f"p2{name}", ada, at, "followers", tags=["tea"])
    private = post_item(f"p3{name}", bob, at, "private", tags=["tea"])
    added = [
        *map(user_item, (ada, bob, cleo)),
        *(post, followers_only, private),
        *(following_item(bob, ada), following_item(cleo, ada), following_item(ada, bob)),
        *(like_item(post, bob, at), like_item(post, cleo, at), like_item(post, ada, at)),
        *(like_item(followers_only, bob, at), like_item(private, bob, at)),
        *(comment_item(post, "c1", bob, at), comment_item(post, "c2", ada, at), comment_item(post, "c3", bob, at)),
    ]
    return added, [added[7], added[10], added[16]]


EXPECTED = (
    {
        "USER#ada": {"posts": 2, "followers": 1, "following": 1},
        "USER#bob": {"followers": 1, "following": 1},
        "POST#p1": {"likes": 2, "comments": 2},
        "POST#p2": {"likes": 1},
        "POST#p3": {"likes": 1},
    },
    {
        "2026-06 AUTHOR#ada": {"posts": 1, "likes": 1, "comments": 1, "score": 3},
        **{
            f"{window} TAG#{tag}": {"posts": 1} for window in ("2026-06-25", "2026-06-25T12") for tag in ("tea", "cake")
        },
    },
    {
        "AUTHORS#2026-06": [("ada", 3)],
        "TAGS#2026-06-25": [("cake", 1), ("tea", 1)],
        "TAGS#2026-06-25T12": [("cake", 1), ("tea", 1)],
    },
)


async def recorded_changes(database: Database) -> list[Change]:
    """Write the scenario to the table, and return its changes from the stream."""
    added, deleted = scenario()
    await put_feed_records(database, *added)
    await delete_feed_records(database, *deleted)
    return await feed_changes(database)


async def test_counts_follow_the_changes(database: Database) -> None:
    await counters(database).handle(await recorded_changes(database))

    assert await counters_and_boards(database) == EXPECTED


async def test_the_counters_own_writes_are_not_counted(database: Database) -> None:
    changes = await recorded_changes(database)
    await counters(database).handle(changes)

    own = await feed_changes(database, since=len(changes))
    await counters(database).handle(own)

    assert len(own) >= 5
    assert await counters_and_boards(database) == EXPECTED


@pytest.mark.parametrize("seed", range(4))
async def test_repeated_records_in_any_batches_change_nothing(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    changes = await recorded_changes(database)
    handled = 0

    while handled < len(changes):
        start = rng.randint(max(0, handled - 8), handled)
        handled = min(len(changes), handled + rng.randint(1, 6))
        await counters(database).handle([*changes[start:handled], *changes[start:handled:2]])
    await counters(database).handle(changes)

    assert await counters_and_boards(database) == EXPECTED


async def test_a_deleted_post_is_subtracted_with_its_likes_and_comments(database: Database) -> None:
    post = post_item("p1", tags=["tea", "tea"])
    like, comment = like_item(post), comment_item(post, "c1")
    await put_feed_records(database, user_item("ada"), post, like, comment)
    await put_feed_records(database, tombstone(post))
    await delete_feed_records(database, like, comment)

    await counters(database).handle(await feed_changes(database))

    assert await nonzero_counters(database) == {}
    assert await metrics(database) == {}
    assert await boards(database) == {"AUTHORS#2026-06": [], "TAGS#2026-06-25": [], "TAGS#2026-06-25T12": []}


async def test_a_removed_item_of_a_post_counts_as_a_deletion(database: Database) -> None:
    post = post_item("p1", tags=["tea"])
    await put_feed_records(database, user_item("ada"), post)
    await delete_feed_records(database, post)

    await counters(database).handle(await feed_changes(database))

    assert (await nonzero_counters(database), await metrics(database)) == ({}, {})


async def test_a_tombstone_that_expires_is_not_counted_again(database: Database) -> None:
    post = post_item("p1", tags=["tea"])
    await put_feed_records(database, user_item("ada"))
    changes = [inserted(post), modified(post, tombstone(post)), removed(tombstone(post), by_ttl=True)]

    await counters(database).handle(changes)

    assert (await nonzero_counters(database), await metrics(database)) == ({}, {})


async def test_likes_of_a_deleted_post_do_not_revive_it(database: Database) -> None:
    post = post_item("p1")
    gone = post_item("p2")
    await put_feed_records(database, tombstone(post))

    await counters(database).handle([inserted(answer) for answer in (like_item(post), like_item(gone, "cleo"))])

    (kept,) = await items_of(database, FEED)
    assert kept == tombstone(post)


async def test_missing_users_get_no_counters(database: Database) -> None:
    await put_feed_records(database, user_item("bob"))

    await counters(database).handle([inserted(following_item("bob", "nobody")), inserted(post_item("p1", "nobody"))])

    assert await nonzero_counters(database) == {"USER#bob": {"following": 1}}


async def test_a_removal_handled_before_its_addition_shows_no_negative_count(
    database: Database,
) -> None:
    """The records of the additions are dead letters at first."""
    await put_feed_records(
        database, user_item("ada"), user_item("bob"), post := post_item("p1"), more := post_item("p2")
    )
    like, follow = like_item(post), following_item("bob", "ada")
    await counters(database).handle([inserted(post), inserted(more)])

    await counters(database).handle([removed(like), removed(follow)])

    found = {item["PK"]: item for item in await items_of(database, FEED)}
    assert (Post.decoder(found["POST#p1"]).likes, User.decoder(found["USER#ada"]).followers) == (0, 0)
    (rank,) = await Leaderboards(store_of(database), NOON).top_authors("2026-06", 10)
    assert (rank.posts, rank.likes, rank.score) == (2, 0, 1)

    await counters(database).handle([inserted(like), inserted(follow)])

    assert (await nonzero_counters(database))["USER#ada"] == {"posts": 2}
    (rank,) = await Leaderboards(store_of(database), NOON).top_authors("2026-06", 10)
    assert (rank.posts, rank.likes, rank.score) == (2, 0, 2)


async def test_each_action_counts_in_the_month_of_its_own_time(database: Database) -> None:
    june, july = NOON.replace(day=30, hour=23), NOON.replace(month=7, day=1)
    post = post_item("p1", at=june, tags=["tea"])

    await counters(database).handle([inserted(post), inserted(like_item(post, at=july))])
    await counters(database).handle([removed(like_item(post, at=july)), inserted(comment_item(post, "c1", at=july))])

    assert await metrics(database) == {
        "2026-06 AUTHOR#ada": {"posts": 1, "score": 1},
        "2026-07 AUTHOR#ada": {"comments": 1, "score": 1},
        "2026-06-30 TAG#tea": {"posts": 1},
        "2026-06-30T23 TAG#tea": {"posts": 1},
    }
    assert (await boards(database))["AUTHORS#2026-07"] == [("ada", 1)]


async def test_expired_windows_of_tags_are_not_changed(database: Database) -> None:
    clock = Clock()
    clock.forward(days=4)
    post = post_item("p1", tags=["tea"])

    await counters(database, clock=clock).handle([inserted(post)])
    assert "2026-06-25 TAG#tea" in await metrics(database)
    clock.forward(days=60)
    await counters(database, clock=clock).handle([removed(post)])

    assert await metrics(database) == {"2026-06-25 TAG#tea": {"posts": 1}}
    assert (await boards(database))["TAGS#2026-06-25"] == [("tea", 1)]


async def test_counts_of_tags_expire_after_their_window(database: Database) -> None:
    await counters(database).handle([inserted(post_item("p1", tags=["tea"]))])

    found = {item["PK"]: item.get("expiresAt") for item in await items_of(database, FEED_METRICS)}
    shard = leaderboards.counters_of(leaderboards.TAGS, "2026-06-25", "tea").partition.split("#")[-1]
    assert found[f"TAGS#2026-06-25T12#{shard}"] == to_seconds(NOON + timedelta(hours=1, days=3))
    assert found[f"TAGS#2026-06-25#{shard}"] == to_seconds(NOON.replace(hour=0) + timedelta(days=61))
    assert {until for key, until in found.items() if key.startswith("AUTHORS")} == {None}


async def test_an_invalid_record_raises_and_the_others_count_without_it(database: Database) -> None:
    post = post_item("p1")
    await put_feed_records(database, post)
    senseless = {name: value for name, value in like_item(post).items() if name != "created_at"}
    good = [inserted(like_item(post, "cleo")), inserted(like_item(post, "dan"))]

    with pytest.raises(KeyError):
        await counters(database).handle([good[0], inserted(senseless), good[1]])
    assert await nonzero_counters(database) == {}
    await counters(database).handle(good)

    assert await nonzero_counters(database) == {"POST#p1": {"likes": 2}}


async def test_a_stale_leaderboard_is_refreshed_by_a_repeated_record(database: Database) -> None:
    changes = await recorded_changes(database)
    await counters(database).handle(changes)
    for item in await items_of(database, FEED_METRICS):
        if item["SK"] == leaderboards.BOARD:
            stale = {**item, "members": [], "version": item["version"] + 1}
            await store_of(database).write_all(FEED_METRICS, puts=[stale])

    await counters(database).handle(changes)

    assert await counters_and_boards(database) == EXPECTED


async def test_a_missing_leaderboard_is_built_from_all_counts(database: Database) -> None:
    changes = await recorded_changes(database)
    await counters(database).handle(changes)
    for item in await items_of(database, FEED_METRICS):
        if item["SK"] == leaderboards.BOARD:
            await store_of(database).write_all(FEED_METRICS, deletes=[leaderboards.board(*item["PK"].split("#"))])

    await counters(database).handle(changes[3:4])

    assert await counters_and_boards(database) == EXPECTED


@pytest.mark.parametrize("fault", [refuse(400, "AccessDeniedException"), apply_and_refuse], ids=["before", "after"])
async def test_a_failure_at_any_call_leaves_exact_counts_after_a_retry(
    database: Database, proxy: Proxy, fault: Any
) -> None:
    async with client_of(proxy) as client:
        first = await calls_of(database, client, proxy, "first")
        assert first == 6
        for number in range(first):
            changes = await counter_changes(database, f"-{number}")
            proxy.faults.extend([*[forward] * number, fault])

            with pytest.raises(RequestRefused):
                await counters(database, client).handle(changes)
            proxy.faults.clear()
            await counters(database, client).handle(changes)

    found = await nonzero_counters(database)
    for number in range(first):
        ours = {key.removesuffix(f"-{number}"): counts for key, counts in found.items() if key.endswith(f"-{number}")}
        assert ours == EXPECTED[0], number
    counted, listed = await metrics(database), await boards(database)
    assert listed["AUTHORS#2026-06"] == sorted(
        (f"ada{name}", 3) for name in ("first", *(f"-{n}" for n in range(first)))
    )
    assert counted["2026-06-25 TAG#tea"] == {"posts": first + 1}
    assert listed["TAGS#2026-06-25"] == [("cake", first + 1), ("tea", first + 1)]


async def calls_of(database: Database, client: Client, proxy: Proxy, name: str) -> int:
    """Return the number of calls for the scenario if the leaderboards exist."""
    await counters(database, client).handle([inserted(post_item("first", f"zoe{name}", tags=["zen"]))])
    await counters(database, client).handle([removed(post_item("first", f"zoe{name}", tags=["zen"]))])
    before = len(proxy.seen)
    await counters(database, client).handle(await counter_changes(database, name))
    return len(proxy.seen) - before


async def counter_changes(database: Database, name: str) -> list[Change]:
    added, deleted = scenario(name)
    await put_feed_records(database, *added)
    await delete_feed_records(database, *deleted)
    return [*map(inserted, added), *map(removed, deleted)]


class MeteredCounters:
    """Counters whose DynamoDB calls are recorded."""

    def __init__(self, database: Database) -> None:
        self.calls: list[Call] = []

        def open_store() -> Any:
            store = store_of(database)
            store.meter.calls = self.calls
            return store

        self.handler = Counters(open_store, Clock())

    async def calls_for(self, changes: Sequence[Change]) -> list[str]:
        self.calls.clear()
        await self.handler.handle(changes)
        return [call.operation for call in self.calls]


async def test_a_hundred_likes_of_a_post_are_one_write_and_their_marks(database: Database) -> None:
    post = post_item("p1")
    await put_feed_records(database, post)
    metered = MeteredCounters(database)
    await metered.calls_for([inserted(post)])
    likes = [inserted(like_item(post, f"fan{number}")) for number in range(100)]

    calls_for = await metered.calls_for(likes)

    assert calls_for == ["TransactWriteItems"] * 2 + ["GetItem"] * 2 + ["PutItem"]
    assert [len(call.request["TransactItems"]) for call in metered.calls[:2]] == [100, 4]
    assert (await nonzero_counters(database))["POST#p1"] == {"likes": 100}
    assert len(await items_of(database, FEED_PIPELINE)) == 101

    assert await metered.calls_for(likes) == calls_for
    assert (await nonzero_counters(database))["POST#p1"] == {"likes": 100}


async def test_irrelevant_changes_cost_no_call(database: Database) -> None:
    user = user_item("ada")
    tag = {"PK": "POST#p1", "SK": "TAG#tea", "author_id": "ada"}

    calls_for = await MeteredCounters(database).calls_for(
        [inserted(user), modified(user, {**user, "posts": 1}), inserted(tag)]
    )

    assert calls_for == []
