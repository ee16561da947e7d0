"""Events that USGS revises or deletes: later reports are stored as revisions of the first (QUAKE-1, QUAKE-N1)."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.revisions import MAX_REVISIONS
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import epoch_ms
from tests.support.earthquake_counts import counting, settled_counts
from tests.support.earthquake_samples import put_raw, quake, scan, scan_all, store
from tests.support.served import NOON, Served
from tests.support.usgs_samples import feature, feed_bytes

TIME = epoch_ms(NOON) - 60_000
REPORT = "eventId magnitude place depthKm status alert updatedAt url"
ONE = f"query ($id: ID!) {{ earthquake(id: $id) {{ {REPORT} latest {{ {REPORT} }} revisions {{ {REPORT} }} }} }}"


def report_feature(number: int, **changes: Any) -> Any:
    """Return the report with this number of an event that USGS reports each second."""
    return feature(**{"id": "us1", "time": TIME, "updated": TIME + 1000 * number, "mag": 4 + number / 10} | changes)


async def ingest_revisions(served: Served, folder: Path, *features: Any) -> tuple[int, int, dict[str, int]]:
    assert served.gateway.ingest is not None
    path = folder / "feed.geojson"
    path.write_bytes(feed_bytes(*features))
    summary = await served.gateway.ingest.run(str(path))
    assert summary.error is None
    return summary.upserted, summary.skipped, dict(summary.rejected)


async def earthquake_of(served: Served, id: str = "us1") -> Any:
    answer = await served.ask(ONE, {"id": id})
    assert answer.errors is None, answer.errors
    return answer.data["earthquake"]


async def magnitudes(served: Served) -> tuple[float, float | None, list[float]]:
    """Return the magnitudes of the event, of its newest report and of its revisions."""
    event = await earthquake_of(served)
    newest = event["latest"] and event["latest"]["magnitude"]
    return event["magnitude"], newest, [each["magnitude"] for each in event["revisions"]]


async def test_a_newer_report_is_a_revision_and_the_first_report_is_kept(served: Served, tmp_path: Path) -> None:
    first = await ingest_revisions(served, tmp_path, report_feature(1, status="automatic"))
    stored = await scan(served, "EVENT")
    second = await ingest_revisions(
        served, tmp_path, report_feature(2, status="reviewed", alert="green", place="Elsewhere")
    )
    event = await earthquake_of(served)

    assert (first, second) == ((1, 0, {}), (0, 1, {}))
    assert await scan(served, "EVENT") == stored
    assert (event["magnitude"], event["status"], event["alert"]) == (4.1, "automatic", None)
    assert event["revisions"] == [event["latest"]]
    assert event["latest"] == {
        "eventId": "us1",
        "magnitude": 4.2,
        "place": "Elsewhere",
        "depthKm": 9.75,
        "status": "reviewed",
        "alert": "green",
        "updatedAt": "2026-06-25T11:59:02.000Z",
        "url": None,
    }


async def test_an_event_without_revisions_has_none(served: Served, tmp_path: Path) -> None:
    await ingest_revisions(served, tmp_path, report_feature(1))

    assert await magnitudes(served) == (4.1, None, [])


@pytest.mark.parametrize("order", [*itertools.permutations((1, 2, 3))], ids=str)
async def test_the_newest_report_wins_in_any_order_of_arrival(
    served: Served, tmp_path: Path, order: tuple[int, ...]
) -> None:
    for _ in range(2):
        for number in order:
            await ingest_revisions(served, tmp_path, report_feature(number))
    event, latest, revisions = await magnitudes(served)

    assert event == 4 + order[0] / 10
    assert latest == (None if order[0] == 3 else 4.3)
    assert revisions == sorted(set(revisions), reverse=True)
    assert all(magnitude > event for magnitude in revisions)


async def test_a_report_without_a_change_of_stored_attributes_adds_no_revision(served: Served, tmp_path: Path) -> None:
    await ingest_revisions(served, tmp_path, report_feature(1, felt=1))
    await ingest_revisions(served, tmp_path, report_feature(2, mag=4.1, felt=2))
    await ingest_revisions(served, tmp_path, report_feature(3))
    await ingest_revisions(served, tmp_path, report_feature(4, mag=4.3))

    assert await magnitudes(served) == (4.1, 4.3, [4.3])


async def test_concurrent_reports_are_all_stored_and_the_newest_is_the_latest(served: Served) -> None:
    await store(served, quake("us1", updated_at_ms=TIME))
    reports = [quake("us1", updated_at_ms=TIME + number, magnitude=4 + number / 10) for number in (1, 1, 2, 2, 3, 3)]
    new = await asyncio.gather(*(Earthquakes(served.store(), NOON).insert(each) for each in reports))
    _, latest, revisions = await magnitudes(served)

    assert not any(new)
    assert latest == 4.3 == revisions[0]
    assert revisions == sorted(set(revisions), reverse=True)


async def test_a_report_under_another_id_is_a_revision_of_the_event(served: Served, tmp_path: Path) -> None:
    await ingest_revisions(served, tmp_path, report_feature(1, ids=",us1,nn1,"))
    await ingest_revisions(served, tmp_path, report_feature(2, id="nn1", ids=",us1,nn1,"))
    await ingest_revisions(served, tmp_path, report_feature(3, id="nn1", ids=",nn1,"))

    assert await magnitudes(served) == (4.1, 4.3, [4.3, 4.2])
    assert (await earthquake_of(served, "nn1"))["latest"]["eventId"] == "nn1"


async def test_an_event_of_another_program_is_revised(served: Served, tmp_path: Path) -> None:
    await put_raw(served, "us1")
    await ingest_revisions(served, tmp_path, report_feature(1))

    assert await magnitudes(served) == (4.5, 4.1, [4.1])


async def test_a_deleted_event_has_a_revision_with_that_status(served: Served, tmp_path: Path) -> None:
    await ingest_revisions(served, tmp_path, report_feature(1, ids=",us1,nn1,"))
    gone = report_feature(2, id="nn1", status="DELETED", mag=None, place=None, coordinates=None)
    counts = [
        await ingest_revisions(served, tmp_path, gone, *extra)
        for extra in ((), (report_feature(9, id="us2", status="deleted"),))
    ]
    event = await earthquake_of(served)

    assert counts == [(0, 0, {"DELETED": 1}), (0, 0, {"DELETED": 2})]
    assert [each["status"] for each in event["revisions"]] == ["deleted"]
    assert event["latest"] | {"url": None} == event["revisions"][0]
    assert (event["latest"]["magnitude"], event["status"]) == (4.1, "reviewed")
    assert await earthquake_of(served, "us2") is None


async def test_a_deleted_event_that_is_reported_again_is_no_longer_deleted(served: Served, tmp_path: Path) -> None:
    await ingest_revisions(served, tmp_path, report_feature(1))
    await ingest_revisions(served, tmp_path, report_feature(2, status="deleted"))
    await ingest_revisions(served, tmp_path, report_feature(3))
    await ingest_revisions(served, tmp_path, report_feature(2, status="deleted"), report_feature(9, id="us2"))

    assert [each["status"] for each in (await earthquake_of(served))["revisions"]] == ["reviewed", "deleted"]


async def test_the_newest_revisions_are_listed(served: Served, tmp_path: Path) -> None:
    for number in range(MAX_REVISIONS + 5):
        await ingest_revisions(served, tmp_path, report_feature(number, mag=number / 10))
    _, latest, revisions = await magnitudes(served)

    assert latest == revisions[0] == (MAX_REVISIONS + 4) / 10
    assert len(revisions) == MAX_REVISIONS


async def test_the_newest_reports_of_a_page_are_one_batch(served: Served, tmp_path: Path) -> None:
    ids = [f"us{number}" for number in range(25)]
    for number in (1, 2):
        await ingest_revisions(served, tmp_path, *(report_feature(number, id=id) for id in ids))
    answer = await served.ask(
        '{ earthquakes(from: "2026-06-25T00:00:00Z", first: 25) { nodes { magnitude latest { magnitude } } } }'
    )

    assert answer.data["earthquakes"]["nodes"] == [{"magnitude": 4.1, "latest": {"magnitude": 4.2}}] * 25
    assert [call.operation for call in answer.calls] == ["Query", "BatchGetItem"]


async def test_revisions_are_not_counted_listed_or_delivered(served: Served, tmp_path: Path) -> None:
    events = await served.listen("subscription { earthquakeDetected { eventId magnitude } }")
    await served.settle(EARTHQUAKES, 1)
    async with counting(served):
        for number in (1, 2, 3):
            await ingest_revisions(served, tmp_path, report_feature(number))
        await ingest_revisions(served, tmp_path, report_feature(1, id="us2"))
        found = await settled_counts(served)
    listed = await served.ask("{ earthquakes { nodes { eventId } } }")

    received = [(await events.event())["earthquakeDetected"] for _ in range(2)]
    assert received == [{"eventId": "us1", "magnitude": 4.1}, {"eventId": "us2", "magnitude": 4.1}]
    assert [day["natural"] for day in found.values()] == [{"4": [2, 4.1]}]
    assert sorted(node["eventId"] for node in listed.data["earthquakes"]["nodes"]) == ["us1", "us2"]
    assert len([item for item in await scan_all(served) if item.get("entity") == "REVISION"]) == 2


async def test_the_cost_of_a_report(served: Served) -> None:
    """A known event costs one conditional write, and two more reads if USGS has updated it since."""
    assert served.gateway.database is not None
    client, made = served.gateway.database.client, list[str]()
    await store(served, quake("us1", magnitude=9.0, updated_at_ms=TIME))
    stop = client.add_call_listener(lambda call: made.append(call.operation))
    costs = []
    try:
        for updated in (TIME, TIME + 1, TIME + 1):
            event = quake("us1", magnitude=9 + (updated - TIME) / 10, updated_at_ms=updated)
            await Earthquakes(served.store(), NOON).insert(event)
            costs.append([operation for operation in made if operation != "UpdateItem"])
            made.clear()
    finally:
        stop()

    assert costs == [["PutItem"], ["PutItem", "BatchGetItem", "TransactWriteItems"], ["PutItem", "BatchGetItem"]]
