"""The pipeline as a Lambda function, invoked as by Lambda with records of the engine's stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Unavailable
from datastore.keyspace.feeds.table import FEED
from pipelines.consumer.aws_lambda import BATCH_RECORDS, MARGIN_SECONDS, OUTAGE, LambdaHandler
from pipelines.consumer.batches import RETRIES, BatchProcessor
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics
from pipelines.feeds import aws_lambda
from tests.support.consumers import AT_ONCE, Noting, letters_of, numbered
from tests.support.feed_changes import items_of, put_feed_records, store_of
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.feed_lambda import records_of
from tests.support.moments import utc_now


class Context:
    """The context of an invocation."""

    def __init__(self, seconds: float = 60) -> None:
        self._milliseconds = round(seconds * 1000)

    def get_remaining_time_in_millis(self) -> int:
        return self._milliseconds


class Function:
    """A Lambda function with handlers of the test."""

    def __init__(self, options: StoreOptions, *handlers: Handler, retries: Backoff = AT_ONCE) -> None:
        self.opened = 0
        self._options = options
        self._handlers = handlers
        self._retries = retries
        self._handler = LambdaHandler(FEED.name, self._open)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[BatchProcessor]:
        self.opened += 1
        async with open_database(self._options) as database:
            yield BatchProcessor(
                self._handlers,
                lambda: store_of(database),
                utc_now,
                StreamMetrics(),
                retries=self._retries,
                outage=OUTAGE,
                forever=False,
            )

    async def invoke(self, records: Sequence[dict[str, Any]], seconds: float = 60) -> Any:
        """Invoke the function in a thread, since it has its own event loop."""
        return await asyncio.to_thread(self._handler, {"Records": records}, Context(seconds))

    def close(self) -> None:
        self._handler.close()


@pytest.fixture
def function_of(store_options: StoreOptions) -> Iterator[Callable[..., Function]]:
    made: list[Function] = []

    def make(*handlers: Handler, retries: Backoff = AT_ONCE) -> Function:
        made.append(Function(store_options, *handlers, retries=retries))
        return made[-1]

    yield make
    for function in made:
        function.close()


def sequence(record: dict[str, Any]) -> Any:
    return record["dynamodb"]["SequenceNumber"]


async def test_records_are_handled_and_connections_are_reused(
    database: Database, function_of: Callable[..., Function]
) -> None:
    handler = Noting()
    function = function_of(handler)
    await put_feed_records(database, *[numbered(number) for number in range(6)])
    records = await records_of(database)

    assert await function.invoke(records[:3]) == {"batchItemFailures": []}
    assert await function.invoke(records[3:]) == {"batchItemFailures": []}

    assert handler.numbers() == list(range(6))
    assert function.opened == 1


async def test_a_poison_record_becomes_a_dead_letter_and_is_not_reported(
    database: Database, function_of: Callable[..., Function]
) -> None:
    async def fail(changes: Sequence[Change]) -> None:
        if any(change.new is not None and change.new["n"] == 2 for change in changes):
            raise ValueError("no 2")

    handler = Noting("handler", fail)
    await put_feed_records(database, *[numbered(number, f"item{number}") for number in range(4)])

    answer = await function_of(handler).invoke(await records_of(database))

    assert answer == {"batchItemFailures": []}
    assert sorted(handler.numbers()) == [0, 1, 3]
    assert [letter.error for letter in await letters_of(database)] == ["no 2"]


async def test_an_outage_reports_the_first_unhandled_record(
    database: Database, function_of: Callable[..., Function]
) -> None:
    async def fail(changes: Sequence[Change]) -> None:
        if any(change.new is not None and change.new["n"] == BATCH_RECORDS + 5 for change in changes):
            raise Unavailable("gone")

    handler = Noting("handler", fail)
    await put_feed_records(database, *[numbered(number, f"item{number}") for number in range(BATCH_RECORDS + 10)])
    records = await records_of(database)

    answer = await function_of(handler).invoke(records, seconds=900)

    assert answer == {"batchItemFailures": [{"itemIdentifier": sequence(records[BATCH_RECORDS])}]}
    assert handler.numbers() == list(range(BATCH_RECORDS))
    assert await letters_of(database) == []


async def test_three_seconds_suffice_for_dead_letters(database: Database, function_of: Callable[..., Function]) -> None:
    async def fail(_: Sequence[Change]) -> None:
        raise ValueError("a bug")

    await put_feed_records(database, *[numbered(number, f"item{number % 2}") for number in range(5)])
    left = await records_of(database)
    function = function_of(Noting("handler", fail), retries=RETRIES)

    for _ in range(5):
        if left:
            answer = await function.invoke(left, seconds=3)
            received = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
            first = next((number for number, one in enumerate(left) if sequence(one) in received), len(left))
            assert first > 0  # each invocation makes progress
            left = left[first:]

    assert left == []
    assert len(await letters_of(database)) == 5


async def test_records_handled_before_the_time_out_are_not_reported(
    database: Database, function_of: Callable[..., Function]
) -> None:
    async def take_long(changes: Sequence[Change]) -> None:
        await asyncio.sleep(0.2 * len(changes))

    await put_feed_records(database, *[numbered(number, f"item{number}") for number in range(40)])
    records = await records_of(database)

    answer = await function_of(Noting("handler", take_long)).invoke(records, seconds=3)

    ((_, received),) = answer["batchItemFailures"][0].items()
    assert received in [sequence(record) for record in records[1:20]]


@pytest.mark.parametrize("seconds", [MARGIN_SECONDS + 0.3, MARGIN_SECONDS - 1])
async def test_a_time_out_reports_the_first_unhandled_record(
    database: Database, function_of: Callable[..., Function], seconds: float
) -> None:
    async def take_long(_: Sequence[Change]) -> None:
        await asyncio.sleep(30)

    await put_feed_records(database, numbered(1), numbered(2))
    records = await records_of(database)

    answer = await function_of(Noting("handler", take_long)).invoke(records, seconds)

    assert answer == {"batchItemFailures": [{"itemIdentifier": sequence(records[0])}]}


async def test_the_environment_configures_the_feeds_function(
    database: Database, store_options: StoreOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_STORE", store_options.store)
    monkeypatch.setenv("GATEWAY_TABLE_PREFIX", store_options.prefix)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    await put_feed_records(database, user_item("ada"), post := post_item("p1"), like_item(post))
    event = {"Records": await records_of(database)}
    try:
        for _ in range(2):  # Lambda may deliver an event twice
            answer = await asyncio.to_thread(aws_lambda.handler, event, Context())
            assert answer == {"batchItemFailures": []}
    finally:
        await asyncio.to_thread(aws_lambda.handler.close)
    items = {(item["PK"], item["SK"]): item for item in await items_of(database, FEED)}
    assert items["POST#p1", "META"]["likes"] == 1
    assert items["USER#ada", "META"]["posts"] == 1
