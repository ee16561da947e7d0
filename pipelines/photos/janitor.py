"""Gives back, once a minute, the places of uploads that were never confirmed, and removes files that nobody shows."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from datastore.model.log_redaction import without_emails
from datastore.objects import ObjectStore
from datastore.objects.none import NoObjects
from datastore.photos.file_deletion_outbox import FileDeletionOutbox
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.session.store import Store
from pipelines.consumer.periodic import every

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
        self._told: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        await every(EVERY_SECONDS, self.tidy)

    async def tidy(self) -> None:
        """Once: what fails is told in the log, does not keep the rest, and is tried again the next time."""
        await _tried("Uploads that have expired", self.release_expired)
        if not isinstance(self._objects, NoObjects):
            await _tried("Files of deleted photos", self._remove_files)
            await _tried("Old uploads", self._objects.sweep)

    async def _remove_files(self) -> None:
        await FileDeletionOutbox(self._open_store(), self._objects, self._told).finish_all()

    async def release_expired(self) -> int:
        """How many places were given back."""
        released = 0
        found = ReservationExpiry(self._open_store(), self._objects, self._now())
        async for image_id in found.expired():
            one = ReservationExpiry(self._open_store(), self._objects, self._now())
            try:
                released += await one.release(image_id)
            except Exception as problem:  # whatever is wrong with one, it does not keep the others
                logger.warning("An upload that has expired stays for now: %s", type(problem).__name__)
        return released


async def _tried(what: str, work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except Exception as problem:  # a table may be missing until the next start
        logger.warning("%s stay for now: %s", what, without_emails(str(problem)))
