"""The SportMonks provider over HTTP: failures, retries, quota, sharing of requests, paging, and the token's secrecy."""

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote, quote_plus

import aiohttp
import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.matches.cricket import Match
from pipelines.matches.providers.provider import Malformed, ProviderError, ProviderRefused, ProviderUnavailable
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_samples import (
    PATIENCE,
    START,
    TOKEN,
    Handler,
    Service,
    Time,
    body_of,
    cut,
    cut_body,
    echoing,
    endless,
    failing,
    fixture,
    hang,
    page,
    saying,
    serving,
)
from tests.support.until import until

QUICK = Backoff(initial=0.5, maximum=2.0, attempts=3)
HOUR = 3600


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def provider(service: Service, session: aiohttp.ClientSession, time: Time) -> SportMonks:
    return provider_of(service, session, time)


def provider_of(service: Service, session: aiohttp.ClientSession, time: Time, **options: Any) -> SportMonks:
    limits = aiohttp.ClientTimeout(total=PATIENCE)
    defaults: dict[str, Any] = {"now": time, "sleep": time.sleep, "retry": QUICK, "limits": limits}
    return SportMonks(session, TOKEN, base_url=service.url, **(defaults | options))


async def all_of(provider: SportMonks, *leagues: str) -> list[Match]:
    found = provider.fixtures(leagues, START - timedelta(days=7), START + timedelta(days=30))
    return [match async for match in found]


# What is asked


async def test_one_call_serves_all_live_matches(provider: SportMonks, service: Service, time: Time) -> None:
    service.says["livescores"] = [fixture(501), fixture(502)]

    assert [match.match_id for match in await provider.live()] == ["501", "502"]
    found = [await provider.match(match_id) for match_id in ("501", "502", "501")]

    assert [snapshot and snapshot.match.match_id for snapshot in found] == ["501", "502", "501"]
    assert service.paths() == ["livescores"]
    query = service.asked[-1][1]
    assert query["api_token"] == TOKEN
    includes = query["include"].split(",")
    assert {"balls.score", "batting.result", "bowling", "scoreboards", "runs", "lineup", "venue"} <= set(includes)
    assert len(includes) <= 10


async def test_an_answer_is_given_again_until_the_next_tick(provider: SportMonks, service: Service, time: Time) -> None:
    await provider.live()
    time.forward(1.8)
    await provider.live()
    assert service.paths() == ["livescores"]

    time.forward(0.1)
    service.says["livescores"] = [fixture(status="1st Innings")]
    assert [match.status for match in await provider.live()] == ["1st Innings"]
    assert service.paths() == ["livescores"] * 2


async def test_a_match_that_is_not_live_is_asked_for_by_itself(
    provider: SportMonks, service: Service, time: Time
) -> None:
    service.says["fixtures/77"] = fixture(77, status="Finished")

    for _ in range(3):
        found = await provider.match("77")
        assert found is not None
        assert (found.match.match_id, found.match.status) == ("77", "Finished")
    assert service.paths() == ["livescores", "fixtures/77"]


async def test_a_match_that_was_deleted_is_none(provider: SportMonks) -> None:
    assert await provider.match("404") is None


@pytest.mark.parametrize("match_id", ["", "../leagues", "1?x=2", "1/2", "-1", "x", "٣"])
async def test_what_is_no_id_is_never_asked_for(provider: SportMonks, service: Service, match_id: str) -> None:
    assert await provider.match(match_id) is None
    assert await provider.team_seasons(match_id) == []
    assert service.asked == []


@pytest.mark.parametrize("said", [[], {"data": []}, {"data": None}])
async def test_nothing_under_the_id_is_none(provider: SportMonks, service: Service, said: Any) -> None:
    service.says["fixtures/77"] = said
    assert await provider.match("77") is None


async def test_a_fixture_that_cannot_be_read_is_no_unknown_fixture(provider: SportMonks, service: Service) -> None:
    service.says["fixtures/77"] = fixture(77, starting_at="soon")
    with pytest.raises(Malformed):
        await provider.match("77")


async def test_the_table_of_scores_is_asked_for_once(provider: SportMonks, service: Service, time: Time) -> None:
    for _ in range(3):
        await provider.live()
        time.forward(2)
    assert [path for path, _ in service.asked].count("scores") == 1


async def test_without_the_table_of_scores_matches_are_served(
    provider: SportMonks, service: Service, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    service.says |= {"scores": b"<html>", "livescores": [fixture()]}
    assert len(await provider.live()) == 1
    time.forward(2)
    assert len(await provider.live()) == 1
    assert caplog.text.count("table of scores is missing") == 1


# Sharing


async def test_callers_of_one_moment_share_a_request(provider: SportMonks, service: Service) -> None:
    service.says["livescores"] = [fixture(number) for number in range(1, 21)]

    found = await asyncio.gather(*[provider.match(str(number)) for number in range(1, 21)], provider.live())

    assert len(found) == 21
    assert service.paths() == ["livescores"]


async def test_a_cancelled_caller_does_not_cancel_the_others(provider: SportMonks, service: Service) -> None:
    service.held = asyncio.Event()
    callers = [asyncio.create_task(provider.live()) for _ in range(3)]
    await until(lambda: service.busy == 1)

    callers[0].cancel()
    await asyncio.wait([callers[0]])
    service.held.set()

    assert callers[0].cancelled()
    assert await asyncio.gather(*callers[1:]) == [[], []]
    assert service.paths() == ["livescores"]


async def test_a_request_nobody_waits_for_is_dropped_and_the_next_caller_asks_anew(
    provider: SportMonks, service: Service
) -> None:
    service.held = asyncio.Event()
    caller = asyncio.create_task(provider.live())
    await until(lambda: service.busy == 1)
    caller.cancel()
    await asyncio.wait([caller])

    service.held = None
    assert await provider.live() == []
    assert service.paths() == ["livescores"] * 2


async def test_a_failure_reaches_all_who_wait_and_nobody_later(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(403))
    found = await asyncio.gather(*[provider.live() for _ in range(3)], return_exceptions=True)
    assert [type(error) for error in found] == [ProviderRefused] * 3
    assert await provider.live() == []


# Failures


@pytest.mark.parametrize("fault", [failing(500), failing(502), failing(503, "{}"), cut, cut_body, hang])
async def test_what_may_pass_is_tried_again(provider: SportMonks, service: Service, time: Time, fault: Handler) -> None:
    service.faults += [fault, fault]
    assert await provider.live() == []
    # aiohttp itself repeats a request whose connection was cut after it had been used.
    assert len(time.slept) == 2 - (fault is cut)
    assert all(0 <= pause <= longest for pause, longest in zip(time.slept, (0.5, 1.0), strict=False))


@pytest.mark.parametrize("fault", [failing(500), failing(599), cut, cut_body, hang])
async def test_what_does_not_pass_is_unavailable(provider: SportMonks, service: Service, fault: Handler) -> None:
    service.faults += [fault] * 9
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after is None
    assert 1 <= len(service.paths()) <= 2 * 3  # aiohttp itself repeats a request on a reused connection that was cut


async def test_a_port_nobody_listens_on_is_unavailable(
    provider: SportMonks, service: Service, session: aiohttp.ClientSession, time: Time
) -> None:
    nobody = Service(url="http://127.0.0.1:1/")
    with pytest.raises(ProviderUnavailable):
        await provider_of(nobody, session, time).live()


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 418])
async def test_a_refusal_is_not_repeated(provider: SportMonks, service: Service, status: int) -> None:
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
async def test_what_cannot_be_read_is_malformed(provider: SportMonks, service: Service, body: bytes) -> None:
    service.faults.append(saying(body))
    with pytest.raises(Malformed):
        await provider.live()
    assert service.paths() == ["livescores"]


async def test_a_body_without_end_is_malformed(provider: SportMonks, service: Service) -> None:
    service.faults.append(endless)
    with pytest.raises(Malformed, match="longer than 16777216 bytes"):
        await provider.live()


async def test_one_fixture_that_cannot_be_read_leaves_the_others(
    provider: SportMonks, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [fixture(666, league_id=None), "fixture", 5, None, fixture("x"), fixture(667, status=None)]
    service.says["livescores"] = [fixture(501), *bad, fixture(502)]
    assert [match.match_id for match in await provider.live()] == ["501", "502"]
    assert all(sign in caplog.text for sign in ("666", "667", "'x'", "a str", "a int", "a NoneType"))


async def test_an_unchanged_fixture_is_not_read_again(
    provider: SportMonks, service: Service, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    service.says["livescores"] = [fixture(501, status="Strange"), fixture(502)]
    first = await provider.live()
    time.forward(2)
    second = await provider.live()
    assert [a is b for a, b in zip(first, second, strict=True)] == [True, True]
    assert caplog.text.count("unknown status") == 1


# Quota


async def test_a_used_up_quota_is_told_and_kept_away_from(provider: SportMonks, service: Service, time: Time) -> None:
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

    service.says["leagues"] = []
    assert await provider.leagues() == []  # another endpoint has its own quota

    time.forward(20)
    assert await provider.live() == []


async def test_without_the_live_scores_each_match_is_asked_for_by_itself(
    provider: SportMonks, service: Service, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    numbers = range(501, 506)
    service.says |= {f"fixtures/{number}": fixture(number, status="2nd Innings") for number in numbers}
    service.says["livescores"] = [fixture(number) for number in numbers]
    await provider.live()
    time.forward(2)
    service.faults.append(failing(429, Retry_After="3000"))

    ticks = 1200  # forty minutes, a tick every two seconds
    for _ in range(ticks):
        found = [await provider.match(str(number)) for number in numbers]
        assert [snapshot and snapshot.match.status for snapshot in found] == ["2nd Innings"] * 5
        time.forward(2)

    # One answer each in six intervals: the hour's quota is never used up.
    asked = [path for path in service.paths() if path.startswith("fixtures/")]
    assert ticks * 5 / 7 <= len(asked) <= ticks * 5 / 5.5
    assert time.slept == []
    assert [record.message for record in caplog.records if "fails" in record.message] == [
        "SportMonks: livescores fails; further failures of this kind are not logged: "
        "SportMonks: the quota of livescores is used up for 3000 s."
    ]

    time.forward(3000)
    assert await provider.match("501") is not None
    assert caplog.text.count("SportMonks: livescores answers again") == 1


async def test_an_outage_is_logged_once_for_each_change_of_it(
    provider: SportMonks, service: Service, time: Time, caplog: pytest.LogCaptureFixture
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


async def test_without_retry_after_it_is_the_rest_of_the_hour_that_was_used_up(
    service: Service, session: aiohttp.ClientSession, time: Time
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


async def test_a_429_to_one_who_has_hardly_asked_is_asked_again_soon(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(429))
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == 300


async def test_a_poll_every_two_seconds_is_never_slowed_down(
    service: Service, session: aiohttp.ClientSession, time: Time
) -> None:
    provider = provider_of(service, session, time, calls_per_hour=200)
    for _ in range(400):  # two hours at a tenth of the pace
        await provider.live()
        time.forward(20)
    assert time.slept == []
    assert len(service.paths()) == 400


async def test_calls_slow_down_before_the_quota_is_used_up(
    service: Service, session: aiohttp.ClientSession, time: Time
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


async def test_what_others_used_counts(provider: SportMonks, service: Service, time: Time) -> None:
    service.headers["X-RateLimit-Remaining"] = "0"
    await provider.live()
    time.forward(2)
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after == pytest.approx(HOUR - 2)


async def test_retries_count(service: Service, session: aiohttp.ClientSession, time: Time) -> None:
    provider = provider_of(service, session, time, calls_per_hour=4)
    service.faults += [failing(500)] * 9
    with pytest.raises(ProviderUnavailable):
        await provider.live()
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.live()
    assert caught.value.retry_after is not None
    assert len(service.paths()) <= 4


# Pages


def paged(pages: list[list[Any]], last: int | None = None) -> Callable[[Any], Any]:
    def said(request: Any) -> Any:
        number = int(request.query["page"])
        return page(pages[number - 1], number, last or len(pages))

    return said


async def test_fixtures_come_page_after_page(provider: SportMonks, service: Service) -> None:
    numbers = list(range(1, 251))
    service.says["fixtures"] = paged([[fixture(n) for n in numbers[at : at + 100]] for at in (0, 100, 200)])

    assert [match.match_id for match in await all_of(provider, "7")] == [str(number) for number in numbers]

    queries = [query for path, query in service.asked if path == "fixtures"]
    assert [query["page"] for query in queries] == ["1", "2", "3"]
    assert {(query["filter[league_id]"], query["filter[starts_between]"]) for query in queries} == {
        ("7", "2026-06-17,2026-07-26")
    }


async def test_each_league_is_asked_for_and_what_was_not_asked_for_left_out(
    provider: SportMonks, service: Service
) -> None:
    def said(request: Any) -> Any:
        league = int(request.query["filter[league_id]"])
        early, late = "2026-06-18T11:59:59Z", "2026-07-25T12:00:01.000000Z"
        return page(
            [
                fixture(league * 10, league_id=league),
                fixture(league * 10 + 1, league_id=99),
                fixture(league * 10 + 2, league_id=league, starting_at=early),
                fixture(league * 10 + 3, league_id=league, starting_at=late),
            ]
        )

    service.says["fixtures"] = said
    assert [match.match_id for match in await all_of(provider, "7", "8", "7")] == ["70", "80"]
    assert await all_of(provider) == []


async def test_an_empty_page_is_the_end(provider: SportMonks, service: Service) -> None:
    service.says["fixtures"] = page([])
    assert await all_of(provider, "7") == []
    service.says["fixtures"] = paged([[fixture(1)], [], [fixture(2)]])
    assert len(await all_of(provider, "7")) == 1


async def test_pages_without_meta_end_where_no_next_is_linked(provider: SportMonks, service: Service) -> None:
    def said(request: Any) -> Any:
        number = int(request.query["page"])
        return {"data": [fixture(number)], "links": {"next": "https://elsewhere.test/" if number < 3 else None}}

    service.says["fixtures"] = said
    assert [match.match_id for match in await all_of(provider, "7")] == ["1", "2", "3"]
    service.says["fixtures"] = [fixture(4)]
    assert [match.match_id for match in await all_of(provider, "7")] == ["4"]


async def test_a_fixture_that_slid_to_the_next_page_comes_once(provider: SportMonks, service: Service) -> None:
    service.says["fixtures"] = paged([[fixture(1), fixture(2)], [fixture(2), fixture(3)]])
    assert [match.match_id for match in await all_of(provider, "7")] == ["1", "2", "3"]


async def test_a_page_that_repeats_is_not_read_for_ever(provider: SportMonks, service: Service) -> None:
    service.says["fixtures"] = paged([[fixture(1)]] * 50)
    found: list[Match] = []
    with pytest.raises(Malformed, match="page 2 repeats"):
        found += [match async for match in provider.fixtures(["7"], START, START)]
    assert len(service.paths()) == 2


async def test_pages_without_end_are_not_read_for_ever(provider: SportMonks, service: Service) -> None:
    def said(request: Any) -> Any:
        number = int(request.query["page"])
        return page([fixture(number)], number, number + 1)

    service.says["fixtures"] = said
    with pytest.raises(Malformed, match="more than 100 pages"):
        await all_of(provider, "7")
    assert len(service.paths()) == 100


# The token


def texts_of(error: BaseException) -> list[str]:
    """All that could be written of an error and what it came from."""
    found, seen = [], [error]
    for one in seen:
        found += [str(one), repr(one), repr(one.args), repr(vars(one))]
        found += traceback.format_exception(one)
        found += traceback.TracebackException.from_exception(one, capture_locals=True).format()
        seen += [other for other in (one.__cause__, one.__context__) if other is not None and other not in seen]
    return found


FORMS = (TOKEN, quote(TOKEN), quote(TOKEN, safe=""), quote_plus(TOKEN))


async def live(provider: SportMonks) -> object:
    return await provider.live()


async def one(provider: SportMonks) -> object:
    return await provider.match("501")


async def leagues(provider: SportMonks) -> object:
    return await provider.leagues()


async def season(provider: SportMonks) -> object:
    return await provider.team_seasons("70")


async def fixtures(provider: SportMonks) -> object:
    return await all_of(provider, "7")


@pytest.mark.parametrize("ask", [live, one, leagues, season, fixtures])
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
        cut,
        cut_body,
        hang,
        endless,
        saying(body_of([fixture(note=TOKEN, starting_at=TOKEN)])),
    ],
)
async def test_the_token_is_in_no_error_and_no_log(
    provider: SportMonks,
    service: Service,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[SportMonks], Awaitable[object]],
    fault: Handler,
) -> None:
    caplog.set_level(logging.DEBUG)
    service.says |= {"livescores": [], "fixtures": [], "leagues": []}
    service.faults += [fault] * 9
    error: BaseException | None = None
    try:
        await ask(provider)
    except ProviderError as problem:
        error = problem
    if ask is not one and fault.__qualname__.startswith(("failing", "echoing", "cut", "hang", "endless")):
        assert error is not None

    logging.getLogger("caller").error("It failed: %s %r", error, provider, exc_info=error)
    written = [*(texts_of(error) if error else ()), repr(provider), str(provider), caplog.text]
    written += [repr(vars(record)) for record in caplog.records if record.name != "caller"]
    assert service.asked
    for form in FORMS:
        assert not [text for text in written if form in text]
    if error is not None:
        assert error.__context__ is None
        assert error.__cause__ is None


async def test_the_token_is_in_no_error_of_a_connection(
    service: Service, session: aiohttp.ClientSession, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for url in ("http://127.0.0.1:1/", "http://[::1", "ftp://127.0.0.1/", "nonsense"):
        provider = provider_of(Service(url=url), session, time)
        with pytest.raises(ProviderError) as caught:
            await provider.live()
        assert not [text for text in [*texts_of(caught.value), caplog.text] for form in FORMS if form in text]
        assert caught.value.__context__ is None


async def test_a_reason_is_told_without_the_token(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(401, json.dumps({"message": f"The token {TOKEN} has expired"})))
    with pytest.raises(ProviderRefused, match="HTTP 401: The token <token> has expired"):
        await provider.live()
