"""Effects of stream records: each is applied once, however often it comes, in few transactions."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from datastore.change_streams.change import position_of
from datastore.change_streams.exactly_once import MARK_LIFETIME, Effect, Write, apply, name_of
from datastore.database import Database
from datastore.dynamodb.client import Client, TransactionCancelled
from datastore.keyspace.feeds import leaderboards, posts
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE, FEED_PIPELINE, LATEST_COUNTED, change_effect
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.model.timestamps import to_seconds
from tests.support.fault_proxy import Proxy, lose_answer
from tests.support.feed_changes import items_of, put_feed_records, store_of
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.served import NOON


def tag_counter(name: str) -> Key:
    return leaderboards.counters_of(leaderboards.TAGS, "2026-06-25", name)


def adding(name: str, to: str, **numbers: int) -> Effect:
    return Effect(name, (Write(FEED_METRICS, tag_counter(to), add=numbers or {"posts": 1}),))


async def tag_counts(database: Database) -> dict[str, int]:
    items = await items_of(database, FEED_METRICS)
    return {item["SK"].removeprefix("TAG#"): item["posts"] for item in items}


async def test_an_effect_is_applied_once_however_often_it_comes(database: Database) -> None:
    effects = [adding("one", "tea"), adding("two", "tea"), adding("three", "cake")]

    for _ in range(3):
        await apply(store_of(database), CONSUMER_TABLE, effects, NOON)
    await apply(
        store_of(database), CONSUMER_TABLE, [*effects[1:], adding("four", "cake"), adding("four", "cake")], NOON
    )

    assert await tag_counts(database) == {"tea": 2, "cake": 2}


async def test_the_rest_of_a_batch_is_applied_in_the_second_try_of_its_transaction(database: Database) -> None:
    await apply(store_of(database), CONSUMER_TABLE, [adding(f"{number}", "tea") for number in range(0, 60, 2)], NOON)
    store = store_of(database)

    await apply(store, CONSUMER_TABLE, [adding(f"{number}", "tea") for number in range(60)], NOON)

    assert await tag_counts(database) == {"tea": 60}
    assert [call.operation for call in store.meter.calls] == ["TransactWriteItems"] * 2


async def test_effects_fill_transactions_and_their_writes_to_one_item_become_one_write(database: Database) -> None:
    store = store_of(database)

    await apply(store, CONSUMER_TABLE, [adding(f"{number}", "tea") for number in range(150)], NOON)

    assert await tag_counts(database) == {"tea": 150}
    assert [len(call.request["TransactItems"]) for call in store.meter.calls] == [100, 52]


async def test_effects_on_many_items_are_spread_over_as_many_transactions_as_it_takes(database: Database) -> None:
    store = store_of(database)

    await apply(store, CONSUMER_TABLE, [adding(f"{number}", f"tag{number}") for number in range(120)], NOON)

    assert await tag_counts(database) == {f"tag{number}": 1 for number in range(120)}
    assert [len(call.request["TransactItems"]) for call in store.meter.calls] == [100, 100, 40]


async def test_effects_that_add_up_to_nothing_write_a_mark_only(database: Database) -> None:
    effects = [adding("up", "tea", posts=1), adding("down", "tea", posts=-1)]

    await apply(store_of(database), CONSUMER_TABLE, effects, NOON)
    await apply(store_of(database), CONSUMER_TABLE, effects[:1], NOON)

    assert await items_of(database, FEED_METRICS) == []
    assert len(await items_of(database, FEED_PIPELINE)) == 2


async def test_the_last_of_several_set_values_counts(database: Database) -> None:
    effects = [
        Effect(f"{number}", (Write(FEED_METRICS, tag_counter("tea"), add={"posts": 1}, set={"last": number}),))
        for number in range(5)
    ]

    await apply(store_of(database), CONSUMER_TABLE, effects, NOON)

    (item,) = await items_of(database, FEED_METRICS)
    assert (item["posts"], item["last"]) == (5, 4)


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_first_of_several_effects_of_one_name_counts(database: Database, at_once: bool) -> None:
    first, second = adding("word", "tea"), adding("word", "cake")

    for batch in [[first, second]] if at_once else [[first], [second]]:
        await apply(store_of(database), CONSUMER_TABLE, batch, NOON)

    assert await tag_counts(database) == {"tea": 1}


async def test_a_write_whose_condition_does_not_hold_is_left_out_alone_and_for_good(database: Database) -> None:
    gone = Write(FEED, posts.post("p1"), add={"likes": 1}, only_if=posts.NOT_DELETED)
    effects = [
        Effect("both", (gone, Write(FEED_METRICS, tag_counter("tea"), add={"posts": 1}))),
        adding("other", "tea"),
    ]

    await apply(store_of(database), CONSUMER_TABLE, effects, NOON)
    await put_feed_records(database, post_item("p1"))
    await apply(store_of(database), CONSUMER_TABLE, effects, NOON)

    assert await tag_counts(database) == {"tea": 2}
    assert [item["likes"] for item in await items_of(database, FEED)] == [0]


async def test_concurrent_applications_of_the_same_effects_apply_them_once(database: Database) -> None:
    effects = [adding(f"{number}", f"tag{number % 3}") for number in range(60)]

    await asyncio.gather(
        *[apply(store_of(database), CONSUMER_TABLE, effects[start:], NOON) for start in (0, 0, 20, 40)]
    )

    assert await tag_counts(database) == {"tag0": 20, "tag1": 20, "tag2": 20}


async def test_a_lost_response_leaves_the_effect_applied_once(database: Database, client: Client, proxy: Proxy) -> None:
    proxy.faults.append(lose_answer)

    await apply(store_of(database, client), CONSUMER_TABLE, [adding("one", "tea")], NOON)

    assert await tag_counts(database) == {"tea": 1}


async def test_an_impossible_effect_raises_and_leaves_nothing_behind(database: Database) -> None:
    await put_feed_records(database, user_item("ada"))
    (item,) = await items_of(database, FEED)
    impossible = Effect("no", (Write(FEED, Key(item["PK"], item["SK"]), add={"name": 1}),))

    with pytest.raises(TransactionCancelled, match="ValidationError"):
        await apply(store_of(database), CONSUMER_TABLE, [adding("one", "tea"), impossible], NOON)

    assert await items_of(database, FEED_METRICS) == await items_of(database, FEED_PIPELINE) == []


async def test_marks_are_kept_longer_than_streams_and_dead_letters(database: Database) -> None:
    await apply(store_of(database), CONSUMER_TABLE, [adding("one", "tea")], NOON)

    (mark,) = await items_of(database, FEED_PIPELINE)
    assert mark["expiresAt"] == to_seconds(NOON + MARK_LIFETIME)
    assert (
        timedelta(days=14 + 1 + 2) < MARK_LIFETIME
    )  # dead letters may be kept a day late and deleted two days after they expire


def test_the_effects_of_an_item_have_the_name_of_its_handler_and_its_key() -> None:
    post = post_item("p1")
    keys = [key_of(FEED, item) for item in (like_item(post), like_item(post, "cleo"), post_item("p2"))]

    names = [name_of(handler, FEED.name, key) for handler in ("counters", "notifications") for key in keys]

    assert len(set(names)) == 6
    assert name_of("counters", FEED.name, keys[0]) == names[0]
    assert all(len(name) < 64 for name in names)


async def test_the_changes_of_an_item_are_effects_of_their_own_in_one_partition(database: Database) -> None:
    changes = [adding("item", "tea"), adding("item", "tea"), adding("item", "cake")]
    effects = [
        replace(effect, position=position_of(number), outcome={"number": number})
        for effect, number in zip(changes, ("9", "9", "10"), strict=True)
    ]

    for _ in range(2):
        await apply(store_of(database), CONSUMER_TABLE, effects, NOON)

    marks = [mark async for mark in store_of(database).query_all(LATEST_COUNTED, change_effect.values_of("item"))]
    assert await tag_counts(database) == {"tea": 1, "cake": 1}
    assert [mark["number"] for mark in marks] == ["10", "9"]
