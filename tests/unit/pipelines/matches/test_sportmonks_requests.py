"""The requests of the SportMonks provider: their number, their sharing by callers, and pages."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from datastore.matches.cricket import Match
from pipelines.matches.providers.provider import Malformed, ProviderRefused
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_provider import all_of, provider, service, session, time
from tests.support.sportmonks_samples import (
    START,
    TOKEN,
    ProviderTime,
    Service,
    failing,
    fixture_row,
    page_body,
)
from tests.support.until import until

__all__ = ["provider", "service", "session", "time"]


# Number of requests
async def test_one_call_serves_all_live_matches(provider: SportMonks, service: Service, time: ProviderTime) -> None:
    service.responses["livescores"] = [fixture_row(501), fixture_row(502)]

    assert [match.match_id for match in await provider.live()] == ["501", "502"]
    found = [await provider.match(match_id) for match_id in ("501", "502", "501")]

    assert [snapshot and snapshot.match.match_id for snapshot in found] == ["501", "502", "501"]
    assert service.paths() == ["livescores"]
    query = service.requests[-1][1]
    assert query["api_token"] == TOKEN
    includes = query["include"].split(",")
    assert {"balls.score", "batting.result", "bowling", "scoreboards", "runs", "lineup", "venue"} <= set(includes)
    assert len(includes) <= 10


async def test_a_response_is_reused_until_the_next_tick(
    provider: SportMonks, service: Service, time: ProviderTime
) -> None:
    await provider.live()
    time.forward(1.8)
    await provider.live()
    assert service.paths() == ["livescores"]

    time.forward(0.1)
    service.responses["livescores"] = [fixture_row(status="1st Innings")]
    assert [match.status for match in await provider.live()] == ["1st Innings"]
    assert service.paths() == ["livescores"] * 2


async def test_a_match_that_is_not_live_is_requested_alone(
    provider: SportMonks, service: Service, time: ProviderTime
) -> None:
    service.responses["fixtures/77"] = fixture_row(77, status="Finished")

    for _ in range(3):
        found = await provider.match("77")
        assert found is not None
        assert (found.match.match_id, found.match.status) == ("77", "Finished")
    assert service.paths() == ["livescores", "fixtures/77"]


async def test_a_match_that_was_deleted_is_none(provider: SportMonks) -> None:
    assert await provider.match("404") is None


@pytest.mark.parametrize("match_id", ["", "../leagues", "1?x=2", "1/2", "-1", "x", "٣"])
async def test_an_invalid_id_sends_no_request(provider: SportMonks, service: Service, match_id: str) -> None:
    assert await provider.match(match_id) is None
    assert await provider.team_seasons(match_id) == []
    assert service.requests == []


@pytest.mark.parametrize("respond", [[], {"data": []}, {"data": None}])
async def test_an_empty_response_for_an_id_is_none(provider: SportMonks, service: Service, respond: Any) -> None:
    service.responses["fixtures/77"] = respond
    assert await provider.match("77") is None


async def test_an_unreadable_fixture_is_malformed_and_not_unknown(provider: SportMonks, service: Service) -> None:
    service.responses["fixtures/77"] = fixture_row(77, starting_at="soon")
    with pytest.raises(Malformed):
        await provider.match("77")


async def test_the_table_of_scores_is_requested_once(
    provider: SportMonks, service: Service, time: ProviderTime
) -> None:
    for _ in range(3):
        await provider.live()
        time.forward(2)
    assert [path for path, _ in service.requests].count("scores") == 1


async def test_without_the_table_of_scores_matches_are_served(
    provider: SportMonks, service: Service, time: ProviderTime, caplog: pytest.LogCaptureFixture
) -> None:
    service.responses |= {"scores": b"<html>", "livescores": [fixture_row()]}
    assert len(await provider.live()) == 1
    time.forward(2)
    assert len(await provider.live()) == 1
    assert caplog.text.count("table of scores is missing") == 1


# Sharing
async def test_concurrent_callers_share_a_request(provider: SportMonks, service: Service) -> None:
    service.responses["livescores"] = [fixture_row(number) for number in range(1, 21)]

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


async def test_a_request_without_waiters_is_cancelled_and_the_next_caller_sends_another(
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


async def test_a_failure_reaches_all_waiters_and_no_later_caller(provider: SportMonks, service: Service) -> None:
    service.faults.append(failing(403))
    found = await asyncio.gather(*[provider.live() for _ in range(3)], return_exceptions=True)
    assert [type(error) for error in found] == [ProviderRefused] * 3
    assert await provider.live() == []


# Pages
def paged(pages: list[list[Any]], last: int | None = None) -> Callable[[Any], Any]:
    def respond(request: Any) -> Any:
        number = int(request.query["page"])
        return page_body(pages[number - 1], number, last or len(pages))

    return respond


async def test_fixtures_come_page_after_page(provider: SportMonks, service: Service) -> None:
    numbers = list(range(1, 251))
    service.responses["fixtures"] = paged([[fixture_row(n) for n in numbers[at : at + 100]] for at in (0, 100, 200)])

    assert [match.match_id for match in await all_of(provider, "7")] == [str(number) for number in numbers]

    queries = [query for path, query in service.requests if path == "fixtures"]
    assert [query["page"] for query in queries] == ["1", "2", "3"]
    assert {(query["filter[league_id]"], query["filter[starts_between]"]) for query in queries} == {
        ("7", "2026-06-17,2026-07-26")
    }


async def test_each_league_is_requested_and_other_matches_are_left_out(provider: SportMonks, service: Service) -> None:
    def respond(request: Any) -> Any:
        league = int(request.query["filter[league_id]"])
        early, late = "2026-06-18T11:59:59Z", "2026-07-25T12:00:01.000000Z"
        return page_body(
            [
                fixture_row(league * 10, league_id=league),
                fixture_row(league * 10 + 1, league_id=99),
                fixture_row(league * 10 + 2, league_id=league, starting_at=early),
                fixture_row(league * 10 + 3, league_id=league, starting_at=late),
            ]
        )

    service.responses["fixtures"] = respond
    assert [match.match_id for match in await all_of(provider, "7", "8", "7")] == ["70", "80"]
    assert await all_of(provider) == []


async def test_an_empty_page_is_the_end(provider: SportMonks, service: Service) -> None:
    service.responses["fixtures"] = page_body([])
    assert await all_of(provider, "7") == []
    service.responses["fixtures"] = paged([[fixture_row(1)], [], [fixture_row(2)]])
    assert len(await all_of(provider, "7")) == 1


async def test_pages_without_meta_end_without_a_next_link(provider: SportMonks, service: Service) -> None:
    def respond(request: Any) -> Any:
        number = int(request.query["page"])
        return {"data": [fixture_row(number)], "links": {"next": "https://elsewhere.test/" if number < 3 else None}}

    service.responses["fixtures"] = respond
    assert [match.match_id for match in await all_of(provider, "7")] == ["1", "2", "3"]
    service.responses["fixtures"] = [fixture_row(4)]
    assert [match.match_id for match in await all_of(provider, "7")] == ["4"]


async def test_a_fixture_on_two_pages_is_returned_once(provider: SportMonks, service: Service) -> None:
    service.responses["fixtures"] = paged([[fixture_row(1), fixture_row(2)], [fixture_row(2), fixture_row(3)]])
    assert [match.match_id for match in await all_of(provider, "7")] == ["1", "2", "3"]


async def test_a_repeated_page_is_malformed(provider: SportMonks, service: Service) -> None:
    service.responses["fixtures"] = paged([[fixture_row(1)]] * 50)
    found: list[Match] = []
    with pytest.raises(Malformed, match="page 2 repeats"):
        found += [match async for match in provider.fixtures(["7"], START, START)]
    assert len(service.paths()) == 2


async def test_more_than_a_hundred_pages_are_malformed(provider: SportMonks, service: Service) -> None:
    def respond(request: Any) -> Any:
        number = int(request.query["page"])
        return page_body([fixture_row(number)], number, number + 1)

    service.responses["fixtures"] = respond
    with pytest.raises(Malformed, match="more than 100 pages"):
        await all_of(provider, "7")
    assert len(service.paths()) == 100
