"""Which answers are kept under an Idempotency-Key, for how long, and what becomes of claims whose holders are gone."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from graphql import GraphQLError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.database import Database
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
from datastore.gateway.idempotency_records import LARGEST_ANSWER, Claim, IdempotencyRecords
from datastore.keyspace.gateway import idempotency_records as keys
from datastore.keyspace.gateway.table import GATEWAY
from datastore.model.identity import Identity, Role
from datastore.model.ids import IdSource
from datastore.session.metering import Deadline, Meter
from datastore.session.store import Store
from server.admission.callers import Caller
from server.documents.request import GraphQLParams
from server.operations import idempotency
from server.operations.idempotency import Idempotency
from server.operations.outcome import Outcome, failure, replayed
from server.operations.request import Request, Transport
from tests.support.fault_proxy import Fault, Proxy, Seen, client_of, forward, hang, lose_answer, plain, refuse
from tests.support.served import NOON, Clock, call_name
from tests.support.until import until

ENGINE_SETTINGS = settings(
    deadline=None,
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LEASE = timedelta(seconds=60)
GONE = IdSource(NOON, "gone")


def request(key: str = "k", text: str = "mutation { a }", user: str = "ada", **variables: Any) -> Request:
    operation = SimpleNamespace(document=SimpleNamespace(hash=text), name=None)
    caller = Caller(Identity(user, Role.USER))
    asked = GraphQLParams(text, variables, idempotency_key=key)
    return Request(asked, caller, Transport.HTTP, cast(Any, operation), 0.0)


def failed(error: Exception, *, path: list[str | int] | None = None, wrote: bool = False) -> Outcome:
    """A field that failed, or with an empty path the operation."""
    where = ["a"] if path is None else path or None
    return Outcome(None, [GraphQLError(str(error), path=where, original_error=error)], wrote=wrote)


@dataclass
class Work:
    """A mutation: it counts how often it is executed, and answers what the test says."""

    outcome: Callable[[int], Outcome] = lambda number: Outcome({"a": number}, wrote=True)
    times: int = 0
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_go_on.set()

    async def __call__(self, origin: IdSource) -> Outcome:
        self.times += 1
        number = self.times
        await self.may_go_on.wait()
        return self.outcome(number)


@dataclass
class Process:
    """One of several processes on the same table."""

    once: Idempotency
    store: Callable[[float, Meter], Store]
    clock: Clock

    async def ask(self, asked: Request, work: Callable[[IdSource], Awaitable[Outcome]]) -> Outcome:
        return await self.once.run_once(asked, work, Meter())

    def answers(self) -> IdempotencyRecords:
        return IdempotencyRecords(self.store(10, Meter()), self.clock, LEASE)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "POLLING", Backoff(initial=0.002, maximum=0.005, attempts=500))


@pytest.fixture
async def processes(database: Database, proxy: Proxy, clock: Clock) -> AsyncIterator[tuple[Process, Process]]:
    ids = iter(range(10**6))
    async with client_of(proxy) as client:

        def store(seconds: float, meter: Meter) -> Store:
            deadline = Deadline(seconds)
            return Store(client, prefix=database.prefix, deadline=deadline, token=lambda: "", meter=meter)

        def process() -> Process:
            once = Idempotency(store, deadline=2, now=clock, new_id=lambda: f"id{next(ids)}")
            return Process(once, store, clock)

        yield process(), process()


FINAL = (Conflict("x"), NotFound("x"), Forbidden("x"), BadUserInput("x"))
PASSING = (Throttled("x"), Unavailable("x"), Timeout("x"), Unauthenticated("x"), ValueError("x"))


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
async def test_what_would_fail_again_is_kept(processes: tuple[Process, Process], error: DomainError) -> None:
    work = Work(lambda _: failed(error))
    first = await processes[0].ask(request(), work)
    assert (await processes[1].ask(request(), work)).body == first.body
    assert work.times == 1


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_what_may_succeed_the_next_time_is_not(processes: tuple[Process, Process], error: Exception) -> None:
    """As long as nothing was written: then a second try would write it twice."""
    for wrote, times in ((False, 2), (True, 1)):
        work = Work(lambda _, wrote=wrote: failed(error, wrote=wrote))  # type: ignore[misc]
        await processes[0].ask(request(f"k{wrote}"), work)
        again = await processes[1].ask(request(f"k{wrote}"), work)
        assert work.times == times
        assert (again.replayed is not None) is wrote


async def test_an_operation_that_was_stopped_is_kept_if_it_may_have_written(processes: tuple[Process, Process]) -> None:
    for wrote, times in ((False, 2), (True, 1)):
        work = Work(lambda _, wrote=wrote: failed(Timeout("late"), path=[], wrote=wrote))  # type: ignore[misc]
        first = await processes[0].ask(request(f"k{wrote}"), work)
        again = await processes[0].ask(request(f"k{wrote}"), work)
        assert work.times == times
        assert (again.is_failure, again.code, again.body) == (True, "TIMEOUT", first.body)


async def test_what_is_not_begun_leaves_the_key_free(processes: tuple[Process, Process]) -> None:
    async def shed(_: IdSource) -> Outcome:
        raise Unavailable("Too busy.")

    with pytest.raises(Unavailable, match="Too busy"):
        await processes[0].ask(request(), shed)
    assert (await processes[1].ask(request(text="another"), Work())).data == {"a": 1}


async def test_a_masked_error_is_the_same_error_again(processes: tuple[Process, Process]) -> None:
    """With the same id, under which the log has it once."""
    work = Work(lambda _: failed(ValueError("inside"), wrote=True))
    first = await processes[0].ask(request(), work)
    again = await processes[1].ask(request(), work)
    assert again.formatted_errors == first.formatted_errors
    assert again.formatted_errors[0]["extensions"]["errorId"]


def test_a_replay_tells_what_the_first_did() -> None:
    """Statuses and headers follow from these, and a WebSocket sends them as they are."""
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
async def test_answers_that_can_be_stored_are(processes: tuple[Process, Process], text: str) -> None:
    work = Work(lambda _: Outcome({"a": text}, wrote=True))
    first = await processes[0].ask(request(), work)
    assert (await processes[1].ask(request(), work)).body == first.body
    assert work.times == 1


async def test_of_an_answer_that_is_too_large_it_is_kept_that_there_was_one(
    processes: tuple[Process, Process], proxy: Proxy
) -> None:
    text = os.urandom(LARGEST_ANSWER).hex()
    work = Work(lambda _: Outcome({"a": text}, wrote=True))
    work.may_go_on.clear()
    asking = [asyncio.create_task(processes[0].ask(request(), work)) for _ in range(2)]
    await until(lambda: work.times == 1)
    work.may_go_on.set()
    # Twins of the same moment and process have it from memory.
    first, twin = await asyncio.gather(*asking)
    assert first.data == {"a": text}
    assert twin.body == first.body
    again = await processes[1].ask(request(), work)
    assert (again.code, again.is_failure, work.times) == ("IDEMPOTENCY_ANSWER_NOT_KEPT", True, 1)
    assert max(len(orjson.dumps(seen.body)) for seen in proxy.seen) < 2000


async def test_a_claim_whose_holder_is_gone_is_taken_over(processes: tuple[Process, Process], clock: Clock) -> None:
    """Its mutation may have been executed: it is again, and what the former holder answers is not kept."""
    slow, quick = Work(lambda _: Outcome({"a": "slow"})), Work(lambda _: Outcome({"a": "quick"}))
    slow.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(request(), slow))
    await until(lambda: slow.times == 1)
    clock.forward(seconds=31.9)
    waiting = asyncio.create_task(processes[1].ask(request(), quick))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    clock.forward(seconds=0.2)
    assert (await waiting).data == {"a": "quick"}
    slow.may_go_on.set()
    assert (await asking).data == {"a": "quick"}
    assert (await processes[0].ask(request(), Work())).data == {"a": "quick"}


async def test_who_takes_a_claim_over_makes_of_it_what_its_holder_made(
    processes: tuple[Process, Process], clock: Clock
) -> None:
    """However often it is taken over; and a key that is free again is begun anew."""
    origins = []

    async def fail(origin: IdSource) -> Outcome:
        origins.append(origin)
        await processes[0].store(10, Meter()).write_all(GATEWAY, puts=[await left_claim(processes[0])])
        raise Throttled("x")

    for _ in range(3):
        with pytest.raises(Throttled):
            await processes[0].ask(request(), fail)
        clock.forward(seconds=61)
    first = origins[0]
    assert [(one.requested_at, one.seed, one.is_retry) for one in origins] == [
        (NOON, first.seed, again) for again in (False, True, True)
    ]
    assert {one.id("a") for one in origins} == {first.id("a")}
    assert first.id("a") != first.id("b")


async def left_claim(process: Process) -> dict[str, Any]:
    """The claim of the key, as somebody else holds it who is gone."""
    item = await process.store(10, Meter()).get(keys.RECORD, keys.idempotency_record("ada", "k"))
    assert item is not None
    return {**item, "owner": "gone"}


async def test_a_claim_of_an_earlier_version_is_taken_over(processes: tuple[Process, Process], clock: Clock) -> None:
    """It has neither moment nor seed: what is made is new."""
    origins = []

    async def work(origin: IdSource) -> Outcome:
        origins.append(origin)
        return Outcome({"a": 1}, wrote=True)

    answers, fingerprint = processes[0].answers(), idempotency._fingerprint(request())
    await answers.begin(Claim("ada", "k", fingerprint, "gone", 1, GONE))
    item = await left_claim(processes[0])
    del item["moment"], item["seed"]
    await processes[0].store(10, Meter()).write_all(GATEWAY, puts=[item])
    clock.forward(seconds=61)

    assert (await processes[1].ask(request(), work)).data == {"a": 1}
    assert [(one.requested_at, one.is_retry) for one in origins] == [(clock(), True)]
    assert origins[0].seed != GONE.seed


async def test_of_those_who_wait_for_a_lost_claim_one_takes_it_over(
    processes: tuple[Process, Process], clock: Clock
) -> None:
    fingerprint = idempotency._fingerprint(request())
    assert isinstance(await processes[0].answers().begin(Claim("ada", "k", fingerprint, "gone", 1, GONE)), Claim)
    clock.forward(seconds=61)
    work = Work()
    got = await asyncio.gather(*[processes[number % 2].ask(request(), work) for number in range(10)])
    assert {outcome.body for outcome in got} == {b'{"data":{"a":1}}'}
    assert work.times == 1


async def test_who_waits_takes_no_other_request_for_his_own(processes: tuple[Process, Process], clock: Clock) -> None:
    """A lost claim is still the claim of what was asked with it."""
    await processes[0].answers().begin(Claim("ada", "k", "another", "gone", 1, GONE))
    clock.forward(seconds=61)
    with pytest.raises(IdempotencyMismatch):
        await processes[1].ask(request(), Work())


async def test_a_twin_waits_no_longer_than_its_own_deadline(processes: tuple[Process, Process]) -> None:
    work = Work()
    work.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(request(), work))
    await until(lambda: work.times == 1)
    processes[0].once._deadline = processes[1].once._deadline = 0.05
    for process in processes:
        with pytest.raises(Timeout, match="still being executed"):
            await process.ask(request(), work)
    work.may_go_on.set()
    await asking
    assert work.times == 1


async def test_who_waited_for_a_request_that_came_to_nothing_tries_itself(processes: tuple[Process, Process]) -> None:
    """In another process; in the same one it is told what the first is told."""
    work = Work(lambda number: failed(Throttled("x")) if number == 1 else Outcome({"a": number}, wrote=True))
    work.may_go_on.clear()
    asking = [asyncio.create_task(processes[0].ask(request(), work)) for _ in range(2)]
    await until(lambda: work.times == 1)
    other = asyncio.create_task(processes[1].ask(request(), work))
    await asyncio.sleep(0.01)
    work.may_go_on.set()
    first, twin = await asyncio.gather(*asking)
    assert (first.code, twin.body) == ("THROTTLED", first.body)
    assert (await other).data == {"a": 2}


async def test_a_store_that_is_down_executes_nothing(processes: tuple[Process, Process], proxy: Proxy) -> None:
    work = Work()
    for fault in (plain(503), refuse(400, "ThrottlingException")):
        proxy.always = fault
        with pytest.raises((Unavailable, Throttled)) as caught:
            await processes[0].ask(request(), work)
        # Whatever became of the claim: the mutation was not begun, and may be sent again.
        assert caught.value.extensions["retryable"] is True
        assert "mayHaveBeenApplied" not in caught.value.extensions
    assert work.times == 0
    proxy.always = None
    assert (await processes[0].ask(request(), work)).data == {"a": 1}


async def hold_answer(proxy: Proxy, seen: Seen) -> Any:
    """The engine does it, and does not answer in time."""
    await proxy.ask(seen)
    return await hang(proxy, seen)


@pytest.mark.parametrize(("fault", "error"), [(lose_answer, Unavailable), (hold_answer, Timeout)])
async def test_a_claim_of_which_nobody_heard_is_given_back(
    processes: tuple[Process, Process], proxy: Proxy, fault: Fault, error: type[DomainError]
) -> None:
    async def no_puts(proxy: Proxy, seen: Seen) -> Any:
        return await (fault if seen.operation == "PutItem" else forward)(proxy, seen)

    if fault is hold_answer:
        processes[0].once._deadline = 0.1
    proxy.always = no_puts
    work = Work()
    with pytest.raises(error, match="was not executed"):
        await processes[0].ask(request(), work)
    proxy.always = None
    assert (await processes[1].ask(request(text="another"), work)).data == {"a": 1}


@pytest.mark.parametrize(("seconds", "claims"), [(9.9, True), (10.1, False), (45, False), (95, False)])
async def test_a_claim_lasts_until_its_answer_is_kept(
    processes: tuple[Process, Process], proxy: Proxy, clock: Clock, seconds: float, claims: bool
) -> None:
    """Whatever passes before it is heard of: the put's answer is lost, and the next try's comes late."""
    deadline = processes[0].once._deadline = 60

    async def late(proxy: Proxy, seen: Seen) -> Any:
        clock.forward(seconds=seconds)
        return await forward(proxy, seen)

    proxy.faults += [lose_answer, late]
    first, second = Work(lambda _: Outcome({"a": "first"}, wrote=True)), Work()
    first.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(request(), first))
    await until(lambda: asking.done() or first.times == 1)
    assert first.times == claims
    # It takes the whole deadline, and so does the keeping.
    clock.forward(seconds=deadline + idempotency.KEEPING_SECONDS)
    trying = asyncio.create_task(processes[1].ask(request(), second))
    await until(lambda: trying.done() or proxy.operations().count("GetItem") > 1)
    assert second.times == (not claims)
    first.may_go_on.set()
    assert (await trying).data == {"a": "first" if claims else 1}
    if not claims:
        with pytest.raises(Timeout, match="was not executed"):
            await asking
    await asyncio.wait([asking])


async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    processes: tuple[Process, Process], proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_updates(proxy: Proxy, seen: Seen) -> Any:
        return await (plain(503) if seen.operation == "UpdateItem" else forward)(proxy, seen)

    proxy.always = no_updates
    with caplog.at_level(logging.ERROR):
        assert (await processes[0].ask(request(), Work())).data == {"a": 1}
    assert "could not be stored" in caplog.text
    # Until its lease ends, the claim keeps others from executing it again.
    processes[1].once._deadline = 0.05
    with pytest.raises(Timeout):
        await processes[1].ask(request(), Work())


async def test_work_that_is_left_goes_on_up_to_a_number(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(idempotency, "MAX_DETACHED", 2)
    once = processes[0].once
    go_on, ended = asyncio.Event(), []

    async def work(number: int) -> Outcome:
        await go_on.wait()
        ended.append(number)
        if number == 1:
            raise ValueError("unexpected")
        return Outcome({})

    callers = [asyncio.create_task(once.shielded(work(number))) for number in range(4)]
    await asyncio.sleep(0)
    for caller in callers[:3]:
        caller.cancel()
    await asyncio.wait(callers[:3])
    go_on.set()
    assert (await callers[3]).data == {}
    await once.aclose()
    assert sorted(ended) == [0, 1, 3]
    assert "A mutation failed after its client disconnected" in caplog.text


async def test_closing_stops_what_does_not_end(
    processes: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "STOP_SECONDS", 0.01)
    once, work = processes[0].once, Work()
    work.may_go_on.clear()
    asking = asyncio.create_task(once.shielded(processes[0].ask(request(), work)))
    await until(lambda: work.times == 1)
    twin = asyncio.create_task(processes[0].ask(request(), work))
    await asyncio.sleep(0)
    await once.aclose()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(Unavailable, match="was aborted"):
        await twin


async def test_what_is_done_to_the_store(processes: tuple[Process, Process]) -> None:
    async def calls(work: Work) -> list[str]:
        meter = Meter()
        await processes[0].once.run_once(request(), work, meter)
        return [call_name(call) for call in meter.calls]

    passing = Work(lambda _: failed(Throttled("x")))
    assert await calls(passing) == ["PutItem gateway", "DeleteItem gateway"]
    assert await calls(Work()) == ["PutItem gateway", "UpdateItem gateway"]
    assert await calls(Work()) == ["PutItem gateway"]


@dataclass(frozen=True)
class Step:
    """A request in the model: by which process, with which key and body, what becomes of it, and hours before it."""

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


@ENGINE_SETTINGS
@given(steps=STEPS)
@example(steps=[Step(0, 0, 0, kind, hours) for kind in KINDS for hours in (0, 0, 24)])
async def test_each_key_answers_as_it_first_did_until_it_expires(
    processes: tuple[Process, Process], clock: Clock, steps: list[Step]
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
        asked = request(f"k{step.key}", user=user, body=step.body)
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
