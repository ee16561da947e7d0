"""Responses stored under an Idempotency-Key: which ones, and for how long."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
import pytest
from graphql import GraphQLError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import (
    BadUserInput,
    Conflict,
    DomainError,
    Forbidden,
    IdempotencyMismatch,
    NotFound,
    Throttled,
    Timeout,
    Unauthenticated,
    Unavailable,
)
from datastore.gateway.idempotency_records import MAX_RESPONSE_BYTES
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from server.operations import idempotency
from server.operations.outcome import Outcome, failure, replayed
from tests.support.fault_proxy import Proxy, Seen, forward, plain_error
from tests.support.idempotency import CountedMutation, IdempotentProcess, failed, keyed_request, processes
from tests.support.served import Clock, call_name
from tests.support.until import until

__all__ = ["processes"]

ENGINE_SETTINGS = settings(
    deadline=None,
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "POLLING", Backoff(initial=0.002, maximum=0.005, attempts=500))


FINAL = (Conflict("x"), NotFound("x"), Forbidden("x"), BadUserInput("x"))

PASSING = (Throttled("x"), Unavailable("x"), Timeout("x"), Unauthenticated("x"), ValueError("x"))


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
async def test_permanent_failures_are_stored(
    processes: tuple[IdempotentProcess, IdempotentProcess], error: DomainError
) -> None:
    work = CountedMutation(lambda _: failed(error))
    first = await processes[0].ask(keyed_request(), work)
    assert (await processes[1].ask(keyed_request(), work)).body == first.body
    assert work.times == 1


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_temporary_failures_are_not_stored(
    processes: tuple[IdempotentProcess, IdempotentProcess], error: Exception
) -> None:
    """This applies only if nothing was written. Otherwise a second try would write it twice."""
    for wrote, times in ((False, 2), (True, 1)):
        work = CountedMutation(lambda _, wrote=wrote: failed(error, wrote=wrote))  # type: ignore[misc]
        await processes[0].ask(keyed_request(f"k{wrote}"), work)
        again = await processes[1].ask(keyed_request(f"k{wrote}"), work)
        assert work.times == times
        assert (again.replayed is not None) is wrote


async def test_a_stopped_operation_is_stored_if_it_may_have_written(
    processes: tuple[IdempotentProcess, IdempotentProcess],
) -> None:
    for wrote, times in ((False, 2), (True, 1)):
        work = CountedMutation(lambda _, wrote=wrote: failed(Timeout("late"), path=[], wrote=wrote))  # type: ignore[misc]
        first = await processes[0].ask(keyed_request(f"k{wrote}"), work)
        again = await processes[0].ask(keyed_request(f"k{wrote}"), work)
        assert work.times == times
        assert (again.is_failure, again.code, again.body) == (True, "TIMEOUT", first.body)


async def test_a_request_that_was_not_started_leaves_the_key_free(
    processes: tuple[IdempotentProcess, IdempotentProcess],
) -> None:
    async def shed(_: IdSource) -> Outcome:
        raise Unavailable("Too busy.")

    with pytest.raises(Unavailable, match="Too busy"):
        await processes[0].ask(keyed_request(), shed)
    assert (await processes[1].ask(keyed_request(text="another"), CountedMutation())).data == {"a": 1}


async def test_a_masked_error_is_the_same_error_again(processes: tuple[IdempotentProcess, IdempotentProcess]) -> None:
    """It has the same id, under which it is logged once."""
    work = CountedMutation(lambda _: failed(ValueError("inside"), wrote=True))
    first = await processes[0].ask(keyed_request(), work)
    again = await processes[1].ask(keyed_request(), work)
    assert again.formatted_errors == first.formatted_errors
    assert again.formatted_errors[0]["extensions"]["errorId"]


def test_a_replay_has_the_code_and_flags_of_the_first_response() -> None:
    """Statuses and headers follow from these fields, and a WebSocket sends them unchanged."""
    for outcome in (
        Outcome({"a": 1}),
        Outcome({"a": None}, [GraphQLError("No.", path=["a"], original_error=NotFound("No."))]),
        failure(Throttled("Later.", retryAfter=3)),
        failed(ValueError("inside")),
    ):
        again = replayed(outcome.body)
        assert again.body == outcome.body
        assert (again.is_failure, again.code, again.formatted_errors, again.data) == (
            outcome.is_failure,
            outcome.code,
            orjson.loads(orjson.dumps(outcome.formatted_errors)),
            outcome.data,
        )


@pytest.mark.parametrize("text", ["x" * 500, "x" * 2_000_000], ids=["small", "large"])
async def test_responses_that_can_be_stored_are_stored(
    processes: tuple[IdempotentProcess, IdempotentProcess], text: str
) -> None:
    work = CountedMutation(lambda _: Outcome({"a": text}, wrote=True))
    first = await processes[0].ask(keyed_request(), work)
    assert (await processes[1].ask(keyed_request(), work)).body == first.body
    assert work.times == 1


async def test_a_response_that_is_too_large_is_stored_as_a_marker(
    processes: tuple[IdempotentProcess, IdempotentProcess], proxy: Proxy
) -> None:
    text = os.urandom(MAX_RESPONSE_BYTES).hex()
    work = CountedMutation(lambda _: Outcome({"a": text}, wrote=True))
    work.may_go_on.clear()
    asking = [asyncio.create_task(processes[0].ask(keyed_request(), work)) for _ in range(2)]
    await until(lambda: work.times == 1)
    work.may_go_on.set()
    # Concurrent requests of the same process receive it from memory.
    first, twin = await asyncio.gather(*asking)
    assert first.data == {"a": text}
    assert twin.body == first.body
    again = await processes[1].ask(keyed_request(), work)
    assert (again.code, again.is_failure, work.times) == ("IDEMPOTENCY_RESPONSE_NOT_KEPT", True, 1)
    assert max(len(orjson.dumps(seen.body)) for seen in proxy.seen) < 2000


async def test_a_response_that_cannot_be_stored_is_returned(
    processes: tuple[IdempotentProcess, IdempotentProcess], proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_updates(proxy: Proxy, seen: Seen) -> Any:
        return await (plain_error(503) if seen.operation == "UpdateItem" else forward)(proxy, seen)

    proxy.always = no_updates
    with caplog.at_level(logging.ERROR):
        assert (await processes[0].ask(keyed_request(), CountedMutation())).data == {"a": 1}
    assert "could not be stored" in caplog.text
    # Until its lease ends, the claim keeps others from executing it again.
    processes[1].once._deadline = 0.05
    with pytest.raises(Timeout):
        await processes[1].ask(keyed_request(), CountedMutation())


async def test_abandoned_work_continues_up_to_a_limit(
    processes: tuple[IdempotentProcess, IdempotentProcess],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(idempotency, "MAX_DETACHED", 2)
    once = processes[0].once
    may_finish, ended = asyncio.Event(), []

    async def work(number: int) -> Outcome:
        await may_finish.wait()
        ended.append(number)
        if number == 1:
            raise ValueError("unexpected")
        return Outcome({})

    callers = [asyncio.create_task(once.shielded(work(number))) for number in range(4)]
    await asyncio.sleep(0)
    for caller in callers[:3]:
        caller.cancel()
    await asyncio.wait(callers[:3])
    may_finish.set()
    assert (await callers[3]).data == {}
    await once.aclose()
    assert sorted(ended) == [0, 1, 3]
    assert "A mutation failed after its client disconnected" in caplog.text


async def test_closing_cancels_work_that_does_not_end(
    processes: tuple[IdempotentProcess, IdempotentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "STOP_SECONDS", 0.01)
    once, work = processes[0].once, CountedMutation()
    work.may_go_on.clear()
    asking = asyncio.create_task(once.shielded(processes[0].ask(keyed_request(), work)))
    await until(lambda: work.times == 1)
    twin = asyncio.create_task(processes[0].ask(keyed_request(), work))
    await asyncio.sleep(0)
    await once.aclose()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(Unavailable, match="was aborted"):
        await twin


async def test_the_calls_to_the_store(processes: tuple[IdempotentProcess, IdempotentProcess]) -> None:
    async def calls(work: CountedMutation) -> list[str]:
        meter = Meter()
        await processes[0].once.run_once(keyed_request(), work, meter)
        return [call_name(call) for call in meter.calls]

    passing = CountedMutation(lambda _: failed(Throttled("x")))
    assert await calls(passing) == ["PutItem gateway", "DeleteItem gateway"]
    assert await calls(CountedMutation()) == ["PutItem gateway", "UpdateItem gateway"]
    assert await calls(CountedMutation()) == ["PutItem gateway"]


@dataclass(frozen=True)
class Step:
    """A request in the model: its process, key and body, its outcome, and the hours before it."""

    process: int
    key: int
    body: int
    kind: str
    hours: float


KINDS = ("done", "refused", "throttled", "broke after writing", "shed")

STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 1),
        st.integers(0, 2),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from(KINDS),
        st.sampled_from((0, 0, 0.01, 11, 12.5, 24, 25)),
    ),
    max_size=14,
)

OUTCOMES: dict[str, Callable[[int], Outcome]] = {
    "done": lambda number: Outcome({"a": number}, wrote=True),
    "refused": lambda number: failed(NotFound(f"No {number}.")),
    "throttled": lambda number: failed(Throttled(f"Busy {number}.")),
    "broke after writing": lambda number: failed(Unavailable(f"Gone {number}."), wrote=True),
}

USERS = iter(range(10**6))


@pytest.mark.proof
@ENGINE_SETTINGS
@given(steps=STEPS)
@example(steps=[Step(0, 0, 0, kind, hours) for kind in KINDS for hours in (0, 0, 24)])
async def test_each_key_returns_its_first_response_until_it_expires(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock, steps: list[Step]
) -> None:
    user, executed = f"user{next(USERS)}", 0
    kept: dict[int, tuple[int, bytes, Any]] = {}
    for step in steps:
        clock.forward(hours=step.hours)
        known = kept.get(step.key)
        if known is not None and known[2] <= clock():
            del kept[step.key]
            known = None

        async def run(_: IdSource, kind: str = step.kind) -> Outcome:
            nonlocal executed
            if kind == "shed":
                raise Unavailable("Too busy.")
            executed += 1
            return OUTCOMES[kind](executed)

        before = executed
        asked = keyed_request(f"k{step.key}", user=user, body=step.body)
        answering = processes[step.process].ask(asked, run)
        if known is not None and known[0] != step.body:
            with pytest.raises(IdempotencyMismatch):
                await answering
        elif known is not None:
            assert (await answering).body == known[1]
        elif step.kind == "shed":
            with pytest.raises(Unavailable):
                await answering
        else:
            body = (await answering).body
            assert executed == before + 1
            if step.kind != "throttled":
                kept[step.key] = step.body, body, clock() + timedelta(hours=24)
            continue
        assert executed == before
