"""Claims of idempotency keys: they are taken over from a lost holder, waited for, released and renewed."""

import asyncio
from typing import Any

import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import (
    DomainError,
    IdempotencyMismatch,
    Throttled,
    Timeout,
    Unavailable,
)
from datastore.gateway.idempotency_records import Claim
from datastore.keyspace import gateway as keys
from datastore.keyspace.gateway import GATEWAY
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from server.operations import idempotency
from server.operations.outcome import Outcome
from tests.support.fault_proxy import Fault, Proxy, Seen, forward, hang, lose_answer, plain_error, refuse
from tests.support.idempotency import CountedMutation, IdempotentProcess, failed, keyed_request, processes
from tests.support.served import NOON, Clock
from tests.support.until import until

__all__ = ["processes"]

GONE = IdSource(NOON, "gone")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "POLLING", Backoff(initial=0.002, maximum=0.005, attempts=500))


async def test_a_claim_whose_holder_is_gone_is_taken_over(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock
) -> None:
    """The mutation may have been executed. It is executed again; the response of the former holder is not stored."""
    slow, quick = CountedMutation(lambda _: Outcome({"a": "slow"})), CountedMutation(lambda _: Outcome({"a": "quick"}))
    slow.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(keyed_request(), slow))
    await until(lambda: slow.times == 1)
    clock.forward(seconds=31.9)
    waiting = asyncio.create_task(processes[1].ask(keyed_request(), quick))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    clock.forward(seconds=0.2)
    assert (await waiting).data == {"a": "quick"}
    slow.may_go_on.set()
    assert (await asking).data == {"a": "quick"}
    assert (await processes[0].ask(keyed_request(), CountedMutation())).data == {"a": "quick"}


async def test_a_claim_that_is_taken_over_makes_the_same_ids(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock
) -> None:
    """This holds for any number of takeovers. A key that is free again starts with a new claim."""
    origins = []

    async def fail(origin: IdSource) -> Outcome:
        origins.append(origin)
        await processes[0].store(10, Meter()).write_all(GATEWAY, puts=[await left_claim(processes[0])])
        raise Throttled("x")

    for _ in range(3):
        with pytest.raises(Throttled):
            await processes[0].ask(keyed_request(), fail)
        clock.forward(seconds=61)
    first = origins[0]
    assert [(origin.requested_at, origin.seed, origin.is_retry) for origin in origins] == [
        (NOON, first.seed, again) for again in (False, True, True)
    ]
    assert {origin.id("a") for origin in origins} == {first.id("a")}
    assert first.id("a") != first.id("b")


async def left_claim(process: IdempotentProcess) -> dict[str, Any]:
    """Return the item of the key's claim as a lost holder would have left it."""
    item = await process.store(10, Meter()).get(keys.RECORD, keys.idempotency_record("ada", "k"))
    assert item is not None
    return {**item, "owner": "gone"}


async def test_a_claim_of_an_earlier_version_is_taken_over(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock
) -> None:
    """It has neither time nor seed, so the ids are new."""
    origins = []

    async def work(origin: IdSource) -> Outcome:
        origins.append(origin)
        return Outcome({"a": 1}, wrote=True)

    answers, fingerprint = processes[0].answers(), idempotency._fingerprint(keyed_request())
    await answers.begin(Claim("ada", "k", fingerprint, "gone", 1, GONE))
    item = await left_claim(processes[0])
    del item["moment"], item["seed"]
    await processes[0].store(10, Meter()).write_all(GATEWAY, puts=[item])
    clock.forward(seconds=61)

    assert (await processes[1].ask(keyed_request(), work)).data == {"a": 1}
    assert [(origin.requested_at, origin.is_retry) for origin in origins] == [(clock(), True)]
    assert origins[0].seed != GONE.seed


async def test_one_of_the_waiters_for_a_lost_claim_takes_it_over(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock
) -> None:
    fingerprint = idempotency._fingerprint(keyed_request())
    assert isinstance(await processes[0].answers().begin(Claim("ada", "k", fingerprint, "gone", 1, GONE)), Claim)
    clock.forward(seconds=61)
    work = CountedMutation()
    outcomes = await asyncio.gather(*[processes[number % 2].ask(keyed_request(), work) for number in range(10)])
    assert {outcome.body for outcome in outcomes} == {b'{"data":{"a":1}}'}
    assert work.times == 1


async def test_a_waiter_does_not_take_over_the_claim_of_another_request(
    processes: tuple[IdempotentProcess, IdempotentProcess], clock: Clock
) -> None:
    """A lost claim still belongs to the request that made it."""
    await processes[0].answers().begin(Claim("ada", "k", "another", "gone", 1, GONE))
    clock.forward(seconds=61)
    with pytest.raises(IdempotencyMismatch):
        await processes[1].ask(keyed_request(), CountedMutation())


async def test_a_twin_waits_no_longer_than_its_own_deadline(
    processes: tuple[IdempotentProcess, IdempotentProcess],
) -> None:
    work = CountedMutation()
    work.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(keyed_request(), work))
    await until(lambda: work.times == 1)
    processes[0].once._deadline = processes[1].once._deadline = 0.05
    for process in processes:
        with pytest.raises(Timeout, match="still being executed"):
            await process.ask(keyed_request(), work)
    work.may_go_on.set()
    await asking
    assert work.times == 1


async def test_a_waiter_for_a_failed_request_tries_itself(
    processes: tuple[IdempotentProcess, IdempotentProcess],
) -> None:
    """This is so in another process. In the same process the waiter receives the failure of the first."""
    work = CountedMutation(lambda number: failed(Throttled("x")) if number == 1 else Outcome({"a": number}, wrote=True))
    work.may_go_on.clear()
    asking = [asyncio.create_task(processes[0].ask(keyed_request(), work)) for _ in range(2)]
    await until(lambda: work.times == 1)
    other = asyncio.create_task(processes[1].ask(keyed_request(), work))
    await asyncio.sleep(0.01)
    work.may_go_on.set()
    first, twin = await asyncio.gather(*asking)
    assert (first.code, twin.body) == ("THROTTLED", first.body)
    assert (await other).data == {"a": 2}


async def test_a_store_that_is_down_executes_nothing(
    processes: tuple[IdempotentProcess, IdempotentProcess], proxy: Proxy
) -> None:
    work = CountedMutation()
    for fault in (plain_error(503), refuse(400, "ThrottlingException")):
        proxy.always = fault
        with pytest.raises((Unavailable, Throttled)) as caught:
            await processes[0].ask(keyed_request(), work)
        # Whatever happened to the claim, the mutation was not started and may be sent again.
        assert caught.value.extensions["retryable"] is True
        assert "mayHaveBeenApplied" not in caught.value.extensions
    assert work.times == 0
    proxy.always = None
    assert (await processes[0].ask(keyed_request(), work)).data == {"a": 1}


async def hold_answer(proxy: Proxy, seen: Seen) -> Any:
    """A fault: the engine executes the request, and does not answer in time."""
    await proxy.ask(seen)
    return await hang(proxy, seen)


@pytest.mark.parametrize(("fault", "error"), [(lose_answer, Unavailable), (hold_answer, Timeout)])
async def test_a_claim_whose_response_was_lost_is_released(
    processes: tuple[IdempotentProcess, IdempotentProcess], proxy: Proxy, fault: Fault, error: type[DomainError]
) -> None:
    async def no_puts(proxy: Proxy, seen: Seen) -> Any:
        return await (fault if seen.operation == "PutItem" else forward)(proxy, seen)

    if fault is hold_answer:
        processes[0].once._deadline = 0.1
    proxy.always = no_puts
    work = CountedMutation()
    with pytest.raises(error, match="was not executed"):
        await processes[0].ask(keyed_request(), work)
    proxy.always = None
    assert (await processes[1].ask(keyed_request(text="another"), work)).data == {"a": 1}


@pytest.mark.parametrize(("seconds", "claims"), [(9.9, True), (10.1, False), (45, False), (95, False)])
async def test_a_claim_lasts_until_its_response_is_stored(
    processes: tuple[IdempotentProcess, IdempotentProcess], proxy: Proxy, clock: Clock, seconds: float, claims: bool
) -> None:
    """This holds for any delay of the claim: its response is lost, and that of the next try is late."""
    deadline = processes[0].once._deadline = 60

    async def late(proxy: Proxy, seen: Seen) -> Any:
        clock.forward(seconds=seconds)
        return await forward(proxy, seen)

    proxy.faults += [lose_answer, late]
    first, second = CountedMutation(lambda _: Outcome({"a": "first"}, wrote=True)), CountedMutation()
    first.may_go_on.clear()
    asking = asyncio.create_task(processes[0].ask(keyed_request(), first))
    await until(lambda: asking.done() or first.times == 1)
    assert first.times == claims
    # The mutation and storing its response each take the whole time allowed.
    clock.forward(seconds=deadline + idempotency.STORING_SECONDS)
    trying = asyncio.create_task(processes[1].ask(keyed_request(), second))
    await until(lambda: trying.done() or proxy.operations().count("GetItem") > 1)
    assert second.times == (not claims)
    first.may_go_on.set()
    assert (await trying).data == {"a": "first" if claims else 1}
    if not claims:
        with pytest.raises(Timeout, match="was not executed"):
            await asking
    await asyncio.wait([asking])
