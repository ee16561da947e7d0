"""Expired sightings that DynamoDB has not deleted yet cost no read units (BLIP-1, BLIP-4, BLIP-5)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from datastore.model.timestamps import iso
from tests.support.served import Answer, Clock, Served
from tests.support.sightings import put_sightings

# Far ahead of the engine's clock, so that its sweeper deletes no item.
LATER = datetime(2100, 1, 1, 12, 0, tzinfo=UTC)
LISTED = '{ sightings(area: "Downtown", first: 25) { nodes { sightingId } pageInfo { hasNextPage hasPreviousPage } } }'
TRENDING = '{ trending(categories: ["Cats"], window: SIX_HOURS) { sightingCount } }'
CONFIRM = 'mutation { confirmSighting(area: "Downtown", sightingId: "%s") { sightingId confirmationCount } }'
PAGE = """query ($first: Int, $after: String, $last: Int, $before: String) {
  sightings(area: "Downtown", first: $first, after: $after, last: $last, before: $before) {
    nodes { sightingId }
    pageInfo { startCursor endCursor }
  }
}"""


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = LATER
    return clock


def aged_sighting(id: str, age: timedelta, *, whole_seconds: bool = False) -> dict[str, Any]:
    """Return a sighting of this age, with the time in milliseconds, or in whole seconds as documented."""
    reported = LATER - age
    moment = f"{reported:%Y-%m-%dT%H:%M:%SZ}" if whole_seconds else iso(reported)
    return {
        "PK": "AREA#Downtown",
        "SK": f"SIGHTING#{moment}#{id}",
        "GSI1PK": "CATEGORY#Cats",
        "GSI1SK": f"{moment}#{id}",
        "sightingId": id,
        "area": "Downtown",
        "category": "Cats",
        "description": "A cat on a wall, asleep in the sun, who does not mind that people look",
        "reporterId": "ada",
        "reportedAt": moment,
        "expiresAt": int(reported.timestamp()) + 1800,
    }


def units_without_errors(answer: Answer) -> float:
    assert answer.errors is None, answer.errors
    return sum(call.units for call in answer.calls)


def expired(number: int) -> list[dict[str, Any]]:
    """Return this number of expired sightings of the last two days."""
    return [aged_sighting(f"old-{n}", timedelta(minutes=31, seconds=50 * n)) for n in range(number)]


async def test_expired_sightings_cost_nothing(served: Served) -> None:
    async def answers() -> list[Answer]:
        return [await served.ask(query, user="eve") for query in (LISTED, TRENDING, CONFIRM % "nothing")]

    await put_sightings(served, [aged_sighting(f"new-{n}", timedelta(minutes=n)) for n in range(14)])
    before = await answers()
    old = expired(3000)
    for first in range(0, len(old), 300):  # each `put_sightings` has its own deadline
        await put_sightings(served, old[first : first + 300])
    after = await answers()
    confirmed = await served.ask(CONFIRM % "new-13", user="eve")

    listed, trending, unknown = after
    assert [sum(call.units for call in answer.calls) for answer in after] == [
        sum(call.units for call in answer.calls) for answer in before
    ]
    assert [node["sightingId"] for node in listed.data["sightings"]["nodes"]] == [f"new-{n}" for n in range(14)]
    assert (listed.made, units_without_errors(listed)) == (["Query blip"], 1.0)
    assert trending.data == {"trending": [{"sightingCount": 14}]}
    assert unknown.codes == ["NOT_FOUND"]
    assert confirmed.data["confirmSighting"]["confirmationCount"] == 1


@pytest.mark.parametrize("whole_seconds", [False, True])
async def test_a_sighting_is_listed_until_the_second_it_expires(served: Served, whole_seconds: bool) -> None:
    await put_sightings(
        served,
        [
            aged_sighting("gone", timedelta(seconds=1800), whole_seconds=whole_seconds),
            aged_sighting("last", timedelta(seconds=1799), whole_seconds=whole_seconds),
        ],
    )

    listed, trending = await served.ask(LISTED), await served.ask(TRENDING)

    assert [node["sightingId"] for node in listed.data["sightings"]["nodes"]] == ["last"]
    assert trending.data == {"trending": [{"sightingCount": 1}]}


async def test_a_cursor_at_a_sighting_that_expired_meanwhile_continues(served: Served) -> None:
    await put_sightings(
        served, [*expired(50), *[aged_sighting(f"new-{n}", timedelta(minutes=10 * n)) for n in range(3)]]
    )
    page = (await served.ask(PAGE, {"first": 3})).data["sightings"]
    served.clock.forward(minutes=15)  # the first and the second have not expired

    onward = await served.ask(PAGE, {"first": 3, "after": page["pageInfo"]["endCursor"]})
    back = await served.ask(PAGE, {"last": 3, "before": page["pageInfo"]["endCursor"]})
    rest = await served.ask(PAGE, {"first": 3, "after": page["pageInfo"]["startCursor"]})

    assert [node["sightingId"] for node in page["nodes"]] == ["new-0", "new-1", "new-2"]
    assert onward.data["sightings"]["nodes"] == []
    assert (onward.errors, onward.made) == (None, [])
    assert [node["sightingId"] for node in back.data["sightings"]["nodes"]] == ["new-0", "new-1"]
    assert [node["sightingId"] for node in rest.data["sightings"]["nodes"]] == ["new-1"]
    assert units_without_errors(back) <= 1
