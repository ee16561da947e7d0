"""Older changes, read from the stream for a client that resumes before the replay log begins."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.change_streams.replay.backfill import Backfill
from datastore.change_streams.replay.replay_log import MissingRange, ResumeTokenRefused
from datastore.change_streams.replay.resume_token import key_of
from datastore.change_streams.shards import stream_reader as module
from datastore.change_streams.shards.read_pace import FIRST_INTERVAL_SECONDS, JITTER
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled, Timeout, Unavailable
from tests.support.changes import number_of
from tests.support.scripted_stream import Script, Shard
from tests.support.virtual_time import in_virtual_time


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.005, 0.05))


def read_backfill(older: Backfill, after: int, before: Callable[[], int | None]) -> list[Change] | None:
    """Read the changes of the shard `a` after a sequence, in virtual time."""
    missing = MissingRange(key_of("arn:1", "a"), "a", None, str(after), False, before)
    found, complaints = in_virtual_time(lambda: older.read("arn:1", [missing]))
    assert complaints == []
    return None if found is None else [change for _, change in found]


@pytest.mark.parametrize("is_known", [True, False])
def test_older_changes_are_found_behind_many_empty_pages(is_known: bool) -> None:
    """Streams of AWS return such pages where little is written. With `is_known`, a later change is known."""
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(5)]
    script.shards["a"].empty = 40 if is_known else 20
    older = Backfill(script, seconds=1000, retry_seconds=1000, empty_seconds=0)
    found = read_backfill(older, numbers[0], lambda: numbers[4] if is_known else None)
    assert found is not None
    assert [number_of(change) for change in found] == (numbers[1:4] if is_known else numbers[1:])


def test_changes_not_reached_in_time_are_too_old() -> None:
    script = Script(a=Shard())
    first, last = script.write("a", "x"), script.write("a", "x")
    script.shards["a"].empty = 1_000_000_000
    assert read_backfill(Backfill(script, seconds=0.05), first, lambda: last + 1) is None


def test_a_busy_stream_is_read_up_to_the_position_of_delivery() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    reads: list[int] = []

    def before() -> int | None:
        reads.append(script.write("a", "x"))
        return reads[0] if len(reads) > 5 else None

    found = read_backfill(Backfill(script, empty_seconds=0), numbers[0], before)
    assert found is not None
    assert {*numbers[1:]} <= {number_of(change) for change in found}
    assert len(found) < 20


def test_changes_behind_more_empty_pages_than_the_end_of_a_stream_has_are_found_in_time() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(2)]
    script.shards["a"].empty = 30
    found = read_backfill(Backfill(script, empty_seconds=3.0), numbers[0], lambda: None)
    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:]


def test_throttled_reads_of_older_changes_are_repeated_at_a_lower_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    script.fail("GetRecords", Throttled("busy"), Throttled("busy"))
    asked_at: list[float] = []
    call = script.call

    async def timed(operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        if operation == "GetRecords":
            asked_at.append(asyncio.get_running_loop().time())
        return await call(operation, payload, timeout=timeout)

    monkeypatch.setattr(script, "call", timed)
    found = read_backfill(Backfill(script, empty_seconds=0), numbers[0], lambda: numbers[2])

    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:2]
    shortest = [FIRST_INTERVAL_SECONDS * (1 - JITTER), 2 * FIRST_INTERVAL_SECONDS * (1 - JITTER)]
    assert [later - earlier >= least for (earlier, later), least in zip(pairwise(asked_at), shortest, strict=True)] == [
        True,
        True,
    ]


FAULTS = [Throttled("busy"), Unavailable("gone"), Timeout("late"), RequestRefused("AccessDenied", "not yet")]


def test_a_backfill_waits_for_the_end_of_an_outage() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    script.fail("GetShardIterator", *FAULTS)
    script.fail("GetRecords", *FAULTS)
    older = Backfill(script, seconds=0.3, empty_seconds=0)  # shorter than the outage
    found = read_backfill(older, numbers[0], lambda: numbers[2])
    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:2]


def test_a_long_outage_does_not_restart_the_backfill() -> None:
    script = Script(a=Shard())
    number = script.write("a", "x")
    script.fail("GetRecords", *FAULTS * 1000)
    with pytest.raises(Unavailable) as failure:
        read_backfill(Backfill(script, retry_seconds=0.15), number, lambda: None)
    assert failure.value.extensions == {"code": "UNAVAILABLE", "retryable": True}
    assert "GetRecords" in script.calls


@pytest.mark.parametrize(("name", "is_refused"), [("ValidationException", True), ("TrimmedDataAccessException", False)])
def test_an_invalid_position_in_the_stream_is_final(name: str, is_refused: bool) -> None:
    script = Script(a=Shard())
    script.fail("GetShardIterator", RequestRefused(name, "no"))
    if is_refused:
        with pytest.raises(ResumeTokenRefused):
            read_backfill(Backfill(script), 5, lambda: None)
    else:
        assert read_backfill(Backfill(script), 5, lambda: None) is None
