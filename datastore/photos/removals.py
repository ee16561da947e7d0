"""Files of deleted photos: a note says which are to be removed, until they are."""

import logging
from collections.abc import Collection
from datetime import datetime

from datastore.attributes import Item
from datastore.keyspace.photos import uploads as keys
from datastore.moments import iso
from datastore.objects import ObjectStore
from datastore.photos.library import Photo
from datastore.store import Store

logger = logging.getLogger(__name__)


def removal_item(photo: Photo, now: datetime) -> Item:
    """The note, to be put in the transaction that deletes the photo."""
    key = keys.removal(photo.image_id)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.REMOVAL,
        "imageId": photo.image_id,
        "objectKeys": [photo.original_key, photo.thumbnail_key],
        "createdAt": iso(now),
    }


class Removals:
    """Removes the files, and then the note of them."""

    def __init__(self, store: Store, objects: ObjectStore) -> None:
        self._store = store
        self._objects = objects

    async def finish(self, image_id: str, object_keys: Collection[str]) -> None:
        """Remove a photo's files and their note. What fails is left to `finish_all`, on another day."""
        try:
            await self._objects.delete(object_keys)
            await self._store.delete(keys.REMOVED, keys.removal(image_id))
        except Exception as problem:  # the photo is deleted, whatever becomes of its files now
            # The keys of files may hold an email.
            logger.error("The files of photo %s are not removed yet: %s", image_id, type(problem).__name__)

    async def finish_all(self) -> int:
        """SPARKS-P1: do what was cut off. Answers how many photos' files were found to be removed."""
        found = 0
        async for listed in self._store.query_all(keys.REMOVALS, {"partition": keys.REMOVAL}):
            # The index may lag, and the list be long: what was finished meanwhile is not done again.
            item = await self._store.get(keys.REMOVED, keys.removal(listed["imageId"]))
            if item is not None:
                await self.finish(item["imageId"], item["objectKeys"])
                found += 1
        return found
