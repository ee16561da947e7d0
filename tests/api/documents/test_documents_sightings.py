"""Documented items of the table `blip`, written by another program: each pattern, on them alone and mixed with ours.

The document names keys, `sightingId`, `expiresAt` and `confirmationCount`; times are in whole seconds. Trust needs a
reporter, so sightings name theirs. The further attributes and items of this gateway are missing.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from tests.support.answers import data_of
from tests.support.documents_sightings import DOCUMENT, REPORT, sighting_document, write_blip_items
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served

SIGHTINGS = """query ($first: Int, $after: String) { sightings(area: "Downtown", first: $first, after: $after) {
  nodes { sightingId area category description reporterId trustTier reportedAt expiresAt confirmationCount
    confidence freshness reporter { userId trustTier } }
  pageInfo { hasNextPage endCursor } } }"""
TRENDING = '{ trending(categories: ["Sneakers"]) { sightingCount sightings { nodes { sightingId } } } }'
CONFIRM = 'mutation ($id: ID!) { confirmSighting(area: "Downtown", sightingId: $id) { confirmationCount } }'
PROFILE = '{ userProfile(id: "u_abc123") { userId trustTier reportTotal streakDays confirmedReportCount } }'
WATCHES = '{ watches(userId: "u_abc123") { watchId area category createdAt } }'


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own sightings, newest first, if mixed, else none."""
    write_blip_items(served, *DOCUMENT)
    if request.param == "alone":
        return []
    created = []
    for milliseconds in (100, 300):
        served.clock.now = NOON + timedelta(milliseconds=milliseconds)
        created.append((await served.ask(REPORT, user="eve")).data["reportSighting"]["sightingId"])
    return created[::-1]


def sighting_ids_of(connection: Any) -> list[str]:
    return [node["sightingId"] for node in connection["nodes"]]


@covers("BLIP-1", "BLIP-2")
async def test_documented_sightings_of_an_area_are_listed_newest_first_in_pages(
    served: Served, ours: Sequence[str]
) -> None:
    whole = data_of(await served.ask(SIGHTINGS))["sightings"]
    found, cursor = list[str](), None
    while True:
        page = data_of(await served.ask(SIGHTINGS, {"first": 2, "after": cursor}))["sightings"]
        found += sighting_ids_of(page)
        if not page["pageInfo"]["hasNextPage"]:
            break
        cursor = page["pageInfo"]["endCursor"]

    assert sighting_ids_of(whole) == found == [*ours, "abc1", "abc2", "abc3"]
    documented = whole["nodes"][-1]
    assert documented | {"confidence": 0, "freshness": ""} == {
        "sightingId": "abc3",
        "area": "Downtown",
        "category": "Sneakers",
        "description": "",
        "reporterId": "u_abc123",
        "trustTier": "BRONZE",
        "reportedAt": "2026-06-25T11:59:57.000Z",
        "expiresAt": "2026-06-25T12:29:57.000Z",
        "confirmationCount": 0,
        "confidence": 0,
        "freshness": "",
        "reporter": {"userId": "u_abc123", "trustTier": "BRONZE"},
    }


@covers("BLIP-4")
async def test_trending_counts_documented_sightings(served: Served, ours: Sequence[str]) -> None:
    (trend,) = data_of(await served.ask(TRENDING))["trending"]

    assert (trend["sightingCount"], sighting_ids_of(trend["sightings"])) == (
        3 + len(ours),
        [*ours, "abc1", "abc2", "abc3"],
    )


@covers("BLIP-5")
async def test_documented_sightings_are_confirmed_once_by_each_user(served: Served, ours: Sequence[str]) -> None:
    asked = [
        ("grace", "abc1"),
        ("grace", "abc1"),
        ("linus", "abc1"),
        ("u_abc123", "abc1"),
        *[("grace", id) for id in ours],
    ]
    counts = [
        data_of(await served.ask(CONFIRM, {"id": id}, user=user))["confirmSighting"]["confirmationCount"]
        for user, id in asked
    ]
    expired = await served.ask(CONFIRM, {"id": "gone"}, user="grace")

    assert counts == [1, 1, 2, 2, *[1 for _ in ours]]
    assert expired.codes == ["NOT_FOUND"]
    assert data_of(await served.ask(PROFILE))["userProfile"]["confirmedReportCount"] == 1


@covers("BLIP-2", "BLIP-6")
async def test_a_documented_profile_is_read_and_updated(served: Served, ours: Sequence[str]) -> None:
    before = data_of(await served.ask(PROFILE))["userProfile"]
    data_of(await served.ask(REPORT, user="u_abc123"))
    after = data_of(await served.ask(PROFILE))["userProfile"]

    fresh = {"userId": "u_abc123", "trustTier": "BRONZE", "reportTotal": 0, "streakDays": 0, "confirmedReportCount": 0}
    assert before == fresh
    assert after == fresh | {"reportTotal": 1, "streakDays": 1}


@covers("BLIP-3", "BLIP-7")
async def test_documented_watches_are_read_and_deleted_and_new_ones_created(
    served: Served, ours: Sequence[str]
) -> None:
    create = 'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId area category createdAt } }'
    delete = 'mutation { deleteWatch(area: "Downtown", category: "Sneakers", watchId: "w1") { watchId } }'
    stored = {"watchId": "w1", "area": "Downtown", "category": "Sneakers", "createdAt": None}

    created = data_of(await served.ask(create, user="u_abc123"))["createWatch"]
    both = data_of(await served.ask(WATCHES, user="u_abc123"))["watches"]
    deleted = data_of(await served.ask(delete, user="u_abc123"))["deleteWatch"]
    left = data_of(await served.ask(WATCHES, user="u_abc123"))["watches"]

    assert (both, deleted, left) == ([stored, created], {"watchId": "w1"}, [created])


@covers("BLIP-8")
async def test_the_demo_is_seeded_among_documented_sightings(served: Served, ours: Sequence[str]) -> None:
    seeded = await served.ask("mutation { seedDemo { sightingId area } }", user="root", role=Role.ADMIN)
    listed = data_of(await served.ask(SIGHTINGS, {"first": 100}))["sightings"]

    downtown = {sighting["sightingId"] for sighting in data_of(seeded)["seedDemo"] if sighting["area"] == "Downtown"}
    assert {*sighting_ids_of(listed)} == {*ours, "abc1", "abc2", "abc3", *downtown}


@covers("BLIP-S1", "BLIP-S2")
async def test_subscribers_receive_documented_sightings(served: Served, ours: Sequence[str]) -> None:
    fields = "{ sightingId area category reporterId reportedAt }"
    everybody = await served.listen(f"subscription {{ sightingReported {fields} }}")
    watcher = await served.listen(f'subscription {{ watchAlerts(userId: "u_abc123") {fields} }}', user="u_abc123")
    await served.settle(BLIP, 2)

    write_blip_items(served, sighting_document("cats", category="Cats"), sighting_document("new"))
    own = (await served.ask(REPORT, user="eve")).data["reportSighting"]["sightingId"]

    received = [(await everybody.event())["sightingReported"] for _ in range(3)]
    alerts = [(await watcher.event())["watchAlerts"] for _ in range(2)]
    assert {event["sightingId"] for event in received} == {"cats", "new", own}
    assert {event["sightingId"] for event in alerts} == {"new", own}
    assert next(event for event in received if event["sightingId"] == "new") == {
        "sightingId": "new",
        "area": "Downtown",
        "category": "Sneakers",
        "reporterId": "u_abc123",
        "reportedAt": "2026-06-25T12:00:00.000Z",
    }
