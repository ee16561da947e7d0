"""The demo: initial data of all systems, and background activity, so that GraphiQL has queries and events to show."""

import asyncio
import json
import logging
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from datastore.dynamodb.client import RequestRefused
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.errors import DomainError
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import Table
from datastore.model.timestamps import epoch_ms
from datastore.objects import ObjectStore
from datastore.session.pagination import Span
from datastore.session.store import Store
from datastore.sightings.demo import DEMO_SIGHTINGS, REPORTERS, demo_reporters, demo_sightings
from datastore.sightings.sightings import Sightings
from pipelines.demo.feeds import FeedDemo
from pipelines.demo.photos import PhotoDemo
from pipelines.earthquakes.usgs_feed import read_events

FEED = Path(__file__).parent / "data" / "earthquakes.geojson"
SIGHTING_EVERY = 15.0
EARTHQUAKE_EVERY = 20.0
FEED_EVERY = 8.0
LIVESTREAM_EVERY = 30.0
SEEDING_EVERY = 60.0
IDS = [f"demo-{number}" for number in range(1, len(DEMO_SIGHTINGS) + 1)]
# The sightings are loaded while the youngest of them exists. No area has more active sightings than PAGE_SIZE.
YOUNGEST, PAGE_SIZE = IDS[0], 100
# Each whole step of magnitude is ten times as rare: Gutenberg and Richter's law.
MIN_MAGNITUDE, MAX_MAGNITUDE, STEEPNESS = 1.0, 6.5, math.log(10)
PLACES = (
    ("14 km SW of Lantern Bay", 38.2, -122.9),
    ("31 km N of Kestrel Point", 61.4, -150.1),
    ("8 km E of Santa Brisa", -33.1, -71.2),
    ("52 km S of Mirefjord", 63.8, -19.6),
)

logger = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """The number of items that `Demo.load` stored, by kind."""

    earthquakes: int
    sightings: int
    posts: int
    photos: int


class Demo:
    """Loads the demo data once and produces activity. `open_store` returns a new `Store` for each operation."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        objects: ObjectStore,
        *,
        areas: tuple[str, ...],
        categories: tuple[str, ...],
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        rng: random.Random,
        has_subscribers: Callable[[Table], bool] = lambda _: True,
        sighting_every: float = SIGHTING_EVERY,
        earthquake_every: float = EARTHQUAKE_EVERY,
        feed_every: float = FEED_EVERY,
        livestream_every: float = LIVESTREAM_EVERY,
    ) -> None:
        self._open_store = open_store
        self._areas = areas
        self._categories = categories
        self._now = now
        self._new_id = new_id
        self._rng = rng
        self._has_subscribers = has_subscribers
        self._sighting_every = sighting_every
        self._earthquake_every = earthquake_every
        self._feed_every = feed_every
        self._livestream_every = livestream_every
        self._feed = FeedDemo(open_store, now=now, new_id=new_id, rng=rng, has_subscribers=has_subscribers)
        self._photos = PhotoDemo(open_store, objects, now=now, has_subscribers=has_subscribers)

    async def load(self) -> Loaded:
        """Store earthquakes of the last 30 days, eight sightings, a feed and a photo library, unless they exist."""
        loads = (self._load_earthquakes, self._load_sightings, self._feed.load, self._photos.load)
        tasks = [asyncio.create_task(load()) for load in loads]
        # Wait for all loads, even if one of them fails.
        await asyncio.gather(*tasks, return_exceptions=True)
        return Loaded(*[task.result() for task in tasks])

    async def live(self) -> None:
        """Write sightings, earthquakes, feed activity and livestream changes at intervals, until cancelled.

        The eight initial sightings are loaded again when they have expired, so that sightings of all ages exist.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self._sighting_every, self._report))
            tasks.create_task(self._every(self._earthquake_every, self._tremble))
            tasks.create_task(self._every(self._feed_every, self._feed.act))
            tasks.create_task(self._every(self._livestream_every, self._photos.live))
            tasks.create_task(self._every(SEEDING_EVERY, self._load_sightings))

    async def _load_earthquakes(self) -> int:
        repository = Earthquakes(self._open_store(), self._now())
        read = read_events(await asyncio.to_thread(_shifted, self._now()), ingested_at_ms=epoch_ms(self._now()))
        events = [event async for event in read if isinstance(event, Earthquake)]
        # The events are stored in order: if the last one exists, all do. The next load completes an interrupted one.
        if await repository.by_id(events[-1].event_id) is not None:
            return 0
        return sum([await Earthquakes(self._open_store(), self._now()).insert(event) for event in events])

    async def _load_sightings(self) -> int:
        now = self._now()
        repository = Sightings(self._open_store(), now)
        page = await repository.active_in(self._areas[0], Span(PAGE_SIZE))
        if any(item["sightingId"] == YOUNGEST for item in page.items):
            return 0
        seeded = demo_sightings(self._areas, self._categories, now, IDS)
        await repository.seed(seeded, demo_reporters(now))
        return len(seeded)

    async def _every(self, seconds: float, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await act()
            except (DomainError, RequestRefused) as problem:
                logger.warning("The demo skips one activity: %s", problem)

    async def _report(self) -> None:
        description, category, *_ = self._rng.choice(DEMO_SIGHTINGS)
        await Sightings(self._open_store(), self._now()).report(
            sighting_id=self._new_id(),
            area=self._rng.choice(self._areas),
            category=self._categories[category % len(self._categories)],
            description=description,
            user_id=self._rng.choice(list(REPORTERS)),
        )

    async def _tremble(self) -> None:
        """Insert an earthquake if the table has subscribers: unlike sightings, earthquakes never expire."""
        if not self._has_subscribers(EARTHQUAKES):
            return
        place, latitude, longitude = self._rng.choice(PLACES)
        now = self._now()
        await Earthquakes(self._open_store(), now).insert(
            Earthquake(
                event_id=f"live-{self._new_id()}",
                occurred_at_ms=epoch_ms(now),
                magnitude=round(min(MIN_MAGNITUDE + self._rng.expovariate(STEEPNESS), MAX_MAGNITUDE), 1),
                place=place,
                latitude=round(latitude + self._rng.uniform(-0.2, 0.2), 4),
                longitude=round(longitude + self._rng.uniform(-0.2, 0.2), 4),
                depth_km=round(self._rng.uniform(1, 40), 1),
                source="DEMO",
                ingested_at_ms=epoch_ms(now),
            )
        )


def _shifted(now: datetime) -> BytesIO:
    """Return the recorded USGS feed with its times shifted so that it was generated now."""
    feed = json.loads(FEED.read_text())
    newest = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=feed["metadata"]["generated"])
    for feature in feed["features"]:
        feature["properties"]["time"] += epoch_ms(now) - epoch_ms(newest)
    return BytesIO(json.dumps(feed).encode())
