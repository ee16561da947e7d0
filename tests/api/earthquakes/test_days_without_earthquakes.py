"""Pages skip days without events by the daily statistics, without leaving out an event."""

import random
from datetime import timedelta
from typing import Any

import pytest

from datastore.database import StoreOptions
from datastore.earthquakes.statistics import StatisticsRebuild
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import day_bucket, epoch_ms
from tests.support.earthquake_pages import earthquake_page, events_of_pages, walk_earthquakes
from tests.support.earthquake_samples import put_raw, quake, scan_all, store
from tests.support.served import NOON, Answer, Served


@pytest.fixture
def store_options(request: pytest.FixtureRequest, store_options: StoreOptions) -> StoreOptions:
    """Return the real month's options for a test with the fixture `november`, else those of the test's own tables."""
    if "november" in request.fixturenames:
        options: StoreOptions = request.getfixturevalue("november")
        return options
    return store_options


# Days without events are skipped


async def count_all_days(served: Served) -> None:
    """Count the stored events, so that all days are complete."""
    await StatisticsRebuild(served.store, served.clock).all_days()


def call_count(answer: Answer) -> int:
    return len(answer.calls)


YEARS = '{ earthquakes(from: "%s", to: "%s", minMagnitude: %s) { nodes { eventId } } }'


async def test_five_empty_years_cost_at_most_twenty_reads(served: Served) -> None:
    await count_all_days(served)

    answer = await served.ask(YEARS % ("2011-01-01T00:00:00Z", "2016-01-01T00:00:00Z", 0))

    assert answer.data == {"earthquakes": {"nodes": []}}
    assert call_count(answer) <= 20


async def test_the_longest_window_costs_at_most_twenty_reads_for_a_single_event(served: Served) -> None:
    await store(
        served, quake("old", timedelta(days=3_659), magnitude=7.0), quake("weak", timedelta(days=700), magnitude=-1.0)
    )
    await count_all_days(served)
    start, end = NOON - timedelta(days=3_660), NOON

    answer = await served.ask(YEARS % (start.isoformat(), end.isoformat(), 0))

    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "old"}]}}
    assert call_count(answer) <= 20


async def test_days_with_incomplete_statistics_are_read(served: Served) -> None:
    await put_raw(served, "theirs", NOON - timedelta(days=60))
    rebuild = StatisticsRebuild(served.store, served.clock)
    today = day_bucket(NOON)
    await rebuild.days([today])

    answer = await served.ask(YEARS % ((NOON - timedelta(days=90)).isoformat(), NOON.isoformat(), 0))

    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "theirs"}]}}


async def test_no_day_is_skipped_while_the_consumer_lags(served: Served) -> None:
    await count_all_days(served)
    await put_raw(served, "theirs", NOON - timedelta(days=60))
    window = ((NOON - timedelta(days=90)).isoformat(), NOON.isoformat(), 0)

    skipped = await served.ask(YEARS % window)
    served.clock.forward(minutes=4)
    read = await served.ask(YEARS % window)

    assert skipped.data == {"earthquakes": {"nodes": []}}
    assert read.data == {"earthquakes": {"nodes": [{"eventId": "theirs"}]}}


async def test_an_event_that_was_ingested_is_found_before_it_is_counted(served: Served) -> None:
    await count_all_days(served)
    await store(served, quake("ours", timedelta(days=60)), quake("strong", timedelta(days=60), magnitude=6.5))

    found = await earthquake_page(served, start=(NOON - timedelta(days=90)).isoformat())
    strong = await earthquake_page(served, start=(NOON - timedelta(days=90)).isoformat(), least=6)

    assert sorted(found.events) == ["ours", "strong"]
    assert strong.events == ["strong"]


@pytest.mark.parametrize("kind", ["OTHER", "ANY"])
async def test_a_blast_that_was_ingested_is_found_before_it_is_counted(served: Served, kind: str) -> None:
    await count_all_days(served)
    await store(served, quake("quake", timedelta(days=60)), quake("blast", timedelta(days=60), type="quarry blast"))
    await store(served, quake("strong", timedelta(days=60), magnitude=6.5, type="explosion"))

    found = await earthquake_page(served, start=(NOON - timedelta(days=90)).isoformat(), kind=kind, least=6)

    assert found.events == ["strong"]


async def test_days_with_earthquakes_only_are_skipped_for_other_events(served: Served) -> None:
    quakes = [quake(f"q{day:03}", timedelta(days=day), magnitude=5.0) for day in range(300)]
    blasts = [quake(f"b{day}", timedelta(days=day), magnitude=1.5, type="quarry blast") for day in (100, 200)]
    await served.store().write_all(EARTHQUAKES, puts=[event.item() for event in (*quakes, *blasts)])
    await count_all_days(served)
    start = (NOON - timedelta(days=300)).isoformat()

    found = await earthquake_page(served, start=start, kind="OTHER")
    strong = await earthquake_page(served, start=start, kind="OTHER", least=2)

    assert (found.events, strong.events) == (["b100", "b200"], [])
    assert found.calls <= 20
    assert strong.calls <= 20


async def test_statistics_without_the_bound_of_other_events_skip_none_of_them(served: Served) -> None:
    """Statistics from before the bound was introduced contain only the counts of other events."""
    blast = quake("blast", timedelta(days=60), type="quarry blast")
    await served.store().write_all(EARTHQUAKES, puts=[blast.item()])
    await count_all_days(served)
    (item,) = [item for item in await scan_all(served) if str(item["pk"]).startswith("STATISTICS#")]
    await served.store().write_all(EARTHQUAKES, puts=[{k: v for k, v in item.items() if k != "greatestOther"}])

    found = await earthquake_page(
        served, start=(NOON - timedelta(days=90)).isoformat(), kind="OTHER", least=blast.magnitude
    )

    assert item["greatestOther"] == blast.magnitude
    assert found.events == ["blast"]


KINDS = {"EARTHQUAKE": ("earthquake",), "OTHER": ("quarry blast",), "ANY": ("earthquake", "quarry blast")}


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(6))
async def test_skipping_days_changes_no_list_of_any_magnitude_and_page_size(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    events = [
        quake(
            f"us{number}",
            timedelta(days=rng.choice(range(0, 900, rng.choice((1, 7, 50)))), minutes=number),
            magnitude=round(min(9.0, 1 + rng.expovariate(1.2)), 1),
            type=rng.choice(("earthquake", "earthquake", "quarry blast")),
        )
        for number in range(120)
    ]
    await served.store().write_all(EARTHQUAKES, puts=[event.item() for event in events])
    await count_all_days(served)
    for _ in range(5):
        kind = rng.choice([*KINDS])
        least, size = rng.choice((None, 1.0, 2.5, 3.0, 4.2, 6.0)), rng.choice((1, 3, 10, 40))
        start = NOON - timedelta(days=rng.randrange(20, 1000))
        end = start + timedelta(days=rng.randrange(10, 900), seconds=rng.randrange(90_000))
        window: dict[str, Any] = {"start": start.isoformat(), "end": end.isoformat(), "least": least, "kind": kind}
        expected = [
            event.event_id
            for event in sorted(events, key=lambda event: -event.occurred_at_ms)
            if epoch_ms(start) <= event.occurred_at_ms <= epoch_ms(end)
            and (least is None or event.magnitude >= least)
            and event.type in KINDS[kind]
        ]

        forward = await walk_earthquakes(served, size, **window)
        back = await walk_earthquakes(served, size, backward=True, **window)

        assert events_of_pages(forward) == expected
        assert events_of_pages(back, backward=True) == expected
        assert all(len(one.events) == size for one in (*forward[:-1], *back[:-1]))
