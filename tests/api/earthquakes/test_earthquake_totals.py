"""`earthquakeStatistics`: counts by day, magnitude class and region, from few reads."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.earthquakes.regions import region_of
from datastore.earthquakes.statistics import StatisticsRebuild, magnitude_class
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import from_epoch_ms
from tests.support.earthquake_counts import counting, settled_counts
from tests.support.earthquake_samples import put_raw, quake, scan, scan_all, store
from tests.support.served import REAL_DATA, Served

FEED = REAL_DATA / "usgs" / "2.5_month_2025-10.geojson"
STATISTICS = """
query ($start: Date, $end: Date, $by: EarthquakeGrouping!) {
  earthquakeStatistics(from: $start, to: $end, by: $by) {
    from to isComplete earthquakeCount maxMagnitude
    groups { day magnitudeClass region earthquakeCount maxMagnitude }
  }
}
"""


async def statistics(served: Served, by: str = "DAY", **window: Any) -> dict[str, Any]:
    answer = await served.ask(STATISTICS, {"by": by, **window})
    assert answer.errors is None, answer.errors
    found: dict[str, Any] = answer.data["earthquakeStatistics"]
    found["groups"] = [{name: value for name, value in group.items() if value is not None} for group in found["groups"]]
    return found


async def store_example_events(served: Served) -> None:
    await store(
        served,
        quake("a", magnitude=4.5),
        quake("b", magnitude=4.1, latitude=38.0, longitude=142.0),
        quake("c", timedelta(days=2), magnitude=6.3, latitude=38.0, longitude=142.0),
        quake("old", timedelta(days=40), magnitude=8.0),
    )
    await put_raw(served, "blast", mag=5.0, type="quarry blast")
    await StatisticsRebuild(served.store, served.clock).all_days()


async def test_earthquakes_are_counted_by_day(served: Served) -> None:
    await store_example_events(served)

    assert await statistics(served) == {
        "from": "2026-05-26",
        "to": "2026-06-25",
        "isComplete": True,
        "earthquakeCount": 3,
        "maxMagnitude": 6.3,
        "groups": [
            {"day": "2026-06-25", "earthquakeCount": 2, "maxMagnitude": 4.5},
            {"day": "2026-06-23", "earthquakeCount": 1, "maxMagnitude": 6.3},
        ],
    }


async def test_earthquakes_are_counted_by_magnitude_and_by_region(served: Served) -> None:
    await store_example_events(served)

    by_magnitude = await statistics(served, "MAGNITUDE")
    by_region = await statistics(served, "REGION")

    assert by_magnitude["groups"] == [
        {"magnitudeClass": 6, "earthquakeCount": 1, "maxMagnitude": 6.3},
        {"magnitudeClass": 4, "earthquakeCount": 2, "maxMagnitude": 4.5},
    ]
    assert by_region["groups"] == [
        {"region": "JAPAN", "earthquakeCount": 2, "maxMagnitude": 6.3},
        {"region": "CALIFORNIA", "earthquakeCount": 1, "maxMagnitude": 4.5},
    ]
    assert by_magnitude["earthquakeCount"] == by_region["earthquakeCount"] == 3


async def test_a_window_without_events_has_no_counts(served: Served) -> None:
    found = await statistics(served, "REGION", start="1990-01-01", end="1990-12-31")

    assert (found["earthquakeCount"], found["maxMagnitude"], found["groups"]) == (0, None, [])
    assert found["isComplete"] is False


@pytest.mark.proof
@pytest.mark.parametrize("by", ["DAY", "MAGNITUDE", "REGION"])
async def test_ten_years_cost_at_most_twenty_reads_and_about_the_estimate(served: Served, by: str) -> None:
    # The longest window begins on the last day of a year, and so touches twelve years.
    start, end = datetime(2010, 12, 31, tzinfo=UTC), datetime(2010, 12, 31, tzinfo=UTC) + timedelta(days=3_660)
    await StatisticsRebuild(served.store, served.clock).all_days()
    await served.store().write_all(
        EARTHQUAKES, puts=[item for day in range(3_661) for item in stored_statistics(start, day)]
    )

    found = await statistics(served, by, start=str(start.date()), end=str(end.date()))

    (report,) = served.reports
    read = sum(call.units for call in report.latest_calls)
    assert found["earthquakeCount"] == 3_661 * 300
    assert len(report.latest_calls) <= 20
    assert read / 3 <= report.estimate - WRITE_UNIT_COST <= 3 * read


def stored_statistics(start: datetime, day: int) -> list[dict[str, Any]]:
    """Return the stored statistics of a busy day."""
    name = f"{start + timedelta(days=day):%Y%m%d}"
    classes = {str(number): [60, number + 0.9] for number in range(5)}
    regions = {code: [30, 4.9] for code in ("CA", "AK", "HI", "NW", "JP", "ID", "SA", "CB", "MD", "TO")}
    counts = {"greatest": 4.9, "byClass": classes, "othersByClass": {"1": [5, 1.9]}, "recounts": 12}
    return [
        {"pk": f"STATISTICS#{name[:4]}", "sk": name} | counts,
        {"pk": f"REGIONS#{name[:4]}", "sk": name, "byRegion": regions},
    ]


@pytest.mark.parametrize(
    ("window", "field"),
    [
        ({"start": "2026-06-02", "end": "2026-06-01"}, "from"),
        ({"start": "2016-01-01", "end": "2026-06-01"}, "from"),
        ({"start": "0999-01-01", "end": "1000-01-05"}, "from"),
    ],
)
async def test_windows_have_the_limits_of_the_earthquakes_field(
    served: Served, window: dict[str, str], field: str
) -> None:
    answer = await served.ask(STATISTICS, {"by": "DAY", **window})

    assert answer.errors is not None
    assert answer.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": field}


async def test_a_query_of_statistics_writes_a_request_log(served: Served) -> None:
    await statistics(served)
    assert served.gateway.services is not None
    await served.gateway.services.request_logs.stop()

    (log,) = await scan(served, "LOG")

    assert log["route"] == {"S": "graphql/earthquakeStatistics"}


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_the_counts_of_a_real_feed_are_those_of_plain_code(served: Served) -> None:
    if not FEED.is_file():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    assert served.gateway.ingest is not None
    async with counting(served):
        await served.gateway.ingest.run(str(FEED))
        await settled_counts(served)
    events = [item for item in await scan_all(served) if item.get("entity") == "EVENT" and item["sk"] == "EVENT"]
    events = [event for event in events if event.get("type", "earthquake") == "earthquake"]
    moments = [from_epoch_ms(event["eventTsMs"]) for event in events]
    window = {"start": str(min(moments).date()), "end": str(max(moments).date())}

    days = await statistics(served, "DAY", **window)
    classes = await statistics(served, "MAGNITUDE", **window)
    regions = await statistics(served, "REGION", **window)

    assert days["earthquakeCount"] == classes["earthquakeCount"] == regions["earthquakeCount"] == len(events)
    assert {group["day"]: group["earthquakeCount"] for group in days["groups"]} == Counter(
        f"{moment:%Y-%m-%d}" for moment in moments
    )
    assert {group["magnitudeClass"]: group["earthquakeCount"] for group in classes["groups"]} == Counter(
        magnitude_class(event["mag"]) for event in events
    )
    assert {group["region"]: group["earthquakeCount"] for group in regions["groups"]} == Counter(
        region_of(event["lat"], event["lon"]).name for event in events
    )
