"""Failures of SportMonks: retries, refusals and malformed responses."""

import aiohttp
import pytest

from pipelines.matches.providers.provider import Malformed, ProviderRefused, ProviderUnavailable
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_provider import provider, provider_of, service, session, time
from tests.support.sportmonks_samples import (
    Handler,
    ProviderTime,
    Service,
    cut_body_short,
    cut_connection,
    endless,
    failing,
    fixture_row,
    hang_provider,
    responding,
)

__all__ = ["provider", "service", "session", "time"]


@pytest.mark.parametrize(
    "fault", [failing(500), failing(502), failing(503, "{}"), cut_connection, cut_body_short, hang_provider]
)
async def test_temporary_failures_are_retried(
    provider: SportMonks, service: Service, time: ProviderTime, fault: Handler
) -> None:
    service.faults += [fault, fault]
    assert await provider.live() == []
    # aiohttp itself repeats a request whose connection was cut after it had been used.
    assert len(time.slept) == 2 - (fault is cut_connection)
    assert all(0 <= pause <= longest for pause, longest in zip(time.slept, (0.5, 1.0), strict=False))


@pytest.mark.parametrize("fault", [failing(500), failing(599), cut_connection, cut_body_short, hang_provider])
async def test_a_lasting_failure_is_unavailable(provider: SportMonks, service: Service, fault: Handler) -> None:
    service.faults += [fault] * 9
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after is None
    assert 1 <= len(service.paths()) <= 2 * 3  # aiohttp itself repeats a request on a reused connection that was cut


async def test_a_closed_port_is_unavailable(
    provider: SportMonks, service: Service, session: aiohttp.ClientSession, time: ProviderTime
) -> None:
    unreachable = Service(url="http://127.0.0.1:1/")
    with pytest.raises(ProviderUnavailable):
        await provider_of(unreachable, session, time).live()


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 418])
async def test_a_refusal_is_not_retried(provider: SportMonks, service: Service, status: int) -> None:
    service.faults.append(failing(status, Location="http://127.0.0.1:1/elsewhere"))
    with pytest.raises(ProviderRefused) as caught:
        await provider.live()
    assert str(status) in str(caught.value)
    assert service.paths() == ["livescores"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>All is well</html>",
        b'{"data": [{"id": 5',
        b"[]",
        b"null",
        b"{}",
        b'{"message": "Hello"}',
        b'{"data": {"id": 5}}',
        b'{"data": "none"}',
        b'{"data": 7}',
        b'{"data": [1, 2}',
        b"\xff\xfe{}",
        b'{"data": [{"note": "\xff"}]}',
        b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"data": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_an_unreadable_body_is_malformed(provider: SportMonks, service: Service, body: bytes) -> None:
    service.faults.append(responding(body))
    with pytest.raises(Malformed):
        await provider.live()
    assert service.paths() == ["livescores"]


async def test_a_body_without_end_is_malformed(provider: SportMonks, service: Service) -> None:
    service.faults.append(endless)
    with pytest.raises(Malformed, match="longer than 16777216 bytes"):
        await provider.live()


async def test_an_unreadable_fixture_does_not_affect_the_others(
    provider: SportMonks, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [fixture_row(666, league_id=None), "fixture", 5, None, fixture_row("x"), fixture_row(667, status=None)]
    service.responses["livescores"] = [fixture_row(501), *bad, fixture_row(502)]
    assert [match.match_id for match in await provider.live()] == ["501", "502"]
    assert all(sign in caplog.text for sign in ("666", "667", "'x'", "a str", "a int", "a NoneType"))


async def test_an_unchanged_fixture_is_not_decoded_again(
    provider: SportMonks, service: Service, time: ProviderTime, caplog: pytest.LogCaptureFixture
) -> None:
    service.responses["livescores"] = [fixture_row(501, status="Strange"), fixture_row(502)]
    first = await provider.live()
    time.forward(2)
    second = await provider.live()
    assert [a is b for a, b in zip(first, second, strict=True)] == [True, True]
    assert caplog.text.count("unknown status") == 1
