"""Documented items of the table `earthquake-events`, written by another program: alone, and mixed with our own items.

The document's events have no `type`, `updated` or further ids, and its days have no statistics. The gateway has to
work without these attributes of its own.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from datastore.earthquakes.earthquakes import Earthquakes
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.identity import Role
from datastore.model.timestamps import day_bucket, epoch_ms
from resolvers.shared.global_ids import global_id
from tests.support.answers import data_of
from tests.support.documents_earthquakes import (
    DOCUMENT,
    INGEST_FIGURES,
    INGEST_ID,
    QUERY_ID,
    TODAY,
    event_document,
    log_item,
)
from tests.support.earthquake_counts import counting, settled_counts
from tests.support.earthquake_samples import put_item, quake, scan_all, store
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served
from tests.support.usgs_samples import feature, feed_bytes

FIELDS = """eventId occurredAt magnitude place latitude longitude depthKm source ingestedAt
  type status updatedAt alert isTsunamiPossible significance url"""
WINDOW = f"""query ($first: Int, $after: String, $least: Float) {{
  earthquakes(first: $first, after: $after, minMagnitude: $least) {{
    nodes {{ {FIELDS} }} pageInfo {{ hasNextPage endCursor }} }} }}"""
ONE = f"query ($id: ID!, $node: ID!) {{ earthquake(id: $id) {{ {FIELDS} }} node(id: $node) {{ id }} }}"
REVISIONS = '{ earthquake(id: "ci1") { magnitude latest { magnitude } revisions { magnitude } } }'
LOGS = """{ requestLogs(type: INGEST) { nodes { requestId startedAt route status latencyMs fetched upserted skipped
  retries upstreamSize upstreamHash } } }"""
QUERY_LOGS = """{ requestLogs(type: QUERY) { nodes { requestId route minMagnitude pageSize resultCount hasNextToken
  bucketsScanned error from to } } }"""


THEIRS = ["ci1", "ci2", "ci3", "i" * 64]


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own events if mixed, newest first, else none."""
    for item in DOCUMENT:
        await put_item(served, item)
    if request.param == "alone":
        return []
    recent = quake("us2", timedelta(minutes=1), magnitude=6.5, other_ids=("nn2",), updated_at_ms=epoch_ms(NOON))
    await store(served, recent, quake("us1", timedelta(minutes=2), magnitude=5.0, type="earthquake"))
    return ["us2", "us1"]


def event_ids_of(connection: Any) -> list[str]:
    return [node["eventId"] for node in connection["nodes"]]


@covers("QUAKE-2", "QUAKE-3")
async def test_documented_events_of_a_window_are_listed_newest_first_in_pages(
    served: Served, ours: Sequence[str]
) -> None:
    whole = data_of(await served.ask(WINDOW))["earthquakes"]
    found, cursor = list[str](), None
    while True:
        page = data_of(await served.ask(WINDOW, {"first": 2, "after": cursor}))["earthquakes"]
        found += event_ids_of(page)
        if not page["pageInfo"]["hasNextPage"]:
            break
        cursor = page["pageInfo"]["endCursor"]
    strong = data_of(await served.ask(WINDOW, {"least": 4.5}))["earthquakes"]

    assert event_ids_of(whole) == found == [*ours, *THEIRS]
    assert event_ids_of(strong) == [*ours, "ci1", "ci3"]
    unknown = dict.fromkeys(("status", "updatedAt", "alert", "isTsunamiPossible", "significance", "url"))
    assert whole["nodes"][-3] == unknown | {
        "eventId": "ci2",
        "occurredAt": "2026-06-25T10:00:00.000Z",
        "magnitude": -2.0,
        "place": "10 km SSW of Idyllwild, CA",
        "latitude": -90.0,
        "longitude": 180.0,
        "depthKm": None,
        "source": "USGS",
        "ingestedAt": "2026-06-25T12:00:00.000Z",
        "type": "earthquake",
    }


@covers("QUAKE-5")
@pytest.mark.parametrize("id", THEIRS)
async def test_documented_events_are_found_by_id(served: Served, ours: Sequence[str], id: str) -> None:
    node = global_id("Earthquake", id)
    found = data_of(await served.ask(ONE, {"id": id, "node": node}))

    assert (found["earthquake"]["eventId"], found["node"]) == (id, {"id": node})


@covers("QUAKE-1")
async def test_an_ingest_recognizes_documented_events(served: Served, ours: Sequence[str], tmp_path: Path) -> None:
    """A report of the same event, under the same or another id, changes nothing of the document's item."""
    before = [item for item in await scan_all(served) if item["sk"] == "EVENT"]
    path = tmp_path / "feed.geojson"
    time = epoch_ms(NOON - timedelta(hours=1))
    path.write_bytes(
        feed_bytes(
            feature(id="ci1", time=time, ids=",ci1,", updated=time + 1, mag=4.6),
            feature(id="us9", time=time, ids=",ci1,us9,", updated=time + 2, mag=4.7),
            feature(id="us8", time=time, ids=",us8,", updated=time + 2, mag=4.8),
        )
    )
    assert served.gateway.ingest is not None
    summary = await served.gateway.ingest.run(str(path))
    after = [item for item in await scan_all(served) if item["sk"] == "EVENT"]

    assert (summary.upserted, summary.skipped, summary.error) == (1, 2, None)
    assert [item for item in after if item["eventId"] not in ("us8", "us9")] == before


@covers("QUAKE-4")
async def test_the_documented_request_log_of_a_day_is_read(served: Served, ours: Sequence[str]) -> None:
    ingests = data_of(await served.ask(LOGS, user="root", role=Role.ADMIN))["requestLogs"]["nodes"]
    queries = data_of(await served.ask(QUERY_LOGS, user="root", role=Role.ADMIN))["requestLogs"]["nodes"]

    common = {"requestId": INGEST_ID, "startedAt": "2026-06-25T12:00:00.000Z", "status": 200, "latencyMs": 120}
    assert ingests == [common | {"route": "/ingest/recent"} | INGEST_FIGURES]
    assert queries == [
        {
            "requestId": QUERY_ID,
            "route": "/earthquakes",
            "minMagnitude": 2.5,
            "pageSize": 50,
            "resultCount": 1,
            "hasNextToken": False,
            "bucketsScanned": 2,
            "error": "NONE",
            "from": "2026-06-24T12:00:00.000Z",
            "to": "2026-06-25T12:00:00.000Z",
        }
    ]


@covers("QUAKE-S1")
async def test_subscribers_receive_documented_events(served: Served, ours: Sequence[str]) -> None:
    events = await served.listen(f"subscription {{ earthquakeDetected {{ {FIELDS} }} }}")
    await served.settle(EARTHQUAKES)

    await put_item(served, event_document("ci4"))
    await put_item(served, event_document("ci1", timedelta(hours=1), mag=4.6))  # a replacement is no new event
    await put_item(served, log_item("another", "QUERY", route="/earthquakes"))
    await store(served, quake("us4"))

    received = [(await events.event())["earthquakeDetected"] for _ in range(2)]
    assert {one["eventId"] for one in received} == {"ci4", "us4"}


@covers("FEED-P1", "QUAKE-6", "QUAKE-P1", "QUAKE-P2", "QUAKE-P3", "QUAKE-P4", "QUAKE-P5")
async def test_documented_events_are_counted(served: Served, ours: Sequence[str]) -> None:
    """A rebuild counts the stored events, and the consumer those in the stream."""
    async with counting(served) as pipeline:
        await pipeline.check()
        await put_item(served, event_document("ci5", timedelta(hours=3), mag=9.5))
        found = await settled_counts(served)
    answer = data_of(await served.ask("{ earthquakeStatistics { earthquakeCount maxMagnitude isComplete } }"))

    assert {day: sum(count for count, _ in kinds["natural"].values()) for day, kinds in found.items()} == {
        TODAY: 3 + len(ours),
        day_bucket(NOON - timedelta(days=1)): 1,
        day_bucket(NOON - timedelta(days=3)): 1,
    }
    assert answer["earthquakeStatistics"] == {
        "earthquakeCount": 5 + len(ours),
        "maxMagnitude": 10.0,
        "isComplete": True,
    }


@covers("QUAKE-N1", "QUAKE-N2")
async def test_a_newer_report_of_a_documented_event_is_a_revision(served: Served, ours: Sequence[str]) -> None:
    """QUAKE-N1, QUAKE-N2: a revision leaves the other program's event unchanged."""
    before = data_of(await served.ask(REVISIONS))["earthquake"]
    report = quake("ci1", timedelta(hours=1), magnitude=4.9, updated_at_ms=epoch_ms(NOON))
    assert not await Earthquakes(served.store(), served.clock()).insert(report)
    after = data_of(await served.ask(REVISIONS))["earthquake"]

    assert before == {"magnitude": 4.5, "latest": None, "revisions": []}
    assert after == {"magnitude": 4.5, "latest": {"magnitude": 4.9}, "revisions": [{"magnitude": 4.9}]}
