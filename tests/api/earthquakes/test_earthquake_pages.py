"""Paging through earthquakes over day buckets: the order, the cursors, and what it costs."""

import asyncio
import gzip
import json
import random
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
from datastore.earthquakes.events import Earthquake, event_item
from datastore.earthquakes.statistics import StatisticsRebuild
from datastore.infrastructure import tables
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.identity import Role
from datastore.model.timestamps import day_bucket, epoch_ms, from_epoch_ms
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.earthquakes.usgs_feed import read_events
from pipelines.earthquakes.usgs_fetch import open_source
from tests.support.earthquake_samples import put_raw, quake, scan_all, store
from tests.support.served import NOON, REAL_DATA, Answer, Served, queries_at_once
from tests.support.store_engines import Engines

MONTH = REAL_DATA / "usgs" / "all_month_2019-11.derived-from-csv.geojson.gz"
PAGE = """
query (
  $start: DateTime, $end: DateTime, $least: Float, $kind: SeismicEventKind! = ANY
  $first: Int, $after: String, $last: Int, $before: String
) {
  earthquakes(
    start: $start, end: $end, minMagnitude: $least, kind: $kind
    first: $first, after: $after, last: $last, before: $before
  ) {
    nodes { eventId occurredAt magnitude }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  }
}
"""
LOGS = "query ($after: String) { requestLogs(after: $after) { nodes { route } } }"


@dataclass(frozen=True)
class Page:
    """A page as a client got it, and what DynamoDB was asked for it."""

    events: list[str]
    more: bool
    cursor: str | None
    calls: int
    days: int
    units: float


async def page(served: Served, *, backward: bool = False, **variables: Any) -> Page:
    answer = await served.ask(PAGE, variables)
    assert answer.errors is None, answer.errors
    found = answer.data["earthquakes"]
    info = found["pageInfo"]
    return Page(
        [node["eventId"] for node in found["nodes"]],
        info["hasPreviousPage" if backward else "hasNextPage"],
        info["startCursor" if backward else "endCursor"],
        len(answer.calls),
        len(days_of(answer)),
        sum(call.units for call in answer.calls),
    )


def days_of(answer: Answer) -> set[str]:
    """Return the days that the query read, besides their statistics."""
    read = [call for call in answer.calls if call.index]
    return {call.request["ExpressionAttributeValues"][":partition"]["S"] for call in read}


async def walk(served: Served, size: int, *, backward: bool = False, **arguments: Any) -> list[Page]:
    """All pages of a list, in the order they were read."""
    count, position = ("last", "before") if backward else ("first", "after")
    pages: list[Page] = []
    while not pages or pages[-1].more:
        place = {position: pages[-1].cursor} if pages else {}
        pages.append(await page(served, backward=backward, **{count: size}, **place, **arguments))
    return pages


def events_of(pages: list[Page], *, backward: bool = False) -> list[str]:
    """The list that the pages make, newest first."""
    return [event for one in (reversed(pages) if backward else pages) for event in one.events]


# A real month


@pytest.fixture(scope="module")
def november() -> Iterator[StoreOptions]:
    """Tables with a real month, loaded once, on an engine of their own."""
    if not MONTH.is_file():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    engines = Engines()
    options = StoreOptions(store=engines.next(), prefix=f"november{uuid.uuid4().hex[:8]}__")
    try:
        asyncio.run(load(options))
        yield options
    finally:
        engines.close()


async def load(options: StoreOptions) -> None:
    async with open_database(options) as database:
        await tables.create(database.admin(), [replace(EARTHQUAKES, stream=None)], options.prefix)
        async with aiohttp.ClientSession() as session, open_source(str(MONTH), session=session) as source:
            read = [event async for event in read_events(source.chunks(), ingested_at_ms=0)]
        store = Store(database.client, prefix=options.prefix, deadline=Deadline(100), token=lambda: "token")
        await store.write_all(EARTHQUAKES, puts=[event_item(event) for event in read if isinstance(event, Earthquake)])


@pytest.fixture
def store_options(request: pytest.FixtureRequest, store_options: StoreOptions) -> StoreOptions:
    """The real month for a test that asks for it, tables of its own for any other."""
    if "november" in request.fixturenames:
        options: StoreOptions = request.getfixturevalue("november")
        return options
    return store_options


@dataclass(frozen=True)
class Plain:
    """The same month as plain code reads it."""

    moments: dict[str, int]
    start: datetime
    end: datetime

    @property
    def window(self) -> dict[str, Any]:
        return {"start": self.start.isoformat(), "end": self.end.isoformat()}


@cache
def plainly(least: float | None) -> Plain:
    features = json.loads(gzip.decompress(MONTH.read_bytes()))["features"]
    end = from_epoch_ms(max(each["properties"]["time"] for each in features))
    start = end - timedelta(days=30)
    within = [each for each in features if epoch_ms(start) <= each["properties"]["time"] <= epoch_ms(end)]
    strong = [each for each in within if least is None or each["properties"]["mag"] >= least]
    return Plain({each["id"]: each["properties"]["time"] for each in strong}, start, end)


def needed(moments: list[int], size: int, end: datetime, start: datetime) -> Iterator[int]:
    """For each page the days from where it begins to its last event and the one after, which tells of a next page."""
    position = epoch_ms(end)
    for first in range(0, len(moments), size):
        reached = moments[first + size] if first + size < len(moments) else epoch_ms(start)
        yield 1 + (from_epoch_ms(position).date() - from_epoch_ms(reached).date()).days
        position = moments[min(first + size, len(moments)) - 1]


@pytest.mark.parametrize(
    ("least", "size", "most_calls", "most_units"),
    [
        (None, 100, 2, 4.5),
        (2.5, 25, 10, 21),
        (4.5, 7, 12, 34.5),
        (6, 1, 15, 138),
    ],
)
async def test_every_page_size_and_direction_gives_the_list_that_plain_code_gives(
    november: StoreOptions, served: Served, least: float | None, size: int, most_calls: int, most_units: float
) -> None:
    plain = plainly(least)

    forward = await walk(served, size, least=least, **plain.window)
    back = await walk(served, size, backward=True, least=least, **plain.window)

    events = events_of(forward)
    moments = [plain.moments[event] for event in events]
    assert sorted(events) == sorted(plain.moments)
    assert moments == sorted(moments, reverse=True)
    assert events_of(back, backward=True) == events
    assert all(len(one.events) == size for one in (*forward[:-1], *back[:-1]))
    limits = [max(1, 2 * (days - 1)) for days in needed(moments, size, plain.end, plain.start)]
    assert [one for one, limit in zip(forward, limits, strict=True) if one.days > limit] == []
    assert max(one.calls for one in (*forward, *back)) <= most_calls
    assert max(one.units for one in (*forward, *back)) <= most_units


async def test_small_pages_of_a_real_month_are_the_beginning_of_the_same_list(
    november: StoreOptions, served: Served
) -> None:
    plain = plainly(None)
    whole = await page(served, first=100, **plain.window)

    pages = [await page(served, first=7, **plain.window)]
    while len(pages) < 12:
        pages.append(await page(served, first=7, after=pages[-1].cursor, **plain.window))

    assert events_of(pages) == whole.events[: 12 * 7]
    assert {one.calls for one in pages} == {1}


async def test_real_events_of_one_moment_keep_their_order_on_every_page(november: StoreOptions, served: Served) -> None:
    plain = plainly(None)
    twins = [moment for moment, count in Counter(plain.moments.values()).items() if count > 1]

    for moment in twins:
        exactly: dict[str, Any] = {"start": from_epoch_ms(moment).isoformat(), "end": from_epoch_ms(moment).isoformat()}
        together = await walk(served, 25, **exactly)
        one_by_one = await walk(served, 1, **exactly)
        back = await walk(served, 1, backward=True, **exactly)

        assert len(together[0].events) == 2
        assert events_of(together) == events_of(one_by_one) == events_of(back, backward=True)
    assert twins


# Days and what they cost


async def test_a_page_within_one_day_is_one_query(served: Served) -> None:
    await store(served, *(quake(f"us{number}", timedelta(minutes=number)) for number in range(40)))

    first = await page(served)
    second = await page(served, first=10, after=first.cursor)

    assert [first.calls, second.calls] == [1, 1]
    assert first.events + second.events == [f"us{number}" for number in range(35)]


async def test_empty_days_are_read_ahead_side_by_side(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(served, quake("us1", timedelta(days=29)), quake("weak", timedelta(days=3), magnitude=1.0))
    waves = queries_at_once(served, monkeypatch)

    found = await page(served, least=4)

    assert (found.events, found.calls, found.days) == (["us1"], 33, 31)  # two reads for missing statistics
    assert max(waves) == 15


async def test_a_day_cut_short_by_a_cursor_does_not_make_many_be_read_ahead(served: Served) -> None:
    for day in range(10):
        await store(served, *(quake(f"us{day}-{n}", timedelta(days=day, minutes=n)) for n in range(12)))

    first = await page(served, first=10)
    second = await page(served, first=10, after=first.cursor)

    assert (first.calls, first.days) == (1, 1)
    assert (second.calls, second.days) == (2, 2)
    assert second.events == ["us0-10", "us0-11", *(f"us1-{n}" for n in range(8))]


async def test_a_window_ends_where_it_is_told_to_the_millisecond(served: Served) -> None:
    await store(served, *(quake(f"us{ms}", timedelta(milliseconds=ms)) for ms in range(6)))

    found = await page(
        served,
        start=(NOON - timedelta(milliseconds=4)).isoformat(),
        end=(NOON - timedelta(milliseconds=2)).astimezone().isoformat(),
    )

    assert found.events == ["us2", "us3", "us4"]


async def test_events_of_one_moment_are_paged_without_loss_in_one_order(served: Served) -> None:
    await store(served, *(quake(f"us{number}") for number in (3, 1, 4, 5, 9, 2, 6)))
    whole = await page(served)

    forward = await walk(served, 2)
    back = await walk(served, 3, backward=True)

    assert sorted(whole.events) == ["us1", "us2", "us3", "us4", "us5", "us6", "us9"]
    assert events_of(forward) == events_of(back, backward=True) == whole.events


# Cursors


async def test_a_cursor_altered_anywhere_is_refused(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    cursor = (await page(served, first=1)).cursor
    assert cursor is not None
    altered = [cursor[:at] + ("B" if cursor[at] == "A" else "A") + cursor[at + 1 :] for at in range(len(cursor))]
    altered += ["", cursor[:-1], cursor + "A", cursor + "=", cursor + "\n", f" {cursor}", cursor * 40, "ü", "🌋"]

    codes = [(await served.ask(PAGE, {"after": one})).codes for one in altered]

    assert codes == [["BAD_CURSOR"]] * len(altered)


async def test_a_cursor_is_good_for_its_own_list_only(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    cursor = (await page(served, first=1, least=4)).cursor
    other_arguments: list[dict[str, Any]] = [
        {},
        {"least": 4.1},
        {"least": 4, "end": NOON.isoformat()},
        {"least": 4, "start": (NOON - timedelta(days=30)).isoformat()},
    ]

    refused = [(await served.ask(PAGE, {"after": cursor, **given})).codes for given in other_arguments]
    logs = await served.ask(LOGS, {"after": cursor}, user="root", role=Role.ADMIN)
    own = await page(served, first=5, after=cursor, least=4)

    assert refused == [["BAD_CURSOR"]] * 4
    assert logs.codes == ["BAD_CURSOR"]
    assert own.events == ["us2"]


async def test_paging_goes_on_while_the_clock_does_also_over_midnight(served: Served) -> None:
    await store(served, *(quake(f"us{hour}", timedelta(hours=hour)) for hour in range(30)))
    pages = [await page(served, first=7)]

    while pages[-1].more:
        served.clock.forward(hours=5, microseconds=1)
        await store(served, quake(f"new{len(pages)}", NOON - served.clock.now))
        pages.append(await page(served, first=7, after=pages[-1].cursor))

    assert served.clock.now.date() > NOON.date()
    assert events_of(pages) == [f"us{hour}" for hour in range(30)]


async def test_paging_backward_meets_what_came_meanwhile(served: Served) -> None:
    await store(served, quake("us1"), quake("us2", timedelta(hours=1)))
    oldest = await page(served, last=1, backward=True)
    served.clock.forward(hours=20)
    await store(served, quake("new", -timedelta(hours=19)))

    newer = await page(served, last=5, before=oldest.cursor, backward=True)

    assert (oldest.events, newer.events) == (["us2"], ["new", "us1"])


@pytest.mark.parametrize("passed", [timedelta(hours=2), timedelta(days=3)])
async def test_a_window_that_moved_past_the_cursor_has_nothing_more_forward_and_all_backward(
    served: Served, passed: timedelta
) -> None:
    old = [quake(f"old{number}", timedelta(days=29, hours=23)) for number in (1, 2)]
    await store(served, quake("young", timedelta(days=20)), *old)
    first = await page(served, first=2)
    served.clock.forward(seconds=passed.total_seconds())

    onward = await served.ask(PAGE, {"first": 2, "after": first.cursor})
    back = await page(served, last=5, before=first.cursor, backward=True)

    assert first.more
    assert onward.errors is None
    assert onward.data["earthquakes"] == {
        "nodes": [],
        "pageInfo": {"hasNextPage": False, "hasPreviousPage": True, "startCursor": None, "endCursor": None},
    }
    assert onward.made == []
    assert (back.events, back.more) == (["young"], False)


async def test_a_cursor_newer_than_the_window_starts_it_anew(served: Served) -> None:
    """Another process's clock may be ahead of ours."""
    await store(served, quake("us1"), quake("us2", timedelta(hours=30)))
    first = await page(served, first=1)
    served.clock.forward(days=-1)

    onward = await page(served, after=first.cursor)
    back = await page(served, before=first.cursor, backward=True)

    assert (onward.events, onward.more) == (["us2"], False)
    assert (back.events, back.more, back.calls) == ([], False, 0)


# Days without events are skipped


async def complete(served: Served) -> None:
    """Count the stored events, so that all days are complete."""
    await StatisticsRebuild(served.store, served.clock).all_days()


def reads(answer: Answer) -> int:
    return len(answer.calls)


YEARS = '{ earthquakes(start: "%s", end: "%s", minMagnitude: %s) { nodes { eventId } } }'


async def test_five_empty_years_take_at_most_twenty_reads(served: Served) -> None:
    await complete(served)

    answer = await served.ask(YEARS % ("2011-01-01T00:00:00Z", "2016-01-01T00:00:00Z", 0))

    assert answer.data == {"earthquakes": {"nodes": []}}
    assert reads(answer) <= 20


async def test_the_longest_window_takes_at_most_twenty_reads_to_find_a_single_event(served: Served) -> None:
    await store(
        served, quake("old", timedelta(days=3_659), magnitude=7.0), quake("weak", timedelta(days=700), magnitude=-1.0)
    )
    await complete(served)
    start, end = NOON - timedelta(days=3_660), NOON

    answer = await served.ask(YEARS % (start.isoformat(), end.isoformat(), 0))

    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "old"}]}}
    assert reads(answer) <= 20


async def test_days_whose_statistics_are_not_complete_are_read(served: Served) -> None:
    await put_raw(served, "theirs", NOON - timedelta(days=60))
    rebuild = StatisticsRebuild(served.store, served.clock)
    today = day_bucket(NOON)
    await rebuild.days([today])

    answer = await served.ask(YEARS % ((NOON - timedelta(days=90)).isoformat(), NOON.isoformat(), 0))

    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "theirs"}]}}


async def test_nothing_is_skipped_while_the_consumer_does_not_keep_up(served: Served) -> None:
    await complete(served)
    await put_raw(served, "theirs", NOON - timedelta(days=60))
    window = ((NOON - timedelta(days=90)).isoformat(), NOON.isoformat(), 0)

    skipped = await served.ask(YEARS % window)
    served.clock.forward(minutes=4)
    read = await served.ask(YEARS % window)

    assert skipped.data == {"earthquakes": {"nodes": []}}
    assert read.data == {"earthquakes": {"nodes": [{"eventId": "theirs"}]}}


async def test_an_event_that_was_ingested_is_found_before_it_is_counted(served: Served) -> None:
    await complete(served)
    await store(served, quake("ours", timedelta(days=60)), quake("strong", timedelta(days=60), magnitude=6.5))

    found = await page(served, start=(NOON - timedelta(days=90)).isoformat())
    strong = await page(served, start=(NOON - timedelta(days=90)).isoformat(), least=6)

    assert sorted(found.events) == ["ours", "strong"]
    assert strong.events == ["strong"]


@pytest.mark.parametrize("kind", ["OTHER", "ANY"])
async def test_a_blast_that_was_ingested_is_found_before_it_is_counted(served: Served, kind: str) -> None:
    await complete(served)
    await store(served, quake("quake", timedelta(days=60)), quake("blast", timedelta(days=60), type="quarry blast"))
    await store(served, quake("strong", timedelta(days=60), magnitude=6.5, type="explosion"))

    found = await page(served, start=(NOON - timedelta(days=90)).isoformat(), kind=kind, least=6)

    assert found.events == ["strong"]


async def test_days_of_earthquakes_alone_are_skipped_for_other_events(served: Served) -> None:
    quakes = [quake(f"q{day:03}", timedelta(days=day), magnitude=5.0) for day in range(300)]
    blasts = [quake(f"b{day}", timedelta(days=day), magnitude=1.5, type="quarry blast") for day in (100, 200)]
    await served.store().write_all(EARTHQUAKES, puts=[event_item(event) for event in (*quakes, *blasts)])
    await complete(served)
    start = (NOON - timedelta(days=300)).isoformat()

    found = await page(served, start=start, kind="OTHER")
    strong = await page(served, start=start, kind="OTHER", least=2)

    assert (found.events, strong.events) == (["b100", "b200"], [])
    assert found.calls <= 20
    assert strong.calls <= 20


async def test_statistics_without_the_bound_of_other_events_skip_none_of_them(served: Served) -> None:
    """Statistics from before the bound was introduced contain only the counts of other events."""
    blast = quake("blast", timedelta(days=60), type="quarry blast")
    await served.store().write_all(EARTHQUAKES, puts=[event_item(blast)])
    await complete(served)
    (item,) = [item for item in await scan_all(served) if str(item["pk"]).startswith("STATISTICS#")]
    await served.store().write_all(EARTHQUAKES, puts=[{k: v for k, v in item.items() if k != "greatestOther"}])

    found = await page(served, start=(NOON - timedelta(days=90)).isoformat(), kind="OTHER", least=blast.magnitude)

    assert item["greatestOther"] == blast.magnitude
    assert found.events == ["blast"]


KINDS = {"EARTHQUAKE": ("earthquake",), "OTHER": ("quarry blast",), "ANY": ("earthquake", "quarry blast")}


@pytest.mark.parametrize("seed", range(6))
async def test_skipping_days_leaves_the_list_of_every_magnitude_and_page_size_as_it_is(
    served: Served, seed: int
) -> None:
    chance = random.Random(seed)
    events = [
        quake(
            f"us{number}",
            timedelta(days=chance.choice(range(0, 900, chance.choice((1, 7, 50)))), minutes=number),
            magnitude=round(min(9.0, 1 + chance.expovariate(1.2)), 1),
            type=chance.choice(("earthquake", "earthquake", "quarry blast")),
        )
        for number in range(120)
    ]
    await served.store().write_all(EARTHQUAKES, puts=[event_item(event) for event in events])
    await complete(served)
    for _ in range(5):
        kind = chance.choice([*KINDS])
        least, size = chance.choice((None, 1.0, 2.5, 3.0, 4.2, 6.0)), chance.choice((1, 3, 10, 40))
        start = NOON - timedelta(days=chance.randrange(20, 1000))
        end = start + timedelta(days=chance.randrange(10, 900), seconds=chance.randrange(90_000))
        window: dict[str, Any] = {"start": start.isoformat(), "end": end.isoformat(), "least": least, "kind": kind}
        wanted = [
            event.event_id
            for event in sorted(events, key=lambda event: -event.occurred_at_ms)
            if epoch_ms(start) <= event.occurred_at_ms <= epoch_ms(end)
            and (least is None or event.magnitude >= least)
            and event.type in KINDS[kind]
        ]

        forward = await walk(served, size, **window)
        back = await walk(served, size, backward=True, **window)

        assert events_of(forward) == wanted
        assert events_of(back, backward=True) == wanted
        assert all(len(one.events) == size for one in (*forward[:-1], *back[:-1]))
