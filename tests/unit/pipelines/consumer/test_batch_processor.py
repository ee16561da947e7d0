"""Batches: every change reaches every handler, and a poison record delays only changes of the same item."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, Throttled, Timeout, Unavailable
from datastore.keyspace.feeds.pipeline import PUT_DEAD_LETTER
from datastore.keyspace.feeds.table import FEED
from datastore.primitives import retries
from pipelines.consumer.batches import RETRIES, BatchProcessor
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics
from tests.support.consumers import AT_ONCE, SOON, Noting, letters_of, stream_record
from tests.support.fault_proxy import Proxy, refuse
from tests.support.feed_changes import store_of
from tests.support.moments import utc_now
from tests.support.until import until


def batches_of(
    database: Database,
    *handlers: Handler,
    retries: Backoff = AT_ONCE,
    forever: bool = True,
    client: Client | None = None,
    metrics: StreamMetrics | None = None,
) -> BatchProcessor:
    return BatchProcessor(
        handlers,
        lambda: store_of(database, client),
        utc_now,
        metrics or StreamMetrics(),
        retries=retries,
        outage=SOON,
        forever=forever,
    )


class Poisoned(Noting):
    """A handler that fails on some items or changes, whatever else is in the batch."""

    def __init__(self, *, items: Sequence[str] = (), numbers: Sequence[int] = (), times: int = 10**6) -> None:
        super().__init__("poisoned", self._check)
        self._items = items
        self._numbers = numbers
        self._times = times

    async def _check(self, changes: Sequence[Change]) -> None:
        for change in changes:
            assert change.new is not None
            bad = change.keys["PK"] in self._items or change.new["n"] in self._numbers
            if bad and self._times > 0:
                self._times -= 1
                raise ValueError(f"no {change.new['n']}")


async def test_every_handler_gets_every_change_in_one_call(database: Database) -> None:
    first, second = Noting("first"), Noting("second")

    await batches_of(database, first, second).handle(FEED.name, [stream_record(number) for number in range(50)])

    assert first.numbers() == second.numbers() == list(range(50))
    assert (first.calls, second.calls) == (1, 1)


async def test_handlers_work_concurrently(database: Database) -> None:
    both = asyncio.Barrier(2)

    async def meet(_: Sequence[Change]) -> None:
        await both.wait()

    async with asyncio.timeout(50):
        await batches_of(database, Noting("a", meet), Noting("b", meet)).handle(FEED.name, [stream_record(1)])


async def test_a_poison_record_is_buried_and_all_others_are_handled_in_order(database: Database) -> None:
    handler, other = Poisoned(numbers=[37]), Noting("other")
    records = [stream_record(number, f"item{number % 5}") for number in range(100)]
    metrics = StreamMetrics()

    await batches_of(database, handler, other, metrics=metrics).handle(FEED.name, records)

    (letter,) = await letters_of(database)
    assert (letter.handler, letter.event, letter.error_type, letter.error) == (
        "poisoned",
        "INSERT",
        "ValueError",
        "no 37",
    )
    assert letter.attempts == 6
    assert letter.record["dynamodb"]["SequenceNumber"] == "137"
    assert sorted(handler.numbers()) == [number for number in range(100) if number != 37]
    for item in range(5):
        numbers = handler.numbers(f"item{item}")
        assert all(before < after for before, after in pairwise(numbers))
    assert other.numbers() == list(range(100))
    labels = {"table": "feed", "handler": "poisoned"}
    assert metrics.registry.get_sample_value("stream_dead_letters_total", labels) == 1
    assert metrics.registry.get_sample_value("stream_records_total", {**labels, "outcome": "handled"}) == 99


async def test_a_change_that_fails_a_few_times_is_not_buried(database: Database) -> None:
    handler = Poisoned(items=["k"], times=4)

    await batches_of(database, handler).handle(FEED.name, [stream_record(1), stream_record(2, "other")])

    assert sorted(handler.numbers()) == [1, 2]
    assert await letters_of(database) == []


async def test_poison_records_wait_concurrently(database: Database) -> None:
    retries = Backoff(initial=0.2, maximum=0.2, attempts=3)
    handler = Poisoned(items=[f"bad{number}" for number in range(200)])
    records = [stream_record(number, f"bad{number}") for number in range(200)] + [stream_record(999, "good")]
    started = asyncio.get_running_loop().time()

    await batches_of(database, handler, retries=retries).handle(FEED.name, records)

    assert asyncio.get_running_loop().time() - started < 20  # one after another wait 40 s
    assert len(await letters_of(database)) == 200
    assert handler.numbers() == [999]


def test_a_poison_record_delays_its_shard_by_three_seconds_at_most() -> None:
    assert sum(RETRIES.delays(lambda: 1.0)) == pytest.approx(3.1)


async def test_later_changes_of_the_same_item_wait_for_a_poison_record(database: Database) -> None:
    handler = Poisoned(numbers=[2])

    await batches_of(database, handler).handle(FEED.name, [stream_record(1), stream_record(2), stream_record(3)])

    assert handler.numbers() == [1, 3]
    assert [letter.error for letter in await letters_of(database)] == ["no 2"]


async def test_many_poison_records_of_one_item_delay_the_shard_no_longer_than_one(database: Database) -> None:
    handler = Poisoned(items=["bad"])
    records = [stream_record(number, "bad") for number in range(200)] + [stream_record(999, "good")]
    started = asyncio.get_running_loop().time()

    await batches_of(database, handler, retries=Backoff(initial=0.2, maximum=0.2, attempts=3)).handle(
        FEED.name, records
    )

    assert asyncio.get_running_loop().time() - started < 20  # one after another wait 40 s
    assert [letter.attempts for letter in await letters_of(database)] == [3] + [1] * 199
    assert handler.numbers() == [999]


async def test_a_bug_with_every_record_delays_a_page_by_the_time_of_two_records_at_most(database: Database) -> None:
    retries = Backoff(initial=0.2, maximum=0.2, attempts=6)
    records = [stream_record(number, f"item{number}") for number in range(200)]
    handler = Poisoned(items=[f"item{number}" for number in range(200)])
    started = asyncio.get_running_loop().time()

    await batches_of(database, handler, retries=retries).handle(FEED.name, records)

    assert asyncio.get_running_loop().time() - started < 30  # one after another wait 100 s
    assert len(await letters_of(database)) == 200
    assert handler.calls < 200 * 6 + 150  # not every record is tried alone in each round


async def test_changes_that_succeed_late_do_not_delay_a_page_one_after_another(database: Database) -> None:
    tries = Counter[int]()

    async def flicker(changes: Sequence[Change]) -> None:
        for change in changes:
            assert change.new is not None
            tries[change.new["n"]] += 1
            if len(changes) > 1 or tries[change.new["n"]] < 4:
                raise ValueError("not yet")

    retries = Backoff(initial=0.1, maximum=0.1, attempts=4)
    started = asyncio.get_running_loop().time()

    await batches_of(database, Noting("handler", flicker), retries=retries).handle(
        FEED.name, [stream_record(number) for number in range(300)]
    )

    assert asyncio.get_running_loop().time() - started < 20  # one after another wait 45 s


async def test_a_throttled_item_delays_no_other_and_is_retried(database: Database) -> None:
    cooled = asyncio.Event()

    async def throttle(changes: Sequence[Change]) -> None:
        if not cooled.is_set() and any(change.keys["PK"] == "hot" for change in changes):
            raise Throttled("hot")

    handler = Noting("handler", throttle)
    records = [stream_record(0, "hot")] + [stream_record(number, f"item{number}") for number in range(1, 50)]
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(batches_of(database, handler).handle(FEED.name, records))
        await until(lambda: len(handler.seen) == 49)
        assert not task.done()
        cooled.set()

    assert sorted(handler.numbers()) == list(range(50))
    assert await letters_of(database) == []


async def test_changes_that_can_never_be_stored_are_buried_after_one_try(database: Database) -> None:
    async def store(changes: Sequence[Change]) -> None:
        for change in changes:
            key, size = change.keys["PK"], 500_000 if change.keys["PK"] == "large" else 1
            if key in ("long", "large", "group"):
                problem = store_of(database).put(
                    PUT_DEAD_LETTER, {"PK": key * (1 if size > 1 else 1024), "SK": "s", "text": "x" * size}
                )
                try:
                    await problem
                except BadUserInput as refused:
                    raise refused if key == "long" else ExceptionGroup("both", [refused, refused]) from None

    metrics, handler = StreamMetrics(), Noting("handler", store)
    records = [stream_record(1, "long"), stream_record(2, "large"), stream_record(3, "group"), stream_record(4, "good")]

    async with asyncio.timeout(50):
        await batches_of(
            database, handler, retries=Backoff(initial=600, maximum=600, attempts=6), metrics=metrics
        ).handle(FEED.name, records)

    letters = {letter.error_type: letter.attempts for letter in await letters_of(database)}
    assert letters == {"BadUserInput": 1, "RequestRefused": 1, "ExceptionGroup": 1}
    assert handler.numbers() == [4]
    labels = {"table": "feed", "handler": "handler", "outcome": "retried"}
    assert metrics.registry.get_sample_value("stream_records_total", labels) is None


async def test_changes_after_a_change_that_was_buried_at_once_have_all_their_tries(database: Database) -> None:
    tries = 0

    async def fail(changes: Sequence[Change]) -> None:
        nonlocal tries
        for change in changes:
            assert change.new is not None
            if change.new["n"] == 1:
                raise RequestRefused("ValidationException", "it is refused")
            if len(changes) == 1 and (tries := tries + 1) < 4:
                raise ValueError("not yet")

    handler = Noting("handler", fail)

    await batches_of(database, handler).handle(FEED.name, [stream_record(1), stream_record(2)])

    assert handler.numbers() == [2]
    assert [letter.attempts for letter in await letters_of(database)] == [1]


async def test_an_outage_is_reported_again_while_it_lasts(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "REPEAT_SECONDS", 0.1)
    ends = asyncio.get_running_loop().time() + 0.3

    async def fail(_: Sequence[Change]) -> None:
        if asyncio.get_running_loop().time() < ends:
            raise RequestRefused("AccessDeniedException", "no rights")

    await batches_of(database, Noting("handler", fail)).handle(FEED.name, [stream_record(1)])

    assert 2 <= caplog.text.count("no rights") <= 4


@pytest.mark.parametrize(
    "outage",
    [
        Throttled("busy"),
        Unavailable("gone"),
        Timeout("late"),
        RequestRefused("AccessDeniedException", "no"),
        RequestRefused("403", "a proxy says no"),
        RequestRefused("ValidationException", "Cannot read from backfilling global secondary index: GSI1"),
    ],
    ids=["throttled", "gone", "late", "denied", "proxy", "backfilling"],
)
async def test_changes_wait_for_the_end_of_an_outage_and_are_never_buried(
    database: Database, outage: Exception
) -> None:
    left = 20

    async def fail(_: Sequence[Change]) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise outage

    handler = Noting("handler", fail)

    await batches_of(database, handler).handle(FEED.name, [stream_record(1), stream_record(2, "other")])

    assert sorted(handler.numbers()) == [1, 2]
    assert handler.calls > 20
    assert await letters_of(database) == []


async def test_a_batch_that_misses_its_deadline_is_split(database: Database) -> None:
    async def time_out(changes: Sequence[Change]) -> None:
        if len(changes) > 10:
            raise Timeout("late")

    handler = Noting("handler", time_out)

    async with asyncio.timeout(50):
        await batches_of(database, handler).handle(
            FEED.name, [stream_record(number, f"k{number}") for number in range(100)]
        )

    assert handler.numbers() == list(range(100))


async def test_burying_waits_for_the_end_of_an_outage(database: Database, proxy: Proxy, client: Client) -> None:
    proxy.faults.extend([refuse(500, "InternalServerError")] * 10)
    handler = Poisoned(numbers=[1])

    await batches_of(database, handler, client=client).handle(FEED.name, [stream_record(1), stream_record(2)])

    assert not proxy.faults
    assert [letter.error for letter in await letters_of(database)] == ["no 1"]


async def test_only_a_processor_that_may_wait_forever_does_so(database: Database) -> None:
    async def fail(_: Sequence[Change]) -> None:
        raise Unavailable("gone")

    with pytest.raises(ExceptionGroup) as raised:
        await batches_of(database, Noting("handler", fail), forever=False).handle(FEED.name, [stream_record(1)])

    assert raised.group_contains(Unavailable)
    assert await letters_of(database) == []


async def test_an_invalid_record_is_buried_unchanged(database: Database) -> None:
    handler = Noting()
    broken = stream_record(1)
    broken["dynamodb"]["NewImage"] = {"n": {"WHAT": "1"}}
    nothing = {"what": "ever"}
    keyless = stream_record(3)
    keyless["dynamodb"]["Keys"] = {"PK": {"L": []}, "SK": {"S": "s"}}

    await batches_of(database, handler).handle(FEED.name, [broken, stream_record(2), nothing, keyless])

    letters = {letter.error_type: letter for letter in await letters_of(database)}
    assert letters["ValueError"].record == broken
    assert letters["KeyError"].record == nothing
    assert letters["TypeError"].record == keyless
    assert {letter.handler for letter in letters.values()} == {"decode"}
    assert handler.numbers() == [2]
