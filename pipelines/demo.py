"""Demo data of our own making, and a little life in it: so that GraphiQL has something to show, and to follow."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from datastore.demo_sightings import REPORTERS, SEEN, demo_reporters, demo_sightings
from datastore.earthquakes import Earthquake, Earthquakes
from datastore.errors import DomainError
from datastore.moments import epoch_ms
from datastore.pages import Span
from datastore.sightings import Sightings
from datastore.store import Store
from pipelines.usgs_feed import read_events

FEED = Path(__file__).parent / "demo" / "earthquakes.geojson"
SIGHTING_EVERY = 15.0
EARTHQUAKE_EVERY = 20.0
PLACES = (
    ("14 km SW of Lantern Bay", 38.2, -122.9),
    ("31 km N of Kestrel Point", 61.4, -150.1),
    ("8 km E of Santa Brisa", -33.1, -71.2),
    ("52 km S of Mirefjord", 63.8, -19.6),
)

logger = logging.getLogger(__name__)


class Demo:
    """Loads the demo once and keeps the street alive. `open_store` gives a fresh `Store` for each piece of work."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        areas: tuple[str, ...],
        categories: tuple[str, ...],
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        chance: random.Random,
    ) -> None:
        self._open_store = open_store
        self._areas = areas
        self._categories = categories
        self._now = now
        self._new_id = new_id
        self._chance = chance

    async def load(self) -> tuple[int, int]:
        """Earthquakes of the last 30 days, and sightings unless some are active: how many of each were stored."""
        return await self._load_earthquakes(), await self._load_sightings()

    async def live(self) -> None:
        """Report a sighting, and feel an earthquake, every few seconds, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(SIGHTING_EVERY, self._report))
            tasks.create_task(self._every(EARTHQUAKE_EVERY, self._tremble))

    async def _load_earthquakes(self) -> int:
        repository = Earthquakes(self._open_store(), self._now())
        if await repository.by_id("demo0001") is not None:
            return 0
        events = [event async for event in read_events(_shifted(self._now()), ingested_at_ms=epoch_ms(self._now()))]
        stored = [
            await Earthquakes(self._open_store(), self._now()).insert(event)
            for event in events
            if isinstance(event, Earthquake)
        ]
        return sum(stored)

    async def _load_sightings(self) -> int:
        now = self._now()
        repository = Sightings(self._open_store(), now)
        active = [await repository.active_in(area, Span(1)) for area in self._areas]
        if any(page.items for page in active):
            return 0
        seeded = demo_sightings(self._areas, self._categories, now)
        await repository.seed(seeded, demo_reporters(now))
        return len(seeded)

    async def _every(self, seconds: float, act: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await act()  # type: ignore[misc]
            except DomainError as problem:
                logger.warning("The demo pauses: %s", problem)

    async def _report(self) -> None:
        await Sightings(self._open_store(), self._now()).report(
            sighting_id=self._new_id(),
            area=self._chance.choice(self._areas),
            category=self._chance.choice(self._categories),
            description=self._chance.choice(SEEN)[0],
            user_id=self._chance.choice(list(REPORTERS)),
        )

    async def _tremble(self) -> None:
        place, latitude, longitude = self._chance.choice(PLACES)
        now = self._now()
        await Earthquakes(self._open_store(), now).insert(
            Earthquake(
                event_id=f"live-{self._new_id()}",
                occurred_at_ms=epoch_ms(now),
                magnitude=round(self._chance.uniform(0.5, 4.5), 1),
                place=place,
                latitude=round(latitude + self._chance.uniform(-0.2, 0.2), 4),
                longitude=round(longitude + self._chance.uniform(-0.2, 0.2), 4),
                depth_km=round(self._chance.uniform(1, 40), 1),
                source="DEMO",
                ingested_at_ms=epoch_ms(now),
            )
        )


async def _shifted(now: datetime) -> AsyncIterator[bytes]:
    """The demo feed as if it had been made just now."""
    feed = json.loads(await asyncio.to_thread(FEED.read_text))
    newest = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=feed["metadata"]["generated"])
    for feature in feed["features"]:
        feature["properties"]["time"] += epoch_ms(now) - epoch_ms(newest)
    yield json.dumps(feed).encode()
