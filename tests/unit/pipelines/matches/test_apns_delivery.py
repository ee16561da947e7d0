"""The delivery of pushes over HTTP/2 to a server with faults: retries, concurrency, logs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from email.utils import format_datetime

import pytest

from pipelines.matches.push.apns import ApnsLimits, ApnsPushService
from pipelines.matches.push.push_service import LoggedPushService, Push, PushOutcome, Sent
from tests.support.apns import LIMITS, credentials
from tests.support.apns_pushes import TOKEN, UPDATE, delivery, make, pushes
from tests.support.apns_server import SERVING, ApnsAnswer, ApnsServer, Fault, Request, server
from tests.support.served import NOON, Clock
from tests.support.time_jumps import jump

__all__ = ["delivery", "make", "server"]


def first_then(*answers: ApnsAnswer | Fault) -> Callable[[Request], ApnsAnswer | Fault]:
    """Return these responses in order, then deliveries. The last hanging one advances the clock by the time limit."""
    rest = iter(answers)
    hanging = answers.count(Fault.HANG)

    def answer(_: Request) -> ApnsAnswer | Fault:
        nonlocal hanging
        response = next(rest, ApnsAnswer())
        if response is Fault.HANG:
            hanging -= 1
            if not hanging:
                jump(LIMITS.answer_seconds)
        return response

    return answer


# Responses of APNs
@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        (410, "Unregistered", PushOutcome.REJECTED),
        (410, "ExpiredToken", PushOutcome.REJECTED),
        (400, "BadDeviceToken", PushOutcome.REJECTED),
        (400, "DeviceTokenNotForTopic", PushOutcome.REJECTED),
        (400, "BadTopic", PushOutcome.FAILED),
        (413, "PayloadTooLarge", PushOutcome.FAILED),
        (404, None, PushOutcome.FAILED),
    ],
)
async def test_a_final_response_is_not_retried(
    server: ApnsServer, delivery: ApnsPushService, status: int, reason: str | None, outcome: PushOutcome
) -> None:
    server.answer = lambda _: ApnsAnswer(status, reason)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(outcome, reason or f"Status{status}")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "faults",
    [
        [ApnsAnswer(500, "InternalServerError")],
        [ApnsAnswer(503, "ServiceUnavailable"), ApnsAnswer(503, "Shutdown")],
        [Fault.HANG],
        [Fault.RESET],
        [Fault.GOAWAY],
        [Fault.CLOSE],
        [Fault.CLOSE, ApnsAnswer(429, "TooManyRequests"), Fault.GOAWAY],
    ],
    ids=str,
)
async def test_temporary_failures_are_retried(
    server: ApnsServer, delivery: ApnsPushService, faults: list[ApnsAnswer | Fault]
) -> None:
    server.answer = first_then(*faults)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent.outcome is PushOutcome.DELIVERED
    # After a GOAWAY, httpx itself sends unprocessed requests again.
    assert len(faults) - faults[1:].count(Fault.GOAWAY) <= sent.retries <= len(faults)


async def test_the_number_of_retries_is_limited(server: ApnsServer, delivery: ApnsPushService) -> None:
    server.answer = lambda _: ApnsAnswer(503, "ServiceUnavailable")

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "ServiceUnavailable", 3)
    assert len(server.requests) == 4


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for(server: ApnsServer, delivery: ApnsPushService, form: str) -> None:
    wait = "1" if form == "seconds" else format_datetime(NOON + timedelta(seconds=1), usegmt=True)
    server.answer = first_then(ApnsAnswer(429, "TooManyRequests", {"retry-after": wait}))
    began = asyncio.get_running_loop().time()

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.DELIVERED, None, 1)
    assert asyncio.get_running_loop().time() - began >= 1


async def test_a_retry_after_beyond_the_deadline_fails_at_once(server: ApnsServer, delivery: ApnsPushService) -> None:
    server.answer = lambda _: ApnsAnswer(429, "TooManyRequests", {"retry-after": "60"})

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "TooManyRequests", 0)


async def test_without_a_server_a_push_fails(clock: Clock) -> None:
    async with ApnsServer() as server:
        unreachable = credentials(server)
    delivery = ApnsPushService(unreachable, clock, limits=LIMITS)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "NoAnswer", 3)
    await delivery.aclose()


# Concurrency
async def test_hanging_streams_do_not_exhaust_a_connection(server: ApnsServer, delivery: ApnsPushService) -> None:
    server.answer = first_then(*[Fault.HANG] * LIMITS.concurrent)

    summary = await delivery.send_all(pushes(130))

    assert summary.outcomes == {PushOutcome.DELIVERED: 130}
    assert summary.retries >= 100
    # The connection with the hanging streams, and one more.
    assert server.connections == 2


@pytest.mark.proof
async def test_a_thousand_are_sent_over_one_connection_a_hundred_at_a_time(
    server: ApnsServer, make: Callable[..., ApnsPushService]
) -> None:
    taken = 0
    furthest = 0

    async def counted() -> AsyncIterator[Push]:
        nonlocal taken, furthest
        async for push in pushes(1000):
            taken += 1
            furthest = max(furthest, taken - len(server.requests))
            yield push

    summary = await make(ApnsLimits()).send_all(counted())

    assert summary.outcomes == {PushOutcome.DELIVERED: 1000}
    assert server.delivered == {f"{number:064x}": 1 for number in range(1000)}
    assert 10 < server.peak <= 100
    # The iterator is read only as fast as pushes are sent.
    assert furthest <= 101
    assert server.connections == 1


async def test_batches_share_the_limit_of_concurrent_pushes(
    server: ApnsServer, make: Callable[..., ApnsPushService]
) -> None:
    delivery = make(ApnsLimits(concurrent=7))
    server.answer = lambda _: ApnsAnswer(delay=0.005)

    await asyncio.gather(*[delivery.send_all(pushes(60)) for _ in range(3)])

    assert len(server.requests) == 180
    assert server.peak == 7


async def test_a_server_that_takes_one_stream_at_a_time_is_served(
    server: ApnsServer, delivery: ApnsPushService
) -> None:
    server.most_streams = 1

    summary = await delivery.send_all(pushes(40))

    assert summary.outcomes == {PushOutcome.DELIVERED: 40}
    assert server.peak == 1


@pytest.mark.proof
async def test_closed_connections_cost_retries_and_no_pushes(
    server: ApnsServer, make: Callable[..., ApnsPushService]
) -> None:
    answered = 0

    def answer(_: Request) -> ApnsAnswer | Fault:
        nonlocal answered
        answered += 1
        return {100: Fault.GOAWAY, 200: Fault.CLOSE, 300: Fault.RESET}.get(answered, ApnsAnswer())

    server.answer = answer
    limits = ApnsLimits(answer_seconds=20, backoff=LIMITS.backoff)

    summary = await make(limits).send_all(pushes(400))

    assert summary.outcomes == {PushOutcome.DELIVERED: 400}
    assert summary.retries >= 1
    assert set(server.delivered) == {f"{number:064x}" for number in range(400)}


async def test_each_push_reports_its_outcome_and_a_failing_callback_affects_no_other(
    server: ApnsServer, delivery: ApnsPushService, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[Sent] = []
    server.answer = lambda request: ApnsAnswer(410, "Unregistered") if request.token.endswith("3") else ApnsAnswer()

    async def settle(sent: Sent) -> None:
        results.append(sent)
        if sent.outcome is PushOutcome.REJECTED:
            raise ZeroDivisionError

    summary = await delivery.send_all(pushes(8, settle))

    assert summary.outcomes == {PushOutcome.DELIVERED: 7, PushOutcome.REJECTED: 1}
    assert len(results) == 8
    assert "ZeroDivisionError" in caplog.text
    assert str(summary) == "7 delivered, 1 rejected, 1 × Unregistered"


async def test_pushes_read_before_a_failure_of_the_iterator_are_sent(
    server: ApnsServer, delivery: ApnsPushService
) -> None:
    server.answer = lambda _: ApnsAnswer(delay=0.05)

    async def fail() -> AsyncIterator[Push]:
        async for push in pushes(5):
            yield push
        raise LookupError

    with pytest.raises(LookupError):
        await delivery.send_all(fail())

    assert len(server.requests) == 5
    assert server.open == 0


async def test_a_batch_can_be_cancelled(server: ApnsServer, make: Callable[..., ApnsPushService]) -> None:
    delivery = make(ApnsLimits(concurrent=3))
    server.answer = lambda _: Fault.HANG
    batch = asyncio.create_task(delivery.send_all(pushes(10)))
    async with asyncio.timeout(50):
        while len(server.requests) < 3:  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    server.answer = lambda _: ApnsAnswer()
    assert (await delivery.send_all(pushes(10))).outcomes == {PushOutcome.DELIVERED: 10}


# Logs
async def test_no_token_is_ever_logged(
    server: ApnsServer, delivery: ApnsPushService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(lambda _: not SERVING.get())
    server.answer = first_then(ApnsAnswer(410, "Unregistered"), Fault.HANG, Fault.CLOSE)
    for number in range(3):
        await delivery.send(f"{TOKEN}{number}", UPDATE)
    await delivery.send_all(pushes(3))

    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert TOKEN not in logged
    assert server.requests[0].bearer not in logged
    assert f"{1:064x}" not in logged
    assert repr(Push(TOKEN, UPDATE)).count(TOKEN) == 0


async def test_without_credentials_what_would_be_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    results: list[Sent] = []

    async def settle(sent: Sent) -> None:
        results.append(sent)

    summary = await LoggedPushService().send_all(pushes(1000, settle))

    assert summary.outcomes == {PushOutcome.LOGGED: 1000}
    assert len(results) == 1000
    (record,) = caplog.records
    assert "Would send to 1000 devices" in record.getMessage()
    assert "MUM 120/3 (15.4)" in record.getMessage()
    assert f"{1:064x}" not in record.getMessage()
