"""The arguments `order` of `earthquakes` and `consistent` of `earthquakeStatistics`, and the calls that they make."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.earthquakes.statistics import StatisticsRebuild
from tests.support.earthquake_samples import quake, store
from tests.support.list_orders import PAGE_INFO, are_forward, assert_pages, consistency
from tests.support.served import NOON, Answer, Served

# Hours before noon, with two events of the same day and empty days in between.
HOURS = (1, 2, 30, 31, 100, 200, 500)
NEWEST_FIRST = [f"us{hours}" for hours in HOURS]


async def store_some_days(served: Served) -> None:
    await store(served, *(quake(f"us{hours}", timedelta(hours=hours)) for hours in HOURS))


async def page_of_earthquakes(served: Served, paging: str) -> tuple[list[str], dict[str, Any], Answer]:
    answer = await served.ask(f"{{ earthquakes({paging}) {{ nodes {{ eventId }} {PAGE_INFO} }} }}")
    assert answer.errors is None, answer.errors
    page = answer.data["earthquakes"]
    return [node["eventId"] for node in page["nodes"]], page["pageInfo"], answer


@pytest.mark.parametrize(("order", "expected"), [("DESCENDING", NEWEST_FIRST), ("ASCENDING", NEWEST_FIRST[::-1])])
async def test_earthquakes_are_paged_in_both_orders(served: Served, order: str, expected: list[str]) -> None:
    await store_some_days(served)

    async def read(paging: str) -> tuple[list[str], dict[str, Any]]:
        names, info, _ = await page_of_earthquakes(served, paging)
        return names, info

    await assert_pages(read, expected, order=order, size=2)


async def test_the_oldest_earthquakes_are_read_from_the_oldest_day_on(served: Served) -> None:
    await store_some_days(served)
    start = (NOON - timedelta(hours=500)).isoformat()

    names, _, answer = await page_of_earthquakes(served, f'from: "{start}", first: 1, order: ASCENDING')
    newest, _, forward = await page_of_earthquakes(served, f'from: "{start}", first: 1, order: DESCENDING')

    assert (names, newest) == (["us500"], ["us1"])
    days = [call for call in answer.calls if call.index]
    assert (are_forward(days), are_forward([call for call in forward.calls if call.index])) == ({True}, {False})
    assert days[0].request["ExpressionAttributeValues"][":partition"]["S"] == "DAY#20260604"
    assert len(forward.calls) == 1


async def test_a_cursor_of_earthquakes_is_valid_for_its_order_only(served: Served) -> None:
    await store_some_days(served)
    _, info, _ = await page_of_earthquakes(served, "first: 2")

    same, _, _ = await page_of_earthquakes(served, f'after: "{info["endCursor"]}", order: DESCENDING')
    other = await served.ask(
        f'{{ earthquakes(after: "{info["endCursor"]}", order: ASCENDING) {{ nodes {{ eventId }} }} }}'
    )

    assert same == NEWEST_FIRST[2:]
    assert other.codes == ["BAD_CURSOR"]


async def test_an_ascending_list_continues_while_its_window_moves(served: Served) -> None:
    """The default window begins 30 days ago. Its first events leave it while a caller reads the pages."""
    await store(served, *(quake(f"us{days}", timedelta(days=days)) for days in (29, 28, 27, 20)))
    first, info, _ = await page_of_earthquakes(served, "first: 1, order: ASCENDING")
    served.clock.forward(days=2)

    after, _, _ = await page_of_earthquakes(served, f'after: "{info["endCursor"]}", order: ASCENDING')
    before = await served.ask(
        f'{{ earthquakes(last: 5, before: "{info["endCursor"]}", order: ASCENDING) {{ nodes {{ eventId }} }} }}'
    )

    assert (first, after) == (["us29"], ["us28", "us27", "us20"])
    assert before.data == {"earthquakes": {"nodes": []}}
    assert before.made == []


async def test_an_estimate_of_the_oldest_earthquakes_counts_the_oldest_days(served: Served) -> None:
    crowded = [quake(f"old{number}", timedelta(days=25, minutes=number)) for number in range(60)]
    await store(served, *crowded, quake("us1"))
    await StatisticsRebuild(served.store, served.clock).all_days()
    window = f'from: "{(NOON - timedelta(days=25, hours=6)).isoformat()}", first: 50'
    estimates: dict[str, float] = {}
    for paging in ("last: 50", "first: 50, order: ASCENDING", "last: 50, order: ASCENDING", "first: 50"):
        window = f'from: "{(NOON - timedelta(days=25, hours=6)).isoformat()}", {paging}'
        await page_of_earthquakes(served, window)
        estimates[paging] = served.reports[-1].estimate

    assert estimates["last: 50"] == estimates["first: 50, order: ASCENDING"]
    assert estimates["first: 50"] == estimates["last: 50, order: ASCENDING"]
    assert estimates["first: 50"] > estimates["last: 50"]


@pytest.mark.parametrize("by", ["DAY", "REGION"])
async def test_statistics_are_read_consistently_if_requested(served: Served, by: str) -> None:
    await store_some_days(served)
    await StatisticsRebuild(served.store, served.clock).all_days()
    window = f'from: "{(NOON - timedelta(days=200)).date()}", by: {by}'

    estimates: list[float] = []

    async def read(argument: str) -> Answer:
        answer = await served.ask(f"{{ earthquakeStatistics({window}{argument}) {{ earthquakeCount isComplete }} }}")
        estimates.append(served.reports[-1].estimate)
        return answer

    answers = [await read(argument) for argument in ("", ", consistent: false", ", consistent: true")]

    assert [answer.data for answer in answers] == [
        {"earthquakeStatistics": {"earthquakeCount": 7, "isComplete": True}}
    ] * 3
    assert [consistency(answer) for answer in answers] == [[False] * 3, [False] * 3, [True] * 3]
    assert sum(call.units for call in answers[2].calls) == 2 * sum(call.units for call in answers[0].calls)
    assert estimates[0] == estimates[1] < estimates[2]
