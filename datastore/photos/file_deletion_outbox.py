"""Files of deleted photos: a note says which are to be removed, until they are."""

import logging
from collections.abc import Collection
from datetime import datetime

from datastore.dynamodb.codec import Item
from datastore.keyspace.photos import uploads as keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso
from datastore.objects import INCOMING, ObjectStore
from datastore.photos.photos import Photo
from datastore.session.store import Store

# Of so many photos it is remembered that their files could not be removed, so as not to tell it every minute.
MOST_TOLD = 10_000

logger = logging.getLogger(__name__)


def incoming(image_id: str) -> tuple[str, str]:
    """Where the original and the thumbnail are uploaded to."""
    return f"{INCOMING}{image_id}/original", f"{INCOMING}{image_id}/thumbnail"


def removal_item(photo: Photo, now: datetime) -> Item:
    """The note, to be put in the transaction that deletes the photo. What was uploaded again goes too."""
    key = keys.outbox_entry(photo.image_id)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.REMOVAL,
        "imageId": photo.image_id,
        "objectKeys": [photo.original_key, photo.thumbnail_key, *incoming(photo.image_id)],
        "createdAt": iso(now),
    }


class FileDeletionOutbox:
    """Removes the files, and then the note of them. `told` are the photos of which it was logged that this fails."""

    def __init__(self, store: Store, objects: ObjectStore, told: set[str] | None = None) -> None:
        self._store = store
        self._objects = objects
        self._told: set[str] = set() if told is None else told

    async def finish(self, image_id: str, object_keys: Collection[str]) -> None:
        """Remove a photo's files and their note. What fails is left to `finish_all`, on another day."""
        try:
            await self._objects.delete(object_keys)
            await self._store.delete(keys.DELETE_OUTBOX_ENTRY, keys.outbox_entry(image_id), keys=list(object_keys))
        except Exception as problem:  # the photo is deleted, whatever becomes of its files now
            self._tell(image_id, problem)
        else:
            self._told.discard(image_id)

    def _tell(self, image_id: str, problem: Exception) -> None:
        if image_id in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(image_id)
        # The keys of files may hold an email.
        logger.error("The files of photo %s are not removed yet: %s", image_id, type(problem).__name__)

    async def finish_all(self) -> int:
        """SPARKS-P1: do what was cut off. Answers how many photos' files were found to be removed."""
        found = 0
        async for listed in self._store.query_all(keys.OUTBOX, {"partition": keys.REMOVAL}):
            # The index may lag, and the list be long: what was finished meanwhile is not done again.
            image_id = keys.outbox_entry_parts(Key(listed["PK"], listed["SK"]))
            item = await self._store.get(keys.DELETE_OUTBOX_ENTRY, keys.outbox_entry(image_id))
            if item is None:
                continue
            object_keys = item.get("objectKeys")
            if isinstance(object_keys, list) and all(isinstance(key, str) for key in object_keys):
                await self.finish(image_id, object_keys)
                found += 1
            else:  # no note of ours; it does not keep the others
                self._tell(image_id, TypeError())
        return found
