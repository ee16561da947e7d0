"""Budgets of callers: token buckets in read units, with the same behaviour in this process and in Redis."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from datastore.errors import Throttled
from datastore.model.identity import Identity, Role
from server.admission.budgets import Budget, CallerBudgets, LocalBuckets, OverBudget
from server.admission.callers import Caller, payer
from server.admission.redis_budgets import CONNECTIONS, RedisBuckets
from server.admission.settings import Capacity
from tests.support.until import until
from tests.support.virtual_time import VirtualLoop, in_virtual_time

REDIS = os.environ.get("GATEWAY_TEST_REDIS_URL", "redis://127.0.0.1:6379/0")

NEARLY = 1e-6


class Ticking:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def redis_buckets() -> AsyncIterator[Callable[..., RedisBuckets]]:
    """A factory of buckets in Redis, each with its own prefix."""
    made: list[RedisBuckets] = []

    def make(**how: Any) -> RedisBuckets:
        made.append(RedisBuckets(**{"url": REDIS, "prefix": f"test:{uuid.uuid4().hex}:", "timeout": 50.0, **how}))
        return made[-1]

    probe = make()
    await probe.charge("probe", Budget(1, 1), 1)
    if not probe.is_available:
        await probe.aclose()
        reason = f"Redis is needed at {REDIS}."
        if os.environ.get("REQUIRE_REDIS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    yield make
    for buckets in made:
        await buckets.aclose()


# --- One bucket -------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("charge"), st.floats(0, 150)),
        st.tuples(st.just("settle"), st.floats(-60, 150)),
        st.tuples(st.just("settle"), st.just(5_000.0)),
        st.tuples(st.just("wait"), st.floats(0, 20)),
    ),
    max_size=20,
)


class AsyncBuckets:
    """The buckets of this process behind the interface of those in Redis."""

    def __init__(self, buckets: LocalBuckets) -> None:
        self._buckets = buckets

    async def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        return self._buckets.take(key, budget, units, always=False)

    async def settle(self, key: str, budget: Budget, units: float) -> float:
        return self._buckets.take(key, budget, units, always=True)[1]


Buckets = AsyncBuckets | RedisBuckets


async def check_against_documentation(
    buckets: Buckets, clock: Ticking, key: str, taken: list[tuple[str, float]]
) -> None:
    """Compare the buckets with a model: they refill up to their size, and a debt is paid off."""
    budget = Budget(100, 7)
    balance = 100.0
    admitted = 0.0
    for kind, amount in taken:
        if kind == "wait":
            clock.now += amount
            balance = min(100, balance + 7 * amount)
        elif kind == "settle":
            balance = max(-1000, min(100, balance - amount))
            assert await buckets.settle(key, budget, amount) == pytest.approx(balance, abs=NEARLY)
        elif abs(balance - min(amount, 100)) > NEARLY:  # otherwise rounding decides
            fits = balance >= min(amount, 100)
            balance -= amount if fits else 0
            admitted += amount if fits else 0
            expected: Any = (fits, pytest.approx(balance, abs=NEARLY))
            assert await buckets.charge(key, budget, amount) == expected


@examples(max_examples=200)
@given(taken=steps)
def test_a_bucket_of_this_process(taken: list[tuple[str, float]]) -> None:
    clock = Ticking()
    asyncio.run(check_against_documentation(AsyncBuckets(LocalBuckets(clock)), clock, "key", taken))


@examples(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(taken=steps)
async def test_a_bucket_in_redis(redis_buckets: Callable[..., RedisBuckets], taken: list[tuple[str, float]]) -> None:
    clock = Ticking()
    buckets = redis_buckets(clock=clock)
    await check_against_documentation(buckets, clock, uuid.uuid4().hex, taken)
    assert buckets.is_available


async def most_at_once(buckets: list[Buckets], clock: Ticking) -> float:
    """Return the units that concurrent charges take, before and after half the bucket has been refilled."""
    budget = Budget(100, 10)
    had = 0.0
    for _ in range(2):
        charges = [one.charge("key", budget, 7) for one in buckets for _ in range(40)]
        had += 7 * sum(admitted for admitted, _ in await asyncio.gather(*charges))
        clock.now += 5
    return had


async def test_concurrent_charges_never_exceed_the_budget() -> None:
    clock = Ticking()
    assert await most_at_once([AsyncBuckets(LocalBuckets(clock))], clock) == 7 * (150 // 7)


async def test_concurrent_charges_of_several_processes_never_exceed_the_budget(
    redis_buckets: Callable[..., RedisBuckets],
) -> None:
    clock, prefix = Ticking(), f"test:{uuid.uuid4().hex}:"
    buckets: list[Buckets] = [redis_buckets(clock=clock, prefix=prefix) for _ in range(3)]
    assert await most_at_once(buckets, clock) == 7 * (150 // 7)


def test_full_buckets_are_not_kept() -> None:
    clock = Ticking()
    buckets = LocalBuckets(clock)
    budget = Budget(100, 10)
    for number in range(100):
        buckets.take(f"{number}", budget, 50, always=False)
    buckets.take("late", budget, 90, always=False)
    assert len(buckets) == 101
    clock.now += 6
    for _ in range(60):
        buckets.take("late", budget, 0, always=False)
    assert len(buckets) == 1
    buckets.take("late", budget, -1000, always=True)
    assert len(buckets) == 0


def test_the_number_of_buckets_is_limited() -> None:
    buckets = LocalBuckets(Ticking(), max_buckets=10)
    for number in range(1000):
        buckets.take(f"{number}", Budget(100, 10), 50, always=False)
    assert len(buckets) == 10


async def test_a_full_bucket_in_redis_is_removed(redis_buckets: Callable[..., RedisBuckets]) -> None:
    buckets = redis_buckets(prefix="")
    key = uuid.uuid4().hex
    await buckets.charge(key, Budget(100, 10), 50)
    assert 5_000 < await buckets._redis.pttl(key) <= 6_000
    await buckets.settle(key, Budget(100, 10), -50)
    assert not await buckets._redis.exists(key)


async def test_a_charge_that_is_cancelled_in_redis_is_refunded(
    redis_buckets: Callable[..., RedisBuckets], monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets, budget = redis_buckets(clock=Ticking()), Budget(100, 1)
    take, taken, may_go_on = buckets._take, asyncio.Event(), asyncio.Event()

    async def slow(**what: Any) -> Any:
        answer = await take(**what)
        taken.set()
        await may_go_on.wait()
        return answer

    monkeypatch.setattr(buckets, "_take", slow)
    leaving = [
        asyncio.create_task(asking)
        for asking in (buckets.charge("a", budget, 60), buckets.charge("b", budget, 60), buckets.settle("b", budget, 5))
    ]
    await taken.wait()
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    may_go_on.set()
    await until(lambda: not buckets._calls)
    assert await buckets.charge("a", budget, 0) == (True, 100)
    # Settlements complete although their callers were cancelled.
    assert await buckets.charge("b", budget, 0) == (True, 95)


@pytest.mark.parametrize(
    ("kept", "left"), [("-inf", -1000), ("-1e308", -1000), ("nan", -1000), ("1e308", 100), ("inf", 100), ("x", 100)]
)
async def test_a_damaged_bucket_is_repaired(redis_buckets: Callable[..., RedisBuckets], kept: str, left: float) -> None:
    buckets, budget = redis_buckets(clock=Ticking(), prefix=""), Budget(100, 7)
    key = uuid.uuid4().hex
    await buckets._redis.hset(key, mapping={"balance": kept, "at": "1000000"})
    assert await buckets.charge(key, budget, 0) == (left >= 0, left)
    assert await buckets.settle(key, budget, 0) == left
    await buckets._redis.delete(key)


async def test_a_foreign_key_does_not_make_redis_unavailable(redis_buckets: Callable[..., RedisBuckets]) -> None:
    buckets, budget = redis_buckets(clock=Ticking(), prefix=""), Budget(100, 1)
    key, other = uuid.uuid4().hex, uuid.uuid4().hex
    await buckets._redis.set(key, "not a bucket", px=10_000)
    assert await buckets.charge(key, budget, 60) == about(True, 40)
    assert await buckets.charge(key, budget, 60) == about(False, 40)
    assert buckets.is_available
    assert await buckets.charge(other, budget, 60) == (True, 40)
    assert await buckets._redis.exists(other)


def test_a_blocked_event_loop_does_not_make_redis_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        buckets, connections = RedisBuckets(REDIS, timeout=0.1), asyncio.Semaphore(CONNECTIONS)
        seconds = 0.01

        async def take(**_: Any) -> tuple[int, str]:
            async with connections:
                await asyncio.sleep(seconds)
            return 1, "40"

        def hold_up() -> None:
            loop.now += 0.15

        monkeypatch.setattr(buckets, "_take", take)
        charging = [asyncio.create_task(buckets.charge(f"{number}", Budget(100, 1), 60)) for number in range(80)]
        loop.call_later(0.005, hold_up)
        assert await asyncio.gather(*charging) == [(True, 40)] * 80
        assert buckets.is_available
        seconds = 0.11  # Redis itself is late: the call is abandoned
        assert await buckets.charge("late", Budget(100, 1), 60) == (True, 40)
        assert not buckets.is_available
        await buckets.aclose()

    in_virtual_time(work)


# --- Without Redis ----------------------------------------------------------------------------------------------------


class Port:
    """A connection to Redis that a test can interrupt."""

    def __init__(self) -> None:
        self.port = 0
        self.cut = False
        self.asked = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", 6379)
        self._writers += [writer, back]
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.asked += 1
            if not self.cut:
                writer.write(data)

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()


async def test_during_an_outage_of_redis_budgets_count_in_the_process(
    redis_buckets: Callable[..., RedisBuckets], caplog: pytest.LogCaptureFixture
) -> None:
    port = Port()
    await port.start()
    url = f"redis://127.0.0.1:{port.port}"
    buckets = redis_buckets(url=url, timeout=50, retry_seconds=0.2, clock=Ticking())
    budget = Budget(100, 10)
    assert await buckets.charge("key", budget, 60) == (True, 40)

    port.cut = True  # connections stay open without any response
    buckets._timeout = 0.02
    assert await buckets.charge("key", budget, 70) == about(True, 30)
    asked = port.asked
    for _ in range(20):
        assert await buckets.charge("key", budget, 70) == about(False, 30)
    assert not buckets.is_available
    assert port.asked - asked <= 5, "only the ping reaches Redis"

    port.cut = False
    buckets._timeout = 50
    async with asyncio.timeout(50):
        while not buckets.is_available:  # noqa: ASYNC110 - there is no event for the recovery
            await asyncio.sleep(0.01)
    assert await buckets.charge("key", budget, 30) == (True, 10)
    await buckets.aclose()
    await port.stop()
    assert len([record for record in caplog.records if "Redis" in record.getMessage()]) == 1


def about(admitted: bool, balance: float) -> Any:
    """Return the expected result. The clock advances during the test."""
    return admitted, pytest.approx(balance, abs=1)


async def test_a_connection_that_closes_at_once_makes_redis_unavailable() -> None:
    """uvloop raises a RuntimeError for a write on it, which the client does not catch."""

    async def closed(**_: object) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    buckets = RedisBuckets("redis://127.0.0.1:1", retry_seconds=10)
    buckets._take = closed

    assert await buckets.charge("ada", Budget(10, 1), 4) == (True, 6.0)
    assert not buckets.is_available
    await buckets.aclose()


async def test_without_redis_no_caller_is_refused() -> None:
    buckets = RedisBuckets("redis://127.0.0.1:1", retry_seconds=10)
    assert await buckets.charge("key", Budget(100, 10), 60) == (True, 40)
    assert await buckets.settle("key", Budget(100, 10), 60) == pytest.approx(-20, abs=1)
    assert not buckets.is_available
    await buckets.aclose()


# --- Callers ----------------------------------------------------------------------------------------------------------


def test_the_owner_of_a_budget() -> None:
    ada = Identity("ada", Role.USER)
    assert payer(Caller(ada, "192.0.2.1")) == payer(Caller(ada, "192.0.2.2"))
    assert payer(Caller(None, "192.0.2.1")) != payer(Caller(None, "192.0.2.2"))
    assert payer(Caller(None, "2001:db8:1:2::1")) == payer(Caller(None, "2001:db8:1:2:3:4:5:6"))
    assert payer(Caller(None, "2001:db8:1:2::1")) != payer(Caller(None, "2001:db8:1:3::1"))
    assert payer(Caller(None, "::ffff:192.0.2.1")) == payer(Caller(None, "192.0.2.1"))
    # A user whose name is an address does not share its budget.
    assert payer(Caller(Identity("192.0.2.1", Role.USER))) != payer(Caller(None, "192.0.2.1"))


async def units_until_refused(budgets: CallerBudgets, caller: Caller) -> float:
    """Return the units that a caller can spend, in steps of 100."""
    for number in range(1000):
        try:
            await budgets.charge(caller, 100)
        except OverBudget:
            return number * 100
    return float("inf")


async def test_the_budget_of_each_kind_of_caller() -> None:
    capacity = Capacity(budget_units=400, anonymous_budget_units=200)
    budgets = CallerBudgets(LocalBuckets(Ticking()), capacity)
    assert await units_until_refused(budgets, Caller(None, "192.0.2.1")) == 200
    assert await units_until_refused(budgets, Caller(Identity("ada", Role.USER))) == 400
    assert await units_until_refused(budgets, Caller(Identity("root", Role.ADMIN))) == 4000
    assert await units_until_refused(budgets, Caller(Identity("poller", Role.SYSTEM))) == float("inf")
    off = CallerBudgets(LocalBuckets(Ticking()), Capacity(budget_units=0, anonymous_budget_units=0))
    assert await units_until_refused(off, Caller(None, "192.0.2.1")) == float("inf")


async def test_a_refusal_states_the_time_to_wait() -> None:
    clock = Ticking()
    capacity = Capacity(budget_units=1000, budget_units_per_second=30)
    budgets = CallerBudgets(LocalBuckets(clock), capacity)
    ada = Caller(Identity("ada", Role.USER))
    await budgets.charge(ada, 950)
    with pytest.raises(Throttled) as refusal:
        await budgets.charge(ada, 200)
    assert str(refusal.value) == (
        "Your budget of 1,000 read units, refilled with 30 each second, does not suffice: "
        "the operation may cost 200, and 50 remain. Try again in 5 s."
    )
    assert refusal.value.extensions == {"code": "THROTTLED", "retryAfter": 5, "retryable": True}
    clock.now += 5
    await budgets.charge(ada, 200)


async def test_a_cost_above_the_whole_budget_is_admitted_when_the_bucket_is_full() -> None:
    clock = Ticking()
    budgets = CallerBudgets(LocalBuckets(clock), Capacity(budget_units=100, budget_units_per_second=10))
    ada = Caller(Identity("ada", Role.USER))
    allowance = await budgets.charge(ada, 300)
    assert allowance is not None
    assert (allowance.remaining, allowance.reset) == (-200, 30)
    clock.now += 29
    with pytest.raises(Throttled):
        await budgets.charge(ada, 300)
    clock.now += 1
    await budgets.charge(ada, 300)
