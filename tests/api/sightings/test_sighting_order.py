"""Sightings with times in whole seconds among those of this gateway, in milliseconds, are listed newest first."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso
from tests.support.served import NOON, Answer, Served
from tests.support.sightings import put_sightings

PAGE = """query ($first: Int, $after: String, $last: Int, $before: String) {
  sightings(area: "Downtown", first: $first, after: $after, last: $last, before: $before) {
    nodes { sightingId }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  }
}"""
TRENDING = """query ($first: Int, $after: String, $last: Int, $before: String, $window: TrendingWindow!) {
  trending(categories: ["Cats"], window: $window) { sightingCount
    sightings(first: $first, after: $after, last: $last, before: $before) {
      nodes { sightingId }
      pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    }
  }
}"""
# Most seconds have sightings of both formats. A name states the seconds before noon.
MIXED = [
    "1.000w",
    "1.000",
    "1.250",
    "1.999",
    "2.000w",
    "2.000x",
    "3.001",
    "4.000",
    "4.000w",
    "5.500",
    "5.501",
    "6.000w",
]


def moment(name: str) -> datetime:
    return NOON - timedelta(seconds=float(name.rstrip("wx")))


def named_sighting(name: str, **more: Any) -> dict[str, Any]:
    """Return a sighting. The time is in whole seconds if its name ends with a letter."""
    reported = moment(name)
    text = iso(reported) if name[-1].isdigit() else f"{reported:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "PK": "AREA#Downtown",
        "SK": f"SIGHTING#{text}#{name}",
        "GSI1PK": "CATEGORY#Cats",
        "GSI1SK": f"{text}#{name}",
        "sightingId": name,
        "area": "Downtown",
        "category": "Cats",
        "description": "A cat",
        "reporterId": "ada",
        "reportedAt": text,
        "expiresAt": int(reported.timestamp()) + 1800,
    } | more


def sightings_of(answer: Answer) -> Any:
    assert answer.errors is None, answer.errors
    return answer.data["sightings"] if "sightings" in answer.data else answer.data["trending"][0]["sightings"]


def sighting_names(connection: Any) -> list[str]:
    return [node["sightingId"] for node in connection["nodes"]]


def ages(found: Sequence[str]) -> list[float]:
    return [float(name.rstrip("wx")) for name in found]


async def walk_sightings(
    served: Served, query: str, size: int, *, backward: bool, **more: Any
) -> tuple[list[str], list[Answer]]:
    """Read all pages in one direction. Return the names of all sightings, newest first, and the responses."""
    found, cursor, answers = list[str](), None, list[Answer]()
    while True:
        paging = {"last": size, "before": cursor} if backward else {"first": size, "after": cursor}
        answer = await served.ask(query, paging | more)
        page = sightings_of(answer)
        found = sighting_names(page) + found if backward else found + sighting_names(page)
        answers.append(answer)
        info = page["pageInfo"]
        assert info["hasPreviousPage" if not backward else "hasNextPage"] is (cursor is not None)
        if not info["hasPreviousPage" if backward else "hasNextPage"]:
            return found, answers
        assert len(sighting_names(page)) == size
        cursor = info["startCursor" if backward else "endCursor"]


@pytest.mark.parametrize("query", [PAGE, TRENDING])
async def test_sightings_of_both_formats_are_one_list_newest_first(served: Served, query: str) -> None:
    await put_sightings(served, [named_sighting(name) for name in MIXED])
    more = {} if query is PAGE else {"window": "SIX_HOURS"}

    whole = await served.ask(query, {"first": 100, **more})

    assert sorted(sighting_names(sightings_of(whole))) == sorted(MIXED)
    assert ages(sighting_names(sightings_of(whole))) == sorted(ages(MIXED))
    for size in range(1, len(MIXED) + 1):
        for backward in (False, True):
            found, answers = await walk_sightings(served, query, size, backward=backward, **more)
            assert found == sighting_names(sightings_of(whole)), (size, backward)
            assert {len(answer.calls) for answer in answers} == {1}


@pytest.mark.parametrize("query", [PAGE, TRENDING])
async def test_the_ascending_list_is_the_descending_one_reversed(served: Served, query: str) -> None:
    await put_sightings(served, [named_sighting(name) for name in MIXED])
    query = query.replace("$before: String", "$before: String, $order: SortOrder! = DESCENDING")
    query = query.replace("before: $before", "before: $before, order: $order")
    more: dict[str, Any] = {"window": "SIX_HOURS"} if "$window" in query else {}
    newest_first, _ = await walk_sightings(served, query, 100, backward=False, **more)

    for size in (1, 3, 5, 100):
        for backward in (False, True):
            found, _ = await walk_sightings(served, query, size, backward=backward, order="ASCENDING", **more)
            assert found == newest_first[::-1], (size, backward)


@pytest.mark.parametrize("seed", range(12))
async def test_no_page_loses_or_repeats_a_sighting_of_a_full_second(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    shares = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    items = []
    for number in range(rng.randint(20, 90)):
        second = rng.randint(0, rng.choice([2, 8, 40]))
        whole = rng.random() < shares
        age = f"{second}.000" if whole else f"{second}.{rng.randint(0, 999):03}"
        reported = NOON - timedelta(seconds=float(age))
        text = f"{reported:%Y-%m-%dT%H:%M:%SZ}" if whole else iso(reported)
        item = named_sighting("0.000", sightingId=f"{number}", reportedAt=text, expiresAt=int(NOON.timestamp()) + 60)
        # Some are expired: other programs may give them a shorter lifetime.
        if rng.random() < 0.2:
            item["expiresAt"] = int(NOON.timestamp()) - 1
        items.append(item | {"SK": f"SIGHTING#{text}#{number}", "GSI1SK": f"{text}#{number}"})
    await put_sightings(served, items)
    living = {item["sightingId"]: item["reportedAt"] for item in items if item["expiresAt"] > NOON.timestamp()}

    for size in (1, 3, 7, 25):
        forward, _ = await walk_sightings(served, PAGE, size, backward=False)
        back, _ = await walk_sightings(served, PAGE, size, backward=True)
        assert forward == back
        assert sorted(forward) == sorted(living)
        times = [datetime.fromisoformat(living[name]) for name in forward]
        assert times == sorted(times, reverse=True)


async def test_every_cursor_works_in_both_directions(served: Served) -> None:
    await put_sightings(served, [named_sighting(name) for name in MIXED])
    query = """query ($first: Int, $after: String, $last: Int, $before: String) {
      sightings(area: "Downtown", first: $first, after: $after, last: $last, before: $before) {
        edges { cursor } nodes { sightingId } } }"""
    whole = sightings_of(await served.ask(query, {"first": 100}))
    order, cursors = sighting_names(whole), [edge["cursor"] for edge in whole["edges"]]

    for place, cursor in enumerate(cursors):
        after = sightings_of(await served.ask(query, {"first": 4, "after": cursor}))
        before = sightings_of(await served.ask(query, {"last": 4, "before": cursor}))
        assert sighting_names(after) == order[place + 1 : place + 5]
        assert sighting_names(before) == order[max(place - 4, 0) : place]


async def test_a_cursor_of_a_deleted_sighting_continues(served: Served) -> None:
    await put_sightings(served, [named_sighting(name) for name in MIXED])
    pages = {name: sightings_of(await served.ask(PAGE, {"first": MIXED.index(name) + 1})) for name in MIXED}
    whole = sighting_names(sightings_of(await served.ask(PAGE, {"first": 100})))

    for page in pages.values():
        last = sighting_names(page)[-1]
        await served.store().write_all(BLIP, deletes=[_key(last)])
        onward = sightings_of(await served.ask(PAGE, {"first": 100, "after": page["pageInfo"]["endCursor"]}))
        await put_sightings(served, [named_sighting(last)])
        assert sighting_names(onward) == whole[whole.index(last) + 1 :]


def _key(name: str) -> Key:
    item = named_sighting(name)
    return Key(item["PK"], item["SK"])


async def test_a_window_begins_with_the_same_second_for_both_formats(served: Served) -> None:
    served.clock.forward(milliseconds=400)
    await put_sightings(
        served, [named_sighting(name) for name in ("899.999", "900.000", "900.000w", "900.500", "901.000w")]
    )

    answer = await served.ask(TRENDING, {"first": 10, "window": "QUARTER_HOUR"})

    # 400 ms past noon, the window begins at the second 900 before noon.
    assert answer.data["trending"][0]["sightingCount"] == 3
    assert sighting_names(sightings_of(answer))[0] == "899.999"


async def test_each_page_of_sightings_of_this_gateway_is_one_query(served: Served) -> None:
    await put_sightings(served, [named_sighting(f"{number}.{(number * 137) % 1000:03}") for number in range(1, 10)])

    for backward in (False, True):
        _, answers = await walk_sightings(served, PAGE, 2, backward=backward)
        assert [answer.made for answer in answers] == [["Query blip"]] * 5
