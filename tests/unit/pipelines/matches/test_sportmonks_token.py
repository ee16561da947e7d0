"""The SportMonks token appears in no error and no log."""

import json
import logging
import traceback
from collections.abc import Awaitable, Callable
from urllib.parse import quote, quote_plus

import aiohttp
import pytest

from pipelines.matches.providers.provider import ProviderError, ProviderRefused
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_provider import all_of, provider, provider_of, service, session, time
from tests.support.sportmonks_samples import (
    TOKEN,
    Handler,
    ProviderTime,
    Service,
    body_of,
    cut_body_short,
    cut_connection,
    echoing,
    endless,
    failing,
    fixture_row,
    hang_provider,
    responding,
)

__all__ = ["provider", "service", "session", "time"]


def texts_of(error: BaseException) -> list[str]:
    """Return all texts that a log may contain of an error and its causes."""
    found, seen = [], [error]
    for item in seen:
        found += [str(item), repr(item), repr(item.args), repr(vars(item))]
        found += traceback.format_exception(item)
        found += traceback.TracebackException.from_exception(item, capture_locals=True).format()
        seen += [other for other in (item.__cause__, item.__context__) if other is not None and other not in seen]
    return found


FORMS = (TOKEN, quote(TOKEN), quote(TOKEN, safe=""), quote_plus(TOKEN))


async def request_live(provider: SportMonks) -> object:
    return await provider.live()


async def one_match(provider: SportMonks) -> object:
    return await provider.match("501")


async def leagues(provider: SportMonks) -> object:
    return await provider.leagues()


async def request_fixtures(provider: SportMonks) -> object:
    return await all_of(provider, "7")


async def season(provider: SportMonks) -> object:
    return await provider.team_seasons("70")


@pytest.mark.parametrize("call", [request_live, one_match, leagues, season, request_fixtures])
@pytest.mark.parametrize(
    "fault",
    [
        failing(500),
        failing(302, Location="http://127.0.0.1:1/?api_token=" + quote(TOKEN)),
        failing(401, json.dumps({"message": f"Unknown token {TOKEN}"})),
        failing(429),
        failing(200),
        failing(200, Set_Cookie="=;;bad cookie"),
        failing(200, Content_Encoding="gzip"),
        echoing(400),
        echoing(403),
        echoing(503),
        cut_connection,
        cut_body_short,
        hang_provider,
        endless,
        responding(body_of([fixture_row(note=TOKEN, starting_at=TOKEN)])),
    ],
)
async def test_the_token_is_in_no_error_and_no_log(
    provider: SportMonks,
    service: Service,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[SportMonks], Awaitable[object]],
    fault: Handler,
) -> None:
    caplog.set_level(logging.DEBUG)
    service.responses |= {"livescores": [], "fixtures": [], "leagues": []}
    service.faults += [fault] * 9
    error: BaseException | None = None
    try:
        await call(provider)
    except ProviderError as problem:
        error = problem
    if call is not one_match and fault.__qualname__.startswith(("failing", "echoing", "cut", "hang", "endless")):
        assert error is not None

    logging.getLogger("caller").error("It failed: %s %r", error, provider, exc_info=error)
    written = [*(texts_of(error) if error else ()), repr(provider), str(provider), caplog.text]
    written += [repr(vars(record)) for record in caplog.records if record.name != "caller"]
    assert service.requests
    for form in FORMS:
        assert not [text for text in written if form in text]
    if error is not None:
        assert error.__context__ is None
        assert error.__cause__ is None


async def test_the_token_is_in_no_error_of_a_connection(
    service: Service, session: aiohttp.ClientSession, time: ProviderTime, caplog: pytest.LogCaptureFixture
) -> None:
    for url in ("http://127.0.0.1:1/", "http://[::1", "ftp://127.0.0.1/", "nonsense"):
        provider = provider_of(Service(url=url), session, time)
        with pytest.raises(ProviderError) as caught:
            await provider.live()
        assert not [text for text in [*texts_of(caught.value), caplog.text] for form in FORMS if form in text]
        assert caught.value.__context__ is None


async def test_a_reason_is_reported_without_the_token(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(401, json.dumps({"message": f"The token {TOKEN} has expired"})))
    with pytest.raises(ProviderRefused, match="HTTP 401: The token <token> has expired"):
        await provider.live()
