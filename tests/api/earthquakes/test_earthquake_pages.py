"""Paging through earthquakes over day buckets: the order, the cursors, and the cost."""

import asyncio
import gzip
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import aiohttp
import pytest

from datastore.database import StoreOptions, open_database
from datastore.earthquakes.events import Earthquake
from datastore.infrastructure import tables
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.identity import Role
from datastore.model.timestamps import epoch_ms, from_epoch_ms
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.earthquakes.usgs_feed import read_events
from pipelines.earthquakes.usgs_fetch import open_source
from tests.support.earthquake_pages import PAGE, earthquake_page, events_of_pages, walk_earthquakes
from tests.support.earthquake_samples import quake, store
from tests.support.served import NOON, REAL_DATA, Served, queries_at_once
from tests.support.store_engines import Engines
from tests.support.usgs_samples import spooled

MONTH = REAL_DATA / "usgs" / "all_month_2019-11.derived-from-csv.geojson.gz"

LOGS = "query ($after: String) { requestLogs(after: $after) { nodes { route } } }"


# A real month


@pytest.fixture(scope="module")
def november() -> Iterator[StoreOptions]:
    """Yield the options of tables with a real month, loaded once, on a separate engine."""
    if not MONTH.is_file():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    engines = Engines()
    options = StoreOptions(store=engines.next(), prefix=f"november{uuid.uuid4().hex[:8]}__")
    try:
        asyncio.run(store_month(options))
        yield options
    finally:
        engines.close()


async def store_month(options: StoreOptions) -> None:
    async with open_database(options) as database:
        await tables.create(database.client, [replace(EARTHQUAKES, stream=None)], options.prefix)
        async with aiohttp.ClientSession() as session, open_source(str(MONTH), session=session) as source:
            read = [event async for event in read_events(await spooled(source), ingested_at_ms=0)]
        store = Store(
            database.client, prefix=options.prefix, deadline=Deadline(100), token=lambda: "token", now=lambda: NOON
        )
        await store.write_all(EARTHQUAKES, puts=[event.item() for event in read if isinstance(event, Earthquake)])


@pytest.fixture
def store_options(request: pytest.FixtureRequest, store_options: StoreOptions) -> StoreOptions:
    """Return the real month's options for a test with the fixture `november`, else those of the test's own tables."""
    if "november" in request.fixturenames:
        options: StoreOptions = request.getfixturevalue("november")
        return options
    return store_options


@dataclass(frozen=True)
class PlainMonth:
    """The same month as plain Python reads it from the file."""

    moments: dict[str, int]
    start: datetime
    end: datetime

    @property
    def window(self) -> dict[str, Any]:
        return {"start": self.start.isoformat(), "end": self.end.isoformat()}


@cache
def read_month_plainly(least: float | None) -> PlainMonth:
    features = json.loads(gzip.decompress(MONTH.read_bytes()))["features"]
    end = from_epoch_ms(max(each["properties"]["time"] for each in features))
    start = end - timedelta(days=30)
    within = [each for each in features if epoch_ms(start) <= each["properties"]["time"] <= epoch_ms(end)]
    strong = [each for each in within if least is None or each["properties"]["mag"] >= least]
    return PlainMonth({each["id"]: each["properties"]["time"] for each in strong}, start, end)


def days_needed(moments: list[int], size: int, end: datetime, start: datetime) -> Iterator[int]:
    """Yield the number of days that each page must read: from its start to its last event and the event after.

    The event after shows whether there is a next page.
    """
    position = epoch_ms(end)
    for first in range(0, len(moments), size):
        reached = moments[first + size] if first + size < len(moments) else epoch_ms(start)
        yield 1 + (from_epoch_ms(position).date() - from_epoch_ms(reached).date()).days
        position = moments[min(first + size, len(moments)) - 1]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("least", "size", "most_calls", "most_units"),
    [
        (None, 100, 2, 4.5),
        (2.5, 25, 10, 21),
        (4.5, 7, 12, 34.5),
        (6, 1, 15, 138),
    ],
)
async def test_every_page_size_and_direction_gives_the_list_of_plain_code(
    november: StoreOptions, served: Served, least: float | None, size: int, most_calls: int, most_units: float
) -> None:
    plain = read_month_plainly(least)

    forward = await walk_earthquakes(served, size, least=least, **plain.window)
    back = await walk_earthquakes(served, size, backward=True, least=least, **plain.window)

    events = events_of_pages(forward)
    moments = [plain.moments[event] for event in events]
    assert sorted(events) == sorted(plain.moments)
    assert moments == sorted(moments, reverse=True)
    assert events_of_pages(back, backward=True) == events
    assert all(len(page.events) == size for page in (*forward[:-1], *back[:-1]))
    limits = [max(1, 2 * (days - 1)) for days in days_needed(moments, size, plain.end, plain.start)]
    assert [page for page, limit in zip(forward, limits, strict=True) if page.days > limit] == []
    assert max(page.calls for page in (*forward, *back)) <= most_calls
    assert max(page.units for page in (*forward, *back)) <= most_units


@pytest.mark.proof
async def test_small_pages_of_a_real_month_are_the_beginning_of_the_same_list(
    november: StoreOptions, served: Served
) -> None:
    plain = read_month_plainly(None)
    whole = await earthquake_page(served, first=100, **plain.window)

    pages = [await earthquake_page(served, first=7, **plain.window)]
    while len(pages) < 12:
        pages.append(await earthquake_page(served, first=7, after=pages[-1].cursor, **plain.window))

    assert events_of_pages(pages) == whole.events[: 12 * 7]
    assert {one.calls for one in pages} == {1}


@pytest.mark.proof
async def test_real_events_of_the_same_time_keep_their_order_on_every_page(
    november: StoreOptions, served: Served
) -> None:
    plain = read_month_plainly(None)
    twins = [moment for moment, count in Counter(plain.moments.values()).items() if count > 1]

    for moment in twins:
        exactly: dict[str, Any] = {"start": from_epoch_ms(moment).isoformat(), "end": from_epoch_ms(moment).isoformat()}
        together = await walk_earthquakes(served, 25, **exactly)
        one_by_one = await walk_earthquakes(served, 1, **exactly)
        back = await walk_earthquakes(served, 1, backward=True, **exactly)

        assert len(together[0].events) == 2
        assert events_of_pages(together) == events_of_pages(one_by_one) == events_of_pages(back, backward=True)
    assert twins


# Days and their cost


async def test_a_page_within_one_day_is_one_query(served: Served) -> None:
    await store(served, *(quake(f"us{number}", timedelta(minutes=number)) for number in range(40)))

    first = await earthquake_page(served)
    second = await earthquake_page(served, first=10, after=first.cursor)

    assert [first.calls, second.calls] == [1, 1]
    assert first.events + second.events == [f"us{number}" for number in range(35)]


async def test_empty_days_are_read_ahead_concurrently(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(served, quake("us1", timedelta(days=29)), quake("weak", timedelta(days=3), magnitude=1.0))
    waves = queries_at_once(served, monkeypatch)

    found = await earthquake_page(served, least=4)

    assert (found.events, found.calls, found.days) == (["us1"], 33, 31)  # two reads for missing statistics
    assert max(waves) == 15


async def test_a_day_that_a_cursor_splits_causes_no_long_read_ahead(served: Served) -> None:
    for day in range(10):
        await store(served, *(quake(f"us{day}-{n}", timedelta(days=day, minutes=n)) for n in range(12)))

    first = await earthquake_page(served, first=10)
    second = await earthquake_page(served, first=10, after=first.cursor)

    assert (first.calls, first.days) == (1, 1)
    assert (second.calls, second.days) == (2, 2)
    assert second.events == ["us0-10", "us0-11", *(f"us1-{n}" for n in range(8))]


async def test_a_window_is_exact_to_the_millisecond(served: Served) -> None:
    await store(served, *(quake(f"us{ms}", timedelta(milliseconds=ms)) for ms in range(6)))

    found = await earthquake_page(
        served,
        start=(NOON - timedelta(milliseconds=4)).isoformat(),
        end=(NOON - timedelta(milliseconds=2)).astimezone().isoformat(),
    )

    assert found.events == ["us2", "us3", "us4"]


async def test_events_of_the_same_time_are_paged_without_loss_in_one_order(served: Served) -> None:
    await store(served, *(quake(f"us{number}") for number in (3, 1, 4, 5, 9, 2, 6)))
    whole = await earthquake_page(served)

    forward = await walk_earthquakes(served, 2)
    back = await walk_earthquakes(served, 3, backward=True)

    assert sorted(whole.events) == ["us1", "us2", "us3", "us4", "us5", "us6", "us9"]
    assert events_of_pages(forward) == events_of_pages(back, backward=True) == whole.events


# Cursors


async def test_a_cursor_altered_anywhere_is_refused(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    cursor = (await earthquake_page(served, first=1)).cursor
    assert cursor is not None
    altered = [cursor[:at] + ("B" if cursor[at] == "A" else "A") + cursor[at + 1 :] for at in range(len(cursor))]
    altered += ["", cursor[:-1], cursor + "A", cursor + "=", cursor + "\n", f" {cursor}", cursor * 40, "ü", "🌋"]

    codes = [(await served.ask(PAGE, {"after": text})).codes for text in altered]

    assert codes == [["BAD_CURSOR"]] * len(altered)


async def test_a_cursor_is_valid_for_its_own_list_only(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    cursor = (await earthquake_page(served, first=1, least=4)).cursor
    other_arguments: list[dict[str, Any]] = [
        {},
        {"least": 4.1},
        {"least": 4, "end": NOON.isoformat()},
        {"least": 4, "start": (NOON - timedelta(days=30)).isoformat()},
    ]

    refused = [(await served.ask(PAGE, {"after": cursor, **given})).codes for given in other_arguments]
    logs = await served.ask(LOGS, {"after": cursor}, user="root", role=Role.ADMIN)
    own = await earthquake_page(served, first=5, after=cursor, least=4)

    assert refused == [["BAD_CURSOR"]] * 4
    assert logs.codes == ["BAD_CURSOR"]
    assert own.events == ["us2"]


async def test_paging_continues_while_the_clock_runs_also_over_midnight(served: Served) -> None:
    await store(served, *(quake(f"us{hour}", timedelta(hours=hour)) for hour in range(30)))
    pages = [await earthquake_page(served, first=7)]

    while pages[-1].more:
        served.clock.forward(hours=5, microseconds=1)
        await store(served, quake(f"new{len(pages)}", NOON - served.clock.now))
        pages.append(await earthquake_page(served, first=7, after=pages[-1].cursor))

    assert served.clock.now.date() > NOON.date()
    assert events_of_pages(pages) == [f"us{hour}" for hour in range(30)]


async def test_paging_backward_finds_events_that_came_meanwhile(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    oldest = await earthquake_page(served, last=1, backward=True)
    served.clock.forward(hours=20)
    await store(served, quake("new", -timedelta(hours=19)))

    newer = await earthquake_page(served, last=5, before=oldest.cursor, backward=True)

    assert (oldest.events, newer.events) == (["us2"], ["new", "us1"])


@pytest.mark.parametrize("passed", [timedelta(hours=2), timedelta(days=3)])
async def test_a_cursor_behind_the_moving_window_has_no_next_page_and_all_events_before_it(
    served: Served, passed: timedelta
) -> None:
    old = [quake(f"old{number}", timedelta(days=29, hours=23)) for number in (1, 2)]
    await store(served, quake("young", timedelta(days=20)), *old)
    first = await earthquake_page(served, first=2)
    served.clock.forward(seconds=passed.total_seconds())

    onward = await served.ask(PAGE, {"first": 2, "after": first.cursor})
    back = await earthquake_page(served, last=5, before=first.cursor, backward=True)

    assert first.more
    assert onward.errors is None
    assert onward.data["earthquakes"] == {
        "nodes": [],
        "pageInfo": {"hasNextPage": False, "hasPreviousPage": True, "startCursor": None, "endCursor": None},
    }
    assert onward.made == []
    assert (back.events, back.more) == (["young"], False)


async def test_a_cursor_newer_than_the_window_starts_at_the_window(served: Served) -> None:
    """The clock of the process that issued the cursor may be ahead."""
    await store(served, quake("us1"), quake("us2", timedelta(hours=30)))
    first = await earthquake_page(served, first=1)
    served.clock.forward(days=-1)

    onward = await earthquake_page(served, after=first.cursor)
    back = await earthquake_page(served, before=first.cursor, backward=True)

    assert (onward.events, onward.more) == (["us2"], False)
    assert (back.events, back.more, back.calls) == ([], False, 0)
