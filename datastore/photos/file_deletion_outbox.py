"""The outbox of files to delete: a record lists the files of a deleted photo until they are deleted."""

import logging
from collections.abc import Collection
from datetime import datetime

from datastore.keyspace.photos import uploads as keys
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import iso
from datastore.objects import INCOMING, ObjectStore
from datastore.session.store import Store
from datastore.session.writes import Action

# The number of photos whose failed deletion is logged only once.
MAX_LOGGED = 10_000

logger = logging.getLogger(__name__)


def incoming_keys(image_id: str) -> tuple[str, str]:
    """Return the keys to which the original and the thumbnail are uploaded."""
    return f"{INCOMING}{image_id}/original", f"{INCOMING}{image_id}/thumbnail"


def record_files(image_id: str, object_keys: list[str], now: datetime) -> Action:
    """Return the action that adds files to the outbox record of an id, which may have other files."""
    values = {"type": keys.REMOVAL, "id": image_id, "at": iso(now), "none": [], "keys": object_keys}
    return Action("Update", key=keys.outbox_entry(image_id), update=keys.RECORD_OBJECTS, values=values)


class FileDeletionOutbox:
    """Deletes the files of the outbox records, then the records.

    `logged` contains the ids of the photos whose failed deletion has been logged.
    """

    def __init__(self, store: Store, objects: ObjectStore, logged: set[str] | None = None) -> None:
        self._store = store
        self._objects = objects
        self._logged: set[str] = set() if logged is None else logged

    async def delete_files(self, image_id: str, object_keys: Collection[str]) -> None:
        """Delete a photo's files and their outbox record. After a failure, `process_all` deletes them later."""
        try:
            await self._objects.delete(object_keys)
            await self._store.delete(keys.DELETE_OUTBOX_ENTRY, keys.outbox_entry(image_id), keys=list(object_keys))
        except Exception as problem:  # a failed deletion of files does not fail the deletion of the photo
            self._log_once(image_id, problem)
        else:
            self._logged.discard(image_id)

    def _log_once(self, image_id: str, problem: Exception) -> None:
        if image_id in self._logged:
            return
        if len(self._logged) >= MAX_LOGGED:
            self._logged.clear()
        self._logged.add(image_id)
        # The message may contain the keys of files, which may contain an email.
        logger.error("The files of photo %s could not be deleted; retrying later: %s", image_id, type(problem).__name__)

    async def process_all(self) -> int:
        """SPARKS-P1: delete the files of all outbox records. Return the number of records processed."""
        processed = 0
        async for listed in self._store.query_all(keys.OUTBOX, {"partition": keys.REMOVAL}):
            # The index may lag, and the list may be long: another process may have deleted the files meanwhile.
            image_id = second_part(listed["PK"])
            item = await self._store.get(keys.DELETE_OUTBOX_ENTRY, keys.outbox_entry(image_id))
            if item is None:
                continue
            object_keys = item.get("objectKeys")
            if isinstance(object_keys, list) and all(isinstance(key, str) for key in object_keys):
                await self.delete_files(image_id, object_keys)
                processed += 1
            else:  # another program's record; the others are processed
                self._log_once(image_id, TypeError())
        return processed
