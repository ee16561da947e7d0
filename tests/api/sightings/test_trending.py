"""Trending sightings of all areas (BLIP-4)."""

from tests.support.served import Answer, Served
from tests.support.sightings import report_sighting

# BLIP-4


async def test_trending_counts_unexpired_sightings_of_the_window_in_all_areas(served: Served) -> None:
    await report_sighting(served, category="Sneakers")
    served.clock.forward(minutes=20)
    for area, category in (("Downtown", "Cats"), ("Harbor", "Cats"), ("Harbor", "Sneakers"), ("Midtown", "Street Art")):
        await report_sighting(served, area=area, category=category)

    everything = await served.ask("{ trending { category sightingCount } }")
    recent = await served.ask(
        '{ trending(window: QUARTER_HOUR, categories: ["Sneakers", "Cats"]) { category sightingCount } }'
    )

    assert everything.data["trending"] == [
        {"category": "Cats", "sightingCount": 2},
        {"category": "Sneakers", "sightingCount": 2},
        {"category": "Street Art", "sightingCount": 1},
        {"category": "Food Trucks", "sightingCount": 0},
        {"category": "Street Music", "sightingCount": 0},
    ]
    assert recent.data["trending"] == [
        {"category": "Cats", "sightingCount": 2},
        {"category": "Sneakers", "sightingCount": 1},
    ]
    assert everything.made == ["Query blip.TrendingIndex"] * 5
    assert {call.request["Select"] for call in everything.calls} == {"COUNT"}


async def test_trending_returns_a_page_of_the_counted_sightings(served: Served) -> None:
    reported = []
    for _ in range(5):
        reported.append((await report_sighting(served))["sightingId"])
        served.clock.forward(seconds=1)
    query = """query ($after: String) { trending(categories: ["Cats"]) {
      sightingCount sightings(first: 2, after: $after) {
        nodes { sightingId } lastEvaluatedKey pageInfo { hasNextPage hasPreviousPage } } } }"""

    pages: list[Answer] = []
    cursor = None
    for _ in range(3):
        pages.append(await served.ask(query, {"after": cursor}))
        cursor = pages[-1].data["trending"][0]["sightings"]["lastEvaluatedKey"]

    found = [node["sightingId"] for page in pages for node in page.data["trending"][0]["sightings"]["nodes"]]
    assert found == reported[::-1]
    assert cursor is None
    assert [page.made for page in pages] == [["Query blip.TrendingIndex"]] * 3


async def test_a_cursor_is_valid_for_its_window_only(served: Served) -> None:
    for _ in range(2):
        await report_sighting(served)
        served.clock.forward(seconds=1)
    query = """query ($window: TrendingWindow!, $after: String) { trending(categories: ["Cats"], window: $window) {
      sightings(first: 1, after: $after) { lastEvaluatedKey } } }"""
    cursor = (await served.ask(query, {"window": "SIX_HOURS"})).data["trending"][0]["sightings"]["lastEvaluatedKey"]

    answer = await served.ask(query, {"window": "QUARTER_HOUR", "after": cursor})

    assert answer.codes == ["BAD_CURSOR"]
