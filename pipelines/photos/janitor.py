"""The janitor of the photo library: releases expired upload reservations and deletes unused files once a minute."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from datastore.model.log_redaction import redact_emails
from datastore.objects import NoObjects, ObjectStore
from datastore.photos.file_deletion_outbox import FileDeletionOutbox
from datastore.photos.reservation_expiry import ReservationExpiry
from datastore.primitives.tasks import every
from datastore.session.store import Store

EVERY_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Janitor:
    """The periodic cleanup. Any number of processes may run one. `open_store` opens a store for each piece of work."""

    def __init__(self, open_store: Callable[[], Store], objects: ObjectStore, *, now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._objects = objects
        self._now = now
        self._logged: set[str] = set()

    async def run(self) -> None:
        """Clean up every `EVERY_SECONDS` until cancelled."""
        await every(EVERY_SECONDS, self.clean_up)

    async def clean_up(self) -> None:
        """Clean up once. A failed job is logged, does not stop the others, and is retried the next time."""
        await _try("Expired uploads", self.release_expired)
        if not isinstance(self._objects, NoObjects):
            await _try("Files of deleted photos", self._remove_files)
            await _try("Old uploads", self._objects.sweep)

    async def _remove_files(self) -> None:
        await FileDeletionOutbox(self._open_store(), self._objects, self._logged).process_all()

    async def release_expired(self) -> int:
        """Release all expired reservations. Return the number of those that this process released."""
        released = 0
        listing = ReservationExpiry(self._open_store(), self._objects, self._now())
        async for image_id in listing.expired():
            expiry = ReservationExpiry(self._open_store(), self._objects, self._now())
            try:
                released += await expiry.release(image_id)
            except Exception as problem:  # a failure must not stop the release of the others
                logger.warning("An expired upload was not released; retrying later: %s", type(problem).__name__)
        return released


async def _try(subject: str, job: Callable[[], Awaitable[object]]) -> None:
    try:
        await job()
    except Exception as problem:  # a table may be missing until the next start
        logger.warning("%s could not be cleaned up; retrying later: %s", subject, redact_emails(str(problem)))
