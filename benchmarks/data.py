"""The data of the benchmarks, equal in every run."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.model.composite_keys import Key
from datastore.model.timestamps import epoch_ms
from datastore.session.metering import Deadline
from datastore.session.store import Store
from datastore.sightings.reporters import TrustTier, UserProfile
from datastore.sightings.sightings import Sighting, Sightings, new_sighting
from server.settings import AREAS, CATEGORIES

NOON = datetime(2026, 6, 25, 12, 0, tzinfo=UTC)
"""The constant time of the measured gateway: sightings must not expire between two rounds."""

AREA = AREAS[0]
PAGE = 50
SIGHTINGS = 60
REPORTERS = 50
EVENTS = 1000
DAYS = 30
SEED = 20260625
CONCURRENT_PUTS = 32
SECONDS = 60.0

_tokens = count()


def open_store(client: Client) -> Store:
    """Open a store, as the gateway does for each request."""
    return Store(
        client, prefix="", deadline=Deadline(SECONDS), token=lambda: f"benchmark-{next(_tokens)}", now=lambda: NOON
    )


async def fill(client: Client) -> None:
    """Write all data to empty tables."""
    sightings = Sightings(open_store(client), NOON)
    await sightings.seed(benchmark_sightings(), [])
    await sightings.seed([], list(reporters()))
    slots = asyncio.Semaphore(CONCURRENT_PUTS)

    async def put(event: Earthquake) -> None:
        async with slots:
            await Earthquakes(open_store(client), NOON).insert(event)

    await asyncio.gather(*[put(event) for event in earthquakes()])


def benchmark_sightings() -> list[Sighting]:
    """Return the active sightings of one area, newest first. The first `PAGE` have distinct reporters."""
    return [sighting(number, NOON - timedelta(seconds=number)) for number in range(SIGHTINGS)]


def sighting(number: int, moment: datetime, sighting_id: str | None = None) -> Sighting:
    """Return a sighting with a description of typical length."""
    return new_sighting(
        sighting_id or f"sighting-{number:04}",
        AREA,
        CATEGORIES[number % len(CATEGORIES)],
        f"Number {number}: limited sneakers on sale at the corner, a short queue, about thirty pairs are left.",
        f"reporter-{number % REPORTERS:02}",
        TrustTier.SILVER,
        moment,
        number % 4,
    )


def reporters() -> Iterator[UserProfile]:
    for number in range(REPORTERS):
        yield UserProfile(f"reporter-{number:02}", TrustTier.SILVER, 10 + number, number % 9, NOON.date())


def earthquakes() -> Iterator[Earthquake]:
    """Yield events spread evenly over the days, most of them weak, as in reality."""
    rng = random.Random(SEED)
    for number in range(EVENTS):
        yield Earthquake(
            event_id=event_id(number),
            occurred_at_ms=epoch_ms(NOON - timedelta(days=DAYS) * (number + rng.random()) / EVENTS),
            magnitude=_magnitude(rng),
            place=f"{rng.randrange(1, 200)} km NW of Ridgecrest, California",
            latitude=round(rng.uniform(-60, 70), 4),
            longitude=round(rng.uniform(-180, 180), 4),
            depth_km=round(rng.uniform(0, 120), 2),
            source="usgs",
            ingested_at_ms=epoch_ms(NOON),
        )


def event_id(number: int) -> str:
    return f"ci{40_000_000 + number}"


def _magnitude(rng: Random) -> float:
    return round(min(1 + rng.expovariate(1.5), 8.0), 2)


def sighting_keys() -> list[Key]:
    """Return the keys of the newest `PAGE` sightings."""
    return [sighting.key for sighting in benchmark_sightings()[:PAGE]]
