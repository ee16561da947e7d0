"""Earthquakes that are stored past the gateways, as `ingest earthquakes` does, and their daily statistics."""

import asyncio
from datetime import UTC, datetime, timedelta

from datastore.earthquakes.earthquakes import Earthquakes
from datastore.errors import DomainError
from datastore.model.identity import Role
from tests.support.earthquake_samples import quake
from tests.support.mixed_load import Truth
from tests.support.remote import Remote
from tests.support.served import NOON

OLDEST = "2020-01-01T00:00:00Z"
# Older than those that the mixed load reads.
AGE = timedelta(days=90)
EVERY_SECONDS = 0.4
RETRY_SECONDS = 0.1
COUNT = "query ($day: Date!) { earthquakeStatistics(from: $day, to: $day, consistent: true) { earthquakeCount } }"


class EarthquakeLoad:
    """Stores one earthquake after another, each until the store has acknowledged it. All are of one day."""

    def __init__(self, served: Remote, truth: Truth) -> None:
        self._served = served
        self._truth = truth
        self._began = datetime.now(UTC) - AGE
        self.stored: list[str] = []

    async def work_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._store(f"q{len(self.stored)}")
            await asyncio.sleep(EVERY_SECONDS)

    async def _store(self, event_id: str) -> None:
        fact = ("earthquake", event_id)
        self._truth.unsure(fact, True)
        event = quake(event_id, NOON - self._began)
        while True:
            try:
                await Earthquakes(self._served.store(), datetime.now(UTC)).insert(event)
            except DomainError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._truth.acknowledged(fact, True)
            self.stored.append(event_id)
            return

    async def is_counted(self) -> bool:
        """Return whether the statistics of the day count each of them once."""
        variables = {"day": self._began.date().isoformat()}
        answer = await self._served.ask(COUNT, variables, user="root", role=Role.ADMIN)
        assert answer.errors is None, answer.errors
        return bool(answer.data["earthquakeStatistics"]["earthquakeCount"] == len(self.stored))
