"""Updates of photos' attributes, and the cascade delete of photos."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from datastore.dynamodb.codec import Item
from datastore.items.updates import ItemChange
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import photos as keys
from datastore.keyspace.photos import uploads as upload_keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.composite_keys import Key
from datastore.objects import ObjectStore
from datastore.photos.face_tags import MAX_FACES, without_face
from datastore.photos.file_deletion_outbox import FileDeletionOutbox, incoming_keys, record_files
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import (
    ChangedMeanwhile,
    OptimisticUpdate,
    faces_update,
    require_own,
    require_taken_at,
    retry_if_changed,
)
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.photos.users import UPLOAD_LIMIT
from datastore.primitives.tasks import gather_all
from datastore.session.optimistic_locking import updated_record, version_values, versioned_update
from datastore.session.store import Store
from datastore.session.writes import Action

# The user's upload count is 0 already.
HAS_NONE = "uploadCount < :one"


@dataclass(frozen=True, slots=True)
class PhotoUpdates:
    """SPARKS-W1: updates and deletes photos. `email` is the caller's, in lower case."""

    store: Store
    lookups: Lookups
    objects: ObjectStore
    now: datetime

    async def update(self, image_id: str, email: str, taken_at: datetime | None, change: ItemChange[Photo]) -> Photo:
        """Change attributes of a photo. Raises `NotFound`, `Forbidden` or `Outdated`.

        With the capture time this is one write. If it is stored in another form, the photo is read first.
        """
        if taken_at is not None:
            with suppress(ChangedMeanwhile):
                return await self._write(keys.photo(image_id, keys.sort_key_at(taken_at)), email, change)
        return await retry_if_changed(lambda: self._update(image_id, email, taken_at, change))

    async def _update(self, image_id: str, email: str, taken_at: datetime | None, change: ItemChange[Photo]) -> Photo:
        stored = await OptimisticUpdate(self.store, self.lookups).photo(image_id)
        photo = require_own(require_taken_at(stored, taken_at), email)
        return await self._write(photo.key, photo.email, change)

    async def _write(self, key: Key, email: str, change: ItemChange[Photo]) -> Photo:
        """Write a change. Return the changed photo. Raises `ChangedMeanwhile` if the user has no photo of this key."""
        expression, values = versioned_update(change.changes)
        values |= {"me": email, **version_values(change.expected)}
        written = await self.store.update(keys.UPDATE_PHOTO, key, update=expression, **values)
        self.lookups.clear_all()
        if written.item is None or written.item.get("email") != email:
            raise ChangedMeanwhile
        return updated_record(written, change.expected, change.changes, Photo.decoder, ChangedMeanwhile)

    async def delete(
        self, image_id: str, email: str | None, taken_at: datetime | None, *, is_admin: bool = False
    ) -> Photo | None:
        """Delete a photo with its faces, and then its files. Return the photo as it was, or None if there is none.

        The photo no longer counts for its owner's upload limit. After a failed deletion of files the outbox record
        remains, and the files are deleted later.

        Raises `NotFound` for a photo of another capture time, `Forbidden` for another user's photo unless `is_admin`.
        """
        photo = await retry_if_changed(lambda: self._delete(image_id, email, taken_at, is_admin))
        if photo is not None:
            await FileDeletionOutbox(self.store, self.objects).delete_files(image_id, _files(photo))
        return photo

    async def _delete(
        self, image_id: str, email: str | None, taken_at: datetime | None, is_admin: bool
    ) -> Photo | None:
        current = OptimisticUpdate(self.store, self.lookups)
        stored = require_taken_at(await current.photo_taken(image_id, taken_at), taken_at)
        if stored is None:
            return None
        photo = require_own(stored, email, is_admin=is_admin)
        complete = await current.with_all_faces(photo)
        if len(complete.faces) > MAX_FACES:  # another program tagged them: some faces are deleted before the photo
            await self._delete_faces(current, complete, complete.faces[:MAX_FACES])
            raise ChangedMeanwhile
        await current.commit(keys.DELETE_PHOTO, [_delete_action(photo), *await self._cascade(current, complete)])
        return photo

    async def _cascade(self, current: OptimisticUpdate, photo: Photo) -> list[Action]:
        """Return the actions that belong to a deletion: faces, persons' counts, the owner's count, and the outbox."""
        persons, existing, user = await asyncio.gather(
            current.persons(_names(photo, photo.faces)),
            self._existing(current, photo.image_id, photo.faces),
            current.get(keys.DELETE_PHOTO, user_keys.user(photo.email)),
        )
        return [
            *_face_deletes(photo.image_id, photo.faces),
            *await current.count_decrements(persons, [face.person_id for face in existing]),
            await self._upload_count_decrement(photo.email, user),
            record_files(photo.image_id, _files(photo), self.now),
        ]

    async def _upload_count_decrement(self, email: str, user: Item | None) -> Action:
        """Return the action that subtracts the photo from the user's upload count, or starts a count without it."""
        key = user_keys.user(email)
        if user is None:
            return Action("ConditionCheck", key=key, condition=upload_keys.NOT_EXISTS)
        count, one = user.get("uploadCount"), {"one": 1}
        if count is None:
            start = upload_keys.START_COUNT
            counted = await self.store.count(upload_keys.COUNT_PHOTOS, keys.photo_of_user.values_of(email))
            initial = {"count": max(0, counted - 1), "limit": UPLOAD_LIMIT, "null": "NULL"}
            return Action("Update", key=key, update=start.update, condition=start.condition, values=initial)
        if count < 1:
            return Action("ConditionCheck", key=key, condition=HAS_NONE, values=one)
        return Action(
            "Update", key=key, update=upload_keys.DECREMENT_UPLOAD_COUNT, condition=upload_keys.HAS_UPLOADS, values=one
        )

    async def _delete_faces(self, current: OptimisticUpdate, photo: Photo, faces: Sequence[FaceOnPhoto]) -> None:
        """Delete some faces of a photo in one transaction."""
        after = photo
        for face in faces:
            after = without_face(after, face)
        existing = await self._existing(current, photo.image_id, faces)
        persons = await current.persons(_names(photo, existing))
        counts = await current.count_decrements(persons, [face.person_id for face in existing])
        actions = [faces_update(photo, after), *_face_deletes(photo.image_id, faces), *counts]
        await current.commit(keys.DELETE_PHOTO, actions)

    async def _existing(
        self, current: OptimisticUpdate, image_id: str, faces: Sequence[FaceOnPhoto]
    ) -> list[FaceOnPhoto]:
        """Return the stored faces, without deleted ones that the photo or the index still lists."""
        reads = [current.get(keys.DELETE_PHOTO, face_keys.face(face.face_id, image_id)) for face in faces]
        return [face for face, item in zip(faces, await gather_all(reads), strict=True) if item is not None]


def _files(photo: Photo) -> list[str]:
    """Return the keys of a photo's files, including files that were uploaded again."""
    return [photo.original_key, photo.thumbnail_key, *incoming_keys(photo.image_id)]


def _delete_action(photo: Photo) -> Action:
    values = {"me": photo.email, "revision": photo.revision, "null_type": "NULL"}
    return Action("Delete", key=photo.key, condition=keys.OWN_UNCHANGED, values=values)


def _face_deletes(image_id: str, faces: Iterable[FaceOnPhoto]) -> list[Action]:
    return [Action("Delete", key=face_keys.face(face.face_id, image_id)) for face in faces]


def _names(photo: Photo, faces: Iterable[FaceOnPhoto]) -> dict[str, str | None]:
    """Return the last known names of the faces' persons, by id."""
    return {face.person_id: photo.person_names.get(face.person_id) for face in faces}
