"""The estimated cost of earthquake queries, from the daily statistics, compared to their measured cost."""

import asyncio
import itertools
import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.earthquakes.earthquakes import LOG_WRITE_UNITS
from datastore.earthquakes.events import Earthquake
from datastore.earthquakes.statistics import StatisticsRebuild
from datastore.infrastructure import tables
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.session.metering import Deadline
from datastore.session.store import Store
from resolvers.earthquakes.costs import EarthquakeCosts
from server.settings import Settings
from tests.support.earthquake_samples import put_raw, quake
from tests.support.served import NOON, UNBOUGHT, Served
from tests.support.store_engines import Engines

# The costs are measured on a real feed of a month.
pytestmark = pytest.mark.proof

DAYS = 1_100
QUERIES = 90
KINDS = ("EARTHQUAKE", "OTHER", "ANY")
QUERY = """
query (
  $start: DateTime, $end: DateTime, $least: Float, $kind: SeismicEventKind! = EARTHQUAKE, $first: Int, $last: Int
  $order: SortOrder! = DESCENDING
) {
  earthquakes(from: $start, to: $end, minMagnitude: $least, kind: $kind, first: $first, last: $last, order: $order) {
    nodes { eventId occurredAt magnitude place latitude longitude depthKm source ingestedAt }
    pageInfo { hasNextPage }
  }
}
"""


def catalogue(rng: random.Random) -> list[Earthquake]:
    """Return a realistic catalogue: ten times as few events a magnitude higher, quiet days, aftershocks of strong ones.

    One event in a hundred is a quarry blast, of a magnitude below 3.
    """
    events: list[Earthquake] = []
    for day in range(DAYS):
        rate = 10 * rng.lognormvariate(0, 0.5)
        strongest = 0.0
        for _ in range(min(int(rate), 60)):
            strongest = max(strongest, add_earthquake(events, rng, day))
        for _ in range(int(10 ** (strongest - 3.7)) if strongest > 4.8 else 0):
            add_earthquake(events, rng, day)
    return events


def add_earthquake(events: list[Earthquake], rng: random.Random, day: int) -> float:
    magnitude = round(min(8.5, 2 + rng.expovariate(math.log(10))), 1)
    before = timedelta(days=day, milliseconds=rng.randrange(86_400_000))
    place = "12 km NNE of A Place of Middling Length, Somewhere"
    changes: dict[str, Any] = {"magnitude": magnitude, "place": place}
    if magnitude < 3 and rng.random() < 0.01:
        changes["type"] = "quarry blast"
    events.append(quake(f"us7000{len(events):04}", before, **changes))
    return magnitude


@pytest.fixture(scope="module")
def years() -> Iterator[StoreOptions]:
    """Yield the options of tables with a catalogue of three years, loaded and counted once, on a separate engine."""
    engines = Engines()
    options = StoreOptions(store=engines.next(), prefix=f"years{uuid.uuid4().hex[:8]}__")
    try:
        asyncio.run(store_catalogue(options))
        yield options
    finally:
        engines.close()


async def store_catalogue(options: StoreOptions) -> None:
    async with open_database(options) as database:
        await tables.create(database.client, [replace(EARTHQUAKES, stream=None)], options.prefix)

        def open_store() -> Store:
            return Store(
                database.client,
                prefix=options.prefix,
                deadline=Deadline(100),
                token=lambda: uuid.uuid4().hex,
                now=lambda: NOON,
            )

        await open_store().write_all(EARTHQUAKES, puts=[each.item() for each in catalogue(random.Random(1))])
        await StatisticsRebuild(open_store, lambda: NOON).all_days()


@pytest.fixture
def store_options(request: pytest.FixtureRequest, store_options: StoreOptions) -> StoreOptions:
    """Return the options of the catalogue for a test with the fixture `years`, else those of the test's own tables."""
    if "years" in request.fixturenames:
        options: StoreOptions = request.getfixturevalue("years")
        return options
    return store_options


async def costs(served: Served, variables: dict[str, Any]) -> tuple[float, float]:
    """Return the estimated and the measured read units of a query, without those of its log."""
    answer = await served.ask(QUERY, variables)
    assert answer.errors is None, (answer.errors, variables)
    report = served.reports[-1]
    return report.estimate - WRITE_UNIT_COST * LOG_WRITE_UNITS, sum(call.units for call in answer.calls)


def random_query(rng: random.Random) -> dict[str, Any]:
    """Return a window of an hour to three years, a kind, a page size of 1 to 100, a direction and maybe a magnitude."""
    length = timedelta(hours=math.exp(rng.uniform(0, math.log(DAYS * 24 - 48))))
    end = NOON - timedelta(seconds=rng.randrange(int((timedelta(days=DAYS - 1) - length).total_seconds())))
    least = rng.choice((None, 2.5, 4, 4.5, 5, round(rng.uniform(2, 7), 1)))
    size = rng.choice((1, 5, 25, 50, 100))
    return {
        "start": (end - length).isoformat(),
        "end": end.isoformat(),
        "least": least,
        "kind": rng.choice(KINDS),
        rng.choice(("first", "first", "last")): size,
        "order": rng.choice(("DESCENDING", "DESCENDING", "ASCENDING")),
    }


def window_days(variables: dict[str, Any]) -> int:
    return (datetime.fromisoformat(variables["end"]) - datetime.fromisoformat(variables["start"])).days


@pytest.mark.timeout(120)
async def test_an_estimate_is_within_a_factor_of_three_for_nineteen_of_twenty_queries(
    years: StoreOptions, served: Served
) -> None:
    rng = random.Random(7)
    off: list[Any] = []
    for _ in range(QUERIES):
        variables = random_query(rng)
        estimate, real = await costs(served, variables)
        if not real / 3 <= estimate <= 3 * real:
            off.append((estimate, real, variables))

    assert len(off) <= QUERIES / 20, off


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [25, 100])
@pytest.mark.parametrize("least", [None, 0, 2.5, 4.5, 6, 7, 8, 9.5])
async def test_no_window_of_any_magnitude_and_kind_is_refused(
    years: StoreOptions, served: Served, least: float | None, size: int, kind: str
) -> None:
    for days in (1, 30, 365, 3_660):
        for direction in ("first", "last"):
            start = (NOON - timedelta(days=days)).isoformat()

            answer = await served.ask(QUERY, {"start": start, "least": least, "kind": kind, direction: size})

            assert answer.errors is None


async def test_a_page_of_crowded_days_is_not_refused(served: Served) -> None:
    crowded: dict[str, Any] = {
        "othersByClass": {"1": [4_000, 1.9]},
        "byClass": {"7": [1, 7.1]},
        "greatest": 7.1,
        "recounts": 1,
    }
    days = [f"{NOON - timedelta(days=day):%Y%m%d}" for day in range(200)]
    items = [crowded | {"pk": f"STATISTICS#{day[:4]}", "sk": day} for day in days]
    await StatisticsRebuild(served.store, served.clock).all_days()
    await served.store().write_all(EARTHQUAKES, puts=items)

    estimate, _ = await costs(served, {"start": (NOON - timedelta(days=200)).isoformat(), "least": 7, "first": 100})

    assert estimate == 1_900


class TestBudgets:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        """Settings with the default anonymous budget, which refills very slowly."""
        capacity = replace(UNBOUGHT, anonymous_budget_units=2_500, anonymous_budget_units_per_second=1e-6)
        return replace(settings, capacity=capacity)

    async def test_estimates_do_not_delay_concurrent_queries(self, years: StoreOptions, served: Served) -> None:
        ten_years = {"start": (NOON - timedelta(days=3_660)).isoformat(), "least": 7, "first": 25}

        answers = await asyncio.gather(*(served.ask(QUERY, ten_years) for _ in range(4)))

        assert [answer.errors for answer in answers] == [None] * 4


async def test_statistics_are_read_once_for_many_estimates(years: StoreOptions, served: Served) -> None:
    assert served.gateway.database is not None
    calls: list[str] = []
    served.gateway.database.client.add_call_listener(lambda call: calls.extend(call.patterns))
    last_hour: dict[str, Any] = {"start": (NOON - timedelta(hours=1)).isoformat()}

    for _ in range(3):
        await served.ask(QUERY, last_hour)

    assert calls.count("QUAKE-6") == 1
    assert calls.count("QUAKE-2") == 3
    served.clock.forward(seconds=61)
    await served.ask(QUERY, last_hour)
    assert calls.count("QUAKE-6") == 2


async def test_a_full_cache_keeps_the_fresh_years_of_the_window(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resolvers.earthquakes.costs.MAX_YEARS", 2)
    await StatisticsRebuild(served.store, served.clock).all_days()
    model = EarthquakeCosts(lambda seconds: served.store())
    this_year, last_year, other_year = (NOON - timedelta(days=days) for days in (0, 365, 1_500))

    for end in (other_year, this_year):
        await model.load({"from": end.isoformat(), "to": end.isoformat()}, NOON)
    both_years = {"from": last_year.isoformat(), "to": this_year.isoformat()}
    await model.load(both_years, NOON)

    assert model.units(both_years, NOON) is not None


EXAMPLES = [{"start": NOON - timedelta(days=3_660), "least": 7, "first": 25}]
EXAMPLES += [{"start": NOON - timedelta(days=3_660), "least": 6, "first": 100}]
EXAMPLES += [{"start": NOON - timedelta(days=3_660), "kind": "OTHER", "first": 100}]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_no_window_is_refused_without_statistics(served: Served, example: dict[str, Any]) -> None:
    estimate, _ = await costs(served, example | {"start": example["start"].isoformat()})

    assert estimate <= 1_900


@pytest.mark.timeout(120)
async def test_an_estimate_without_the_consumer_includes_all_days(years: StoreOptions, served: Served) -> None:
    """While the consumer lags, the query reads every day, and the estimate has to include that."""
    rng = random.Random(11)
    off: list[Any] = []
    served.clock.forward(minutes=10)
    asked = (variables for _ in range(100) if window_days(variables := random_query(rng)) < 100)
    for variables in itertools.islice(asked, 10):
        estimate, real = await costs(served, variables)
        if not real / 3 <= estimate <= 3 * real:
            off.append((estimate, real, variables))

    assert off == []


async def test_an_estimate_without_complete_statistics_includes_every_day(served: Served) -> None:
    await put_raw(served, "theirs")

    estimate, _ = await costs(served, {"start": (NOON - timedelta(days=1_000)).isoformat(), "first": 25})

    assert estimate == 501 + 2.5  # and the statistics of four years
