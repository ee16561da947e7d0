"""Gives back, once a minute, the places of uploads that were never confirmed, and removes files that nobody shows."""

import logging
from collections.abc import Callable
from datetime import datetime

from datastore.client import RequestRefused
from datastore.errors import DomainError
from datastore.objects import ObjectStore
from datastore.photos.releases import Releases, reserved_id
from datastore.photos.removals import Removals
from datastore.store import Store
from pipelines.jobs import every

EVERY_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Janitor:
    """Any number of processes may have one: what one did the others find done. `open_store` is asked for each piece
    of work, which has a deadline of its own.
    """

    def __init__(self, open_store: Callable[[], Store], objects: ObjectStore, *, now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._objects = objects
        self._now = now

    async def run(self) -> None:
        """Until cancelled."""
        await every(EVERY_SECONDS, self.tidy)

    async def tidy(self) -> None:
        """Once: what fails is told in the log, and tried again the next time."""
        try:
            await self.release_expired()
            await Removals(self._open_store(), self._objects).finish_all()
        except (DomainError, RequestRefused) as problem:  # a table may be missing until the next start
            logger.warning("Uploads that have expired stay for now: %s", problem)

    async def release_expired(self) -> int:
        """How many places were given back."""
        released = 0
        found = Releases(self._open_store(), self._objects, self._now())
        async for item in found.expired():
            one = Releases(self._open_store(), self._objects, self._now())
            try:
                released += await one.release(reserved_id(item), item["email"])
            except (DomainError, KeyError) as problem:
                # One that cannot be released does not keep the others.
                logger.warning("An upload that has expired stays for now: %s", type(problem).__name__)
        return released
