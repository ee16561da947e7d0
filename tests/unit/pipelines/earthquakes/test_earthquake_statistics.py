"""Daily statistics of earthquakes: each event counts once, by any writer and despite interruptions."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from datastore.database import StoreOptions
from datastore.dynamodb.calls import Call
from datastore.earthquakes.events import Earthquake
from datastore.earthquakes.regions import SeismicRegion, region_of
from datastore.earthquakes.statistics import StatisticsRebuild, StatisticsWriter, changed_items, coverage_of, merged
from datastore.keyspace.earthquake_statistics import day as day_key
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.earthquakes import event as event_key
from datastore.model.timestamps import day_bucket
from datastore.session.store import Store
from pipelines.earthquakes.statistics import CountEarthquakes, EarthquakeStatisticsPipeline
from tests.support.command_line import run_command
from tests.support.earthquake_counts import changes_of, counting, plain_counts, settled_counts, stored_counts
from tests.support.earthquake_samples import put_raw, quake, scan_all, store
from tests.support.served import NOON, REAL_DATA, Served

TODAY = day_bucket(NOON)
FEED = REAL_DATA / "usgs" / "2.5_month_2025-10.geojson"


def rebuild(served: Served) -> StatisticsRebuild:
    return StatisticsRebuild(served.store, served.clock)


async def bounds(served: Served) -> dict[str, float]:
    return {item["sk"]: item["greatest"] for item in await scan_all(served) if "greatest" in item}


async def delete(served: Served, earthquake: Earthquake) -> None:
    await served.store().write_all(EARTHQUAKES, deletes=[event_key(earthquake.event_id)])


async def test_events_of_all_programs_are_counted_by_class_and_region(served: Served) -> None:
    async with counting(served):
        await store(served, quake("ours", magnitude=4.5), quake("weaker", magnitude=4.1), quake("deep", magnitude=-0.5))
        await put_raw(served, "theirs", NOON - timedelta(days=3), mag=7.25, lat=36, lon=140)
        await put_raw(served, "blast", mag=1.5, type="quarry blast")

        found = await settled_counts(served)

    assert found == {
        TODAY: {
            "natural": {"4": [2, 4.5], "-1": [1, -0.5]},
            "other": {"1": [1, 1.5]},
            "regions": {"CA": [3, 4.5]},
        },
        day_bucket(NOON - timedelta(days=3)): {
            "natural": {"7": [1, 7.25]},
            "other": {},
            "regions": {"JP": [1, 7.25]},
        },
    }


async def test_overwritten_moved_and_deleted_events_are_recounted(served: Served) -> None:
    async with counting(served):
        await store(served, quake("stays"), quake("goes", magnitude=6.0))
        await put_raw(served, "moves", mag=5.5)
        await settled_counts(served)
        await delete(served, quake("goes"))
        await put_raw(served, "moves", NOON - timedelta(days=1), mag=3.5)

        found = await settled_counts(served)

    assert {day: kinds["natural"] for day, kinds in found.items()} == {
        TODAY: {"4": [1, 4.5]},
        day_bucket(NOON - timedelta(days=1)): {"3": [1, 3.5]},
    }


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_a_real_feed_that_is_ingested_twice_at_once_is_counted_once(served: Served) -> None:
    if not FEED.is_file():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    assert served.gateway.ingest is not None
    async with counting(served):
        await asyncio.gather(*(served.gateway.ingest.run(str(FEED)) for _ in range(2)))

        found = await settled_counts(served)

    assert sum(count for kinds in found.values() for count, _ in kinds["natural"].values()) > 1000


async def test_repeated_and_concurrent_changes_count_once(served: Served) -> None:
    events = [quake(f"us{number}", magnitude=number / 5) for number in range(30)]
    await store(served, *events)
    changes = changes_of((None, event.item()) for event in events)
    handlers = [CountEarthquakes(served.store) for _ in range(4)]

    await asyncio.gather(*(handler.handle(changes[part::2]) for handler in handlers for part in (0, 1)))
    await handlers[0].handle(changes)

    assert await stored_counts(served) == await plain_counts(served)


async def test_the_next_delivery_repairs_an_interruption_between_two_steps(served: Served) -> None:
    events = [quake("us1"), quake("us2", magnitude=6.5)]
    await store(served, *events)
    changes = changes_of((None, event.item()) for event in events)
    await StatisticsWriter(served.store).record(changed_items(changes))  # the process ends before it counts
    before = await stored_counts(served)

    await CountEarthquakes(served.store).handle(changes)

    assert before == {}
    assert await stored_counts(served) == await plain_counts(served)


async def test_damaged_events_are_skipped(served: Served) -> None:
    await put_raw(served, "nothing", mag=None)
    await put_raw(served, "text", mag="strong")
    await put_raw(served, "nowhere", gsi1pk=None)
    items = [item for item in await scan_all(served) if item["sk"] == "EVENT"]

    await CountEarthquakes(served.store).handle(changes_of((None, item) for item in items))

    assert await stored_counts(served) == {}
    assert await bounds(served) == {TODAY: -100}


async def test_the_bound_of_a_day_is_raised_before_an_event_is_stored(served: Served) -> None:
    assert served.gateway.database is not None
    calls: list[Call] = []
    served.gateway.database.client.add_call_listener(calls.append)

    await store(served, quake("us1", magnitude=4.5), quake("us2", magnitude=6.5), quake("us3", magnitude=5.5))

    assert [call.operation for call in calls][:2] == ["UpdateItem", "PutItem"]
    assert await bounds(served) == {TODAY: 6.5}


async def test_a_bound_that_the_table_has_lost_is_raised_again(served: Served) -> None:
    events = [quake("us1"), quake("us2", magnitude=6.5)]
    await store(served, *events)
    handler = CountEarthquakes(served.store)
    await handler.handle(changes_of((None, event.item()) for event in events))
    await served.store().write_all(EARTHQUAKES, deletes=[day_key(TODAY)])

    await handler.handle(changes_of([(None, events[0].item())]))

    assert await bounds(served) == {TODAY: 6.5}


async def test_a_process_raises_a_bound_once(served: Served, tmp_path: Any) -> None:
    if not FEED.is_file():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    assert served.gateway.ingest is not None
    assert served.gateway.database is not None
    calls: list[Call] = []
    served.gateway.database.client.add_call_listener(calls.append)
    copy = tmp_path / "again.geojson"
    copy.write_bytes(FEED.read_bytes())

    await served.gateway.ingest.run(str(FEED))
    first = [call.operation for call in calls].count("UpdateItem")
    calls.clear()
    await served.gateway.ingest.run(str(copy))

    assert 30 <= first <= 250  # of 1,185 events on 31 days
    assert [call.operation for call in calls].count("UpdateItem") == 0


async def test_a_rebuild_counts_events_stored_before_the_statistics(served: Served) -> None:
    for number in range(40):
        await put_raw(served, f"old{number}", NOON - timedelta(days=number % 7), mag=number / 5, lat=-20, lon=-70)

    assert await rebuild(served).all_days()

    assert await stored_counts(served) == await plain_counts(served)
    assert {day: bound for day, bound in (await bounds(served)).items() if day == TODAY} == {TODAY: 7}
    coverage = await coverage_of(served.store())
    assert coverage is not None
    assert coverage.spans == (("10000101", "99991231"),)


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_a_rebuild_gives_each_page_of_the_table_its_own_deadline(served: Served) -> None:
    place = "x" * 500
    events = [quake(f"us{n}", timedelta(hours=n % 90), place=place).item() for n in range(3_000)]
    await served.store().write_all(EARTHQUAKES, puts=events)
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(served.store())
        return opened[-1]

    await StatisticsRebuild(open_store, served.clock).all_days()

    scans = [sum(call.operation == "Scan" for call in store.meter.calls) for store in opened]
    assert max(scans) == 1
    assert sum(scans) >= 2
    assert await stored_counts(served) == await plain_counts(served)


async def test_a_rebuild_of_a_range_counts_its_days_and_removes_deleted_events(served: Served) -> None:
    for number in range(4):
        await put_raw(served, f"old{number}", NOON - timedelta(days=number))
    await rebuild(served).all_days()
    await delete(served, quake("old1"))
    yesterday = day_bucket(NOON - timedelta(days=1))
    await rebuild(served).forget_coverage()

    await rebuild(served).days([yesterday, TODAY])

    assert await stored_counts(served) == await plain_counts(served)
    coverage = await coverage_of(served.store())
    assert coverage is not None
    assert coverage.spans == ((yesterday, TODAY),)


def test_spans_that_touch_become_one() -> None:
    spans = [("20240301", "20240310"), ("20230101", "20230201"), ("20240228", "20240229"), ("20240305", "20240401")]
    assert merged(spans) == [("20230101", "20230201"), ("20240228", "20240401")]


async def test_the_command_rebuilds_all_days_or_a_range(served: Served, store_options: StoreOptions) -> None:
    await put_raw(served, "old1")
    command = ["statistics", "rebuild", "--store", store_options.store, "--prefix", store_options.prefix]

    ranged = await asyncio.to_thread(run_command, *command, "--start", "2026-01-01", "--end", "2026-01-31")
    whole = await asyncio.to_thread(run_command, *command)

    assert (ranged.stdout, whole.stdout) == ("31 days are counted\n", "all days are counted\n")
    assert await stored_counts(served) == await plain_counts(served)


async def test_a_small_table_is_counted_when_the_consumer_starts(served: Served) -> None:
    await put_raw(served, "old1")
    pipeline = served.gateway.background.earthquake_statistics()

    await pipeline.check()

    assert await stored_counts(served) == await plain_counts(served)


async def test_a_stream_that_was_not_read_for_a_day_makes_the_statistics_incomplete(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline: EarthquakeStatisticsPipeline = served.gateway.background.earthquake_statistics()
    await pipeline.check()
    kept_up = await coverage_of(served.store())
    monkeypatch.setattr("pipelines.earthquakes.statistics.SMALL_TABLE_PAGES", 0)
    served.clock.forward(hours=24)

    await pipeline.check()

    late = await coverage_of(served.store())
    assert kept_up is not None
    assert kept_up.spans
    assert late is not None
    assert late.spans == ()


async def test_a_process_records_that_it_keeps_up_after_reading_the_stream(served: Served) -> None:
    idle = served.gateway.background.earthquake_statistics()
    await idle.check()  # builds the missing statistics
    served.clock.forward(minutes=1)
    before = await idle.check()
    noted_before = await coverage_of(served.store())
    async with counting(served) as pipeline:
        await put_raw(served, "theirs")
        await settled_counts(served)

        after = await pipeline.check()

    noted = await coverage_of(served.store())
    assert (before, after) == (False, True)
    assert noted_before is not None
    assert noted is not None
    assert noted.checked_at_ms - noted_before.checked_at_ms == 60_000


@pytest.mark.parametrize(
    ("latitude", "longitude", "region"),
    [
        (35.7, -117.5, SeismicRegion.CALIFORNIA),
        (51.9, -176.6, SeismicRegion.ALASKA),
        (52.8, 173.2, SeismicRegion.ALASKA),
        (38.3, 142.4, SeismicRegion.JAPAN),
        (-20.5, 179.9, SeismicRegion.TONGA_AND_FIJI),
        (-20.5, -179.9, SeismicRegion.TONGA_AND_FIJI),
        (37.2, 37.0, SeismicRegion.MEDITERRANEAN_AND_MIDDLE_EAST),
        (-31.6, -71.7, SeismicRegion.SOUTH_AMERICA),
        (0.0, -100.0, SeismicRegion.ELSEWHERE),
    ],
)
def test_the_region_of_a_point(latitude: float, longitude: float, region: SeismicRegion) -> None:
    assert region_of(latitude, longitude) is region
