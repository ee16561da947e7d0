"""Dead letters: records that could not be handled are kept, listed, and handled later, once."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datastore.change_streams.change import Change, decode_change, encode_change
from datastore.change_streams.dead_letters import DeadLetter, DeadLetters, letter_of
from datastore.database import Database, StoreOptions
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE, FEED_PIPELINE
from datastore.keyspace.feeds.table import FEED
from gateway import cli
from pipelines.feeds.counters import Counters
from tests.support.consumers import letters_of, stream_record
from tests.support.feed_changes import feed_changes, items_of, put_feed_records, store_of
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.moments import utc_now

BUG = ValueError("a bug")


async def bury(database: Database, *records: dict[str, Any], handler: str = "counters") -> list[DeadLetter]:
    for number, record in enumerate(records):
        letter = letter_of(FEED.name, handler, record, BUG, 6, utc_now() + timedelta(milliseconds=number))
        await DeadLetters(store_of(database), CONSUMER_TABLE).bury(letter)
    return await letters_of(database)


@pytest.fixture
def options(store_options: StoreOptions) -> list[str]:
    return ["--store", store_options.store, "--prefix", store_options.prefix]


async def dlq(*arguments: str) -> Result:
    """Run `gateway.py dlq …` in a thread, because it starts an event loop of its own."""
    unset = {name: None for name in os.environ if name.startswith(("GATEWAY_", "AWS_"))}
    return await asyncio.to_thread(CliRunner().invoke, cli, ["dlq", *arguments], env=unset)


async def a_like(database: Database) -> Change:
    """Write a post of ada and bob's like of it. Return the change of the like."""
    await put_feed_records(database, user_item("ada"), post := post_item("p1"), like_item(post))
    return (await feed_changes(database))[-1]


async def likes(database: Database) -> int:
    (post,) = [item for item in await items_of(database, FEED) if item["PK"] == "POST#p1" and item["SK"] == "META"]
    count: int = post["likes"]
    return count


def test_a_change_is_encoded_as_it_was_decoded() -> None:
    removed = stream_record(1) | {"eventName": "REMOVE", "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com"}}
    removed["dynamodb"]["OldImage"] = removed["dynamodb"].pop("NewImage")
    for record in (stream_record(1), removed):
        assert decode_change("feed", encode_change(decode_change("feed", record))) == decode_change("feed", record)


async def test_a_letter_names_the_failure_and_is_kept_for_two_weeks(database: Database) -> None:
    (letter,) = await bury(database, stream_record(7))

    assert (letter.table, letter.handler, letter.event) == ("feed", "counters", "INSERT")
    assert letter.item_keys == {"PK": {"S": "k"}, "SK": {"S": "s"}}
    assert (letter.error_type, letter.error, letter.attempts, letter.whole) == ("ValueError", "a bug", 6, True)
    assert letter.record == stream_record(7)
    (item,) = await items_of(database, FEED_PIPELINE)
    assert abs(item["expiresAt"] - (utc_now() + timedelta(days=14)).timestamp()) < 60


async def test_letters_come_oldest_first_and_one_for_each_record_and_handler(database: Database) -> None:
    await bury(database, stream_record(2), stream_record(1), stream_record(2))
    letters = await bury(database, stream_record(1), handler="other")

    numbers = [(letter.record["dynamodb"]["SequenceNumber"], letter.handler) for letter in letters]
    assert sorted(numbers[:2]) == [("101", "counters"), ("101", "other")]
    assert numbers[2:] == [("102", "counters")]


async def test_letters_of_one_second_come_in_the_order_of_their_changes(database: Database) -> None:
    moment = stream_record(1)["dynamodb"]["ApproximateCreationDateTime"]
    records = []
    for number in (950, 3, 800, 20, 899, 1):  # 1050, 103, 900, …: sequences are numbers, not text
        record = stream_record(number, f"k{number}")
        record["dynamodb"]["ApproximateCreationDateTime"] = moment
        records.append(record)

    letters = await bury(database, *records)

    sequences = [int(letter.record["dynamodb"]["SequenceNumber"]) for letter in letters]
    assert sequences == sorted(sequences)


async def test_expired_letters_are_neither_listed_nor_replayed(database: Database, options: list[str]) -> None:
    change = await a_like(database)
    old = letter_of(FEED.name, "counters", encode_change(change), BUG, 6, utc_now() - timedelta(days=14, seconds=1))
    await DeadLetters(store_of(database), CONSUMER_TABLE).bury(old)

    listed, one, every = (
        await dlq("list", *options),
        await dlq("replay", old.id, *options),
        await dlq("replay", "--all", *options),
    )

    assert (listed.output, one.exit_code, every.output) == ("", 1, "0 replayed, 0 failed\n")
    assert await likes(database) == 0


async def test_letters_of_more_than_a_page_are_all_listed(database: Database) -> None:
    letters = await bury(database, *[stream_record(number, f"k{number}", text="x" * 300_000) for number in range(8)])
    assert len({letter.id for letter in letters}) == 8


async def test_a_record_too_big_for_an_item_is_kept_without_its_images(database: Database) -> None:
    small, big = stream_record(1, text="é" * 150_000), stream_record(2, text="é" * 195_000)

    first, second = await bury(database, small, big)

    assert (first.whole, first.record) == (True, small)
    assert not second.whole
    assert second.record["dynamodb"].keys() == {"Keys", "SequenceNumber", "ApproximateCreationDateTime"}


ENDLESS = {"dynamodb": {"SequenceNumber": "9" * 2000}}


@pytest.mark.parametrize(
    "odd", [{}, {"dynamodb": 5}, {"dynamodb": {"SequenceNumber": 5}}, {"x": "y" * 500_000}, ENDLESS]
)
async def test_a_record_of_any_form_can_be_kept(database: Database, odd: dict[str, Any]) -> None:
    (letter,) = await bury(database, odd)
    assert letter.event == "?"
    assert letter.whole is (odd.keys() != {"x"})


async def test_letters_are_listed(database: Database, options: list[str]) -> None:
    (letter,) = await bury(database, stream_record(7))

    lines = await dlq("list", *options)
    objects = await dlq("list", "--json", *options)

    for part in (letter.id, "2026-06-21T", "counters", "INSERT", '{"PK": {"S": "k"}, "SK": {"S": "s"}}', "a bug"):
        assert part in lines.output
    shown = json.loads(objects.stdout)
    assert (shown["id"], shown["keys"], shown["record"]) == (letter.id, letter.item_keys, stream_record(7))


async def test_a_redriven_letter_is_applied_once_and_deleted(database: Database, options: list[str]) -> None:
    change = await a_like(database)
    for expected in ("applied", "applied before"):
        (letter,) = await bury(database, encode_change(change))
        done = await dlq("replay", letter.id, *options)
        assert (done.exit_code, done.output) == (0, "1 replayed, 0 failed\n"), expected
        assert await likes(database) == 1
        assert await letters_of(database) == []


async def test_a_record_applied_by_the_pipeline_is_not_applied_by_a_redrive(
    database: Database, options: list[str]
) -> None:
    change = await a_like(database)
    await Counters(lambda: store_of(database), utc_now).handle([change])
    await bury(database, encode_change(change))

    assert (await dlq("replay", "--all", *options)).exit_code == 0
    assert await likes(database) == 1


async def test_a_letter_that_fails_again_is_kept_with_its_new_error(database: Database, options: list[str]) -> None:
    change = await a_like(database)
    await bury(database, encode_change(change))
    await bury(database, stream_record(1), handler="gone")
    await bury(database, stream_record(2, text="x" * 400_000))
    await bury(database, {"what": "ever"}, handler="decode")

    done = await dlq("replay", "--all", *options)

    assert done.exit_code == 1
    assert "1 replayed, 3 failed" in done.output
    errors = {letter.error for letter in await letters_of(database)}
    assert errors == {
        "There is no handler gone.",
        "The record was too large to be stored with its images.",
        "'dynamodb'",
    }
    assert {letter.attempts for letter in await letters_of(database)} == {7}


@pytest.mark.parametrize(("arguments", "words"), [(["nobody"], "no dead letter nobody"), ([], "name ids, or give")])
async def test_a_replay_reports_missing_options(
    database: Database, options: list[str], arguments: Sequence[str], words: str
) -> None:
    await bury(database, stream_record(1))
    done = await dlq("replay", *arguments, *options)
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)
    assert len(await letters_of(database)) == 1
