"""The quota of SportMonks: pacing, 429, and the log of an outage."""

import logging
from datetime import timedelta

import aiohttp
import pytest

from pipelines.matches.providers.provider import ProviderError, ProviderUnavailable
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_provider import provider, provider_of, service, session, time
from tests.support.sportmonks_samples import (
    START,
    ProviderTime,
    Service,
    failing,
    fixture_row,
)

__all__ = ["provider", "service", "session", "time"]

HOUR = 3600


async def test_a_used_up_quota_is_reported_and_respected(
    provider: SportMonks, service: Service, time: ProviderTime
) -> None:
    await provider.live()
    time.forward(100)
    service.faults.append(failing(429, Retry_After="120"))
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == 120

    time.forward(100)
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == pytest.approx(20)
    assert service.paths() == ["livescores"] * 2

    service.responses["leagues"] = []
    assert await provider.leagues() == []  # another endpoint has its own quota

    time.forward(20)
    assert await provider.live() == []


async def test_without_the_live_scores_each_match_is_requested_alone(
    provider: SportMonks, service: Service, time: ProviderTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    numbers = range(501, 506)
    service.responses |= {f"fixtures/{number}": fixture_row(number, status="2nd Innings") for number in numbers}
    service.responses["livescores"] = [fixture_row(number) for number in numbers]
    await provider.live()
    time.forward(2)
    service.faults.append(failing(429, Retry_After="3000"))

    ticks = 1200  # forty minutes, a tick every two seconds
    for _ in range(ticks):
        found = [await provider.match(str(number)) for number in numbers]
        assert [snapshot and snapshot.match.status for snapshot in found] == ["2nd Innings"] * 5
        time.forward(2)

    # One response for each match in six intervals: the quota of the hour is not used up.
    requests = [path for path in service.paths() if path.startswith("fixtures/")]
    assert ticks * 5 / 7 <= len(requests) <= ticks * 5 / 5.5
    assert time.slept == []
    assert [record.message for record in caplog.records if "fails" in record.message] == [
        "SportMonks: livescores fails; further failures of this kind are not logged: "
        "SportMonks: the quota of livescores is used up for 3000 s."
    ]

    time.forward(3000)
    assert await provider.match("501") is not None
    assert caplog.text.count("SportMonks: livescores answers again") == 1


async def test_an_outage_is_logged_once_per_change(
    provider: SportMonks, service: Service, time: ProviderTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await provider.live()
    service.faults += [failing(500)] * 9 + [failing(401)]
    for _ in range(4):
        time.forward(2)
        with pytest.raises(ProviderError):
            await provider.match("501")
    time.forward(2)
    await provider.live()

    fails = "SportMonks: livescores fails; further failures of this kind are not logged"
    logged = [(record.levelname, record.message) for record in caplog.records if "livescores" in record.message]
    assert logged == [
        ("WARNING", f"{fails}: SportMonks livescores: HTTP 500."),
        ("WARNING", f"{fails}: SportMonks livescores: HTTP 401."),
        ("INFO", "SportMonks: livescores answers again"),
    ]


async def test_without_retry_after_the_quota_is_closed_for_the_rest_of_the_hour(
    service: Service, session: aiohttp.ClientSession, time: ProviderTime
) -> None:
    provider = provider_of(service, session, time, calls_per_hour=10)
    for _ in range(7):
        await provider.live()
        time.forward(2)
    time.forward(1002)
    service.faults.append(failing(429, Retry_After="soon"))
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == pytest.approx(HOUR - 1016)


async def test_a_429_after_few_own_calls_is_retried_after_five_minutes(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(429))
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == 300


async def test_a_poll_every_two_seconds_is_never_paced(
    service: Service, session: aiohttp.ClientSession, time: ProviderTime
) -> None:
    provider = provider_of(service, session, time, calls_per_hour=200)
    for _ in range(400):  # two hours at a tenth of the pace
        await provider.live()
        time.forward(20)
    assert time.slept == []
    assert len(service.paths()) == 400


@pytest.mark.proof
async def test_calls_slow_down_before_the_quota_is_used_up(
    service: Service, session: aiohttp.ClientSession, time: ProviderTime
) -> None:
    provider = provider_of(service, session, time, calls_per_hour=2000, interval=timedelta(0))
    refused = 0
    while time.now < START + timedelta(seconds=HOUR - 1):
        try:
            await provider.live()
        except ProviderUnavailable as error:
            refused += 1
            time.forward(error.retry_after or 0)
        time.forward(0.5)
    assert len(service.paths()) <= 2000
    assert len(service.paths()) > 1900
    assert refused > 0


async def test_calls_of_other_processes_count(provider: SportMonks, service: Service, time: ProviderTime) -> None:
    service.headers["X-RateLimit-Remaining"] = "0"
    await provider.live()
    time.forward(2)
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == pytest.approx(HOUR - 2)


async def test_retries_count_against_the_quota(
    service: Service, session: aiohttp.ClientSession, time: ProviderTime
) -> None:
    provider = provider_of(service, session, time, calls_per_hour=4)
    service.faults += [failing(500)] * 9
    with pytest.raises(ProviderUnavailable):
        await provider.live()
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after is not None
    assert len(service.paths()) <= 4
