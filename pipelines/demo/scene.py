"""The demo: initial data of all systems, and background activity, so that GraphiQL has queries and events to show."""

import asyncio
import json
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
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


@dataclass(frozen=True)
class Demo:
    """Loads the demo data once and produces activity."""

    #: Returns a new store for each operation.
    open_store: Callable[[], Store]
    objects: ObjectStore
    areas: tuple[str, ...]
    categories: tuple[str, ...]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    rng: random.Random
    #: Returns whether a table has subscribers.
    has_subscribers: Callable[[Table], bool] = lambda _: True
    # The seconds between two activities.
    sighting_every: float = 15.0
    earthquake_every: float = 20.0
    feed_every: float = 8.0
    livestream_every: float = 30.0

    @cached_property
    def _feed(self) -> FeedDemo:
        return FeedDemo(self.open_store, self.now, self.new_id, self.rng, self.has_subscribers)

    @cached_property
    def _photos(self) -> PhotoDemo:
        return PhotoDemo(self.open_store, self.objects, self.now, self.has_subscribers)

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
            tasks.create_task(self._every(self.sighting_every, self._report))
            tasks.create_task(self._every(self.earthquake_every, self._tremble))
            tasks.create_task(self._every(self.feed_every, self._feed.act))
            tasks.create_task(self._every(self.livestream_every, self._photos.live))
            tasks.create_task(self._every(SEEDING_EVERY, self._load_sightings))

    async def _load_earthquakes(self) -> int:
        repository = Earthquakes(self.open_store(), self.now())
        read = read_events(await asyncio.to_thread(_shifted, self.now()), ingested_at_ms=epoch_ms(self.now()))
        events = [event async for event in read if isinstance(event, Earthquake)]
        # The events are stored in order: if the last one exists, all do. The next load completes an interrupted one.
        if await repository.by_id(events[-1].event_id) is not None:
            return 0
        return sum([await Earthquakes(self.open_store(), self.now()).insert(event) for event in events])

    async def _load_sightings(self) -> int:
        now = self.now()
        repository = Sightings(self.open_store(), now)
        page = await repository.active_in(self.areas[0], Span(PAGE_SIZE))
        if any(item["sightingId"] == YOUNGEST for item in page.items):
            return 0
        seeded = demo_sightings(self.areas, self.categories, now, IDS)
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
        description, category, *_ = self.rng.choice(DEMO_SIGHTINGS)
        await Sightings(self.open_store(), self.now()).report(
            sighting_id=self.new_id(),
            area=self.rng.choice(self.areas),
            category=self.categories[category % len(self.categories)],
            description=description,
            user_id=self.rng.choice(list(REPORTERS)),
        )

    async def _tremble(self) -> None:
        """Insert an earthquake if the table has subscribers: unlike sightings, earthquakes never expire."""
        if not self.has_subscribers(EARTHQUAKES):
            return
        place, latitude, longitude = self.rng.choice(PLACES)
        now = self.now()
        await Earthquakes(self.open_store(), now).insert(
            Earthquake(
                event_id=f"live-{self.new_id()}",
                occurred_at_ms=epoch_ms(now),
                magnitude=round(min(MIN_MAGNITUDE + self.rng.expovariate(STEEPNESS), MAX_MAGNITUDE), 1),
                place=place,
                latitude=round(latitude + self.rng.uniform(-0.2, 0.2), 4),
                longitude=round(longitude + self.rng.uniform(-0.2, 0.2), 4),
                depth_km=round(self.rng.uniform(1, 40), 1),
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
