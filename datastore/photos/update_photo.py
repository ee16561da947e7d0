"""What a photo says is changed, and photos are deleted, with all that hangs on them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from datastore.dynamodb.codec import Item
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import photos as keys
from datastore.keyspace.photos import uploads as upload_keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.composite_keys import Key
from datastore.objects import ObjectStore
from datastore.photos.face_tags import MOST_FACES, without_face
from datastore.photos.file_deletion_outbox import FileDeletionOutbox, removal_item
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import Changed, OptimisticUpdate, of_moment, own, shown_change, until_unchanged
from datastore.photos.photos import FaceOnPhoto, Photo, photo_from
from datastore.photos.users import UPLOAD_LIMIT
from datastore.session.optimistic_locking import updated_record, version_values, versioned_update
from datastore.session.store import Store
from datastore.session.writes import Action
from datastore.tasks import gather_all

# A user who has no place to give back.
HAS_NONE = "uploadCount < :one"


class PhotoChange(NamedTuple):
    """Attributes of a photo to change, None takes one away; and at which version, if not at any."""

    changes: Mapping[str, Any]
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class PhotoUpdates:
    """SPARKS-W1. `me` is the email of the photo's owner, in lower case."""

    store: Store
    lookups: Lookups
    objects: ObjectStore
    now: datetime

    async def update(self, image_id: str, me: str, taken_at: datetime | None, change: PhotoChange) -> Photo:
        """Change attributes of a photo. Raises `NotFound`, `Forbidden` or `Outdated`.

        Where the moment is given that is one write; where others wrote it in another form the photo is found first.
        """
        if taken_at is not None:
            with suppress(Changed):
                return await self._updated(keys.photo(image_id, keys.sort_key_at(taken_at)), me, change)
        return await until_unchanged(lambda: self._update(image_id, me, taken_at, change))

    async def _update(self, image_id: str, me: str, taken_at: datetime | None, change: PhotoChange) -> Photo:
        found = await OptimisticUpdate(self.store, self.lookups).photo(image_id)
        photo = own(of_moment(found, taken_at), me)
        return await self._updated(photo.key, photo.email, change)

    async def _updated(self, key: Key, email: str, change: PhotoChange) -> Photo:
        """The photo as it is now. Raises `Changed` when there is none at that key, or none of that user."""
        expression, values = versioned_update(change.changes)
        values |= {"me": email, **version_values(change.expected)}
        written = await self.store.update(keys.UPDATE_PHOTO, key, update=expression, **values)
        self.lookups.clear_all()
        if written.item is None or written.item.get("email") != email:
            raise Changed
        return updated_record(written, change.expected, change.changes, photo_from, Changed)

    async def delete(
        self, image_id: str, me: str | None, taken_at: datetime | None, *, is_admin: bool = False
    ) -> Photo | None:
        """Delete a photo with its faces, and then its files: the photo as it was, or None if there is none.

        Raises `NotFound` for one of another moment, and `Forbidden` for another's, which an admin may delete: its
        owner gets the place back. Files that cannot be removed now are later, by their note.
        """
        photo = await until_unchanged(lambda: self._delete(image_id, me, taken_at, is_admin))
        if photo is not None:
            await FileDeletionOutbox(self.store, self.objects).finish(
                image_id, removal_item(photo, self.now)["objectKeys"]
            )
        return photo

    async def _delete(self, image_id: str, me: str | None, taken_at: datetime | None, is_admin: bool) -> Photo | None:
        current = OptimisticUpdate(self.store, self.lookups)
        found = of_moment(await current.photo_taken(image_id, taken_at), taken_at)
        if found is None:
            return None
        photo = own(found, me, is_admin=is_admin)
        whole = await current.with_all_faces(photo)
        if len(whole.faces) > MOST_FACES:  # others tagged them: some faces go before
            await self._take_off(current, whole, whole.faces[:MOST_FACES])
            raise Changed
        await current.commit(keys.DELETE_PHOTO, [_deletion(photo), *await self._with_it(current, whole)])
        return photo

    async def _with_it(self, current: OptimisticUpdate, photo: Photo) -> list[Action]:
        """What a deletion takes with it: faces, their persons' counts, and the user's. And the note of the files."""
        persons, there, user = await asyncio.gather(
            current.persons(_names(photo, photo.faces)),
            self._there(current, photo.image_id, photo.faces),
            current.get(keys.DELETE_PHOTO, user_keys.user(photo.email)),
        )
        return [
            *_gone(photo.image_id, photo.faces),
            *await current.count_changes(persons, [face.person_id for face in there]),
            await self._given_back(photo.email, user),
            self._noted(photo),
        ]

    def _noted(self, photo: Photo) -> Action:
        """What is to be removed, beside what a note that is there names: of an upload with the same id."""
        item = removal_item(photo, self.now)
        values = {"type": item["entityType"], "id": photo.image_id, "at": item["createdAt"], "none": []}
        key = upload_keys.outbox_entry(photo.image_id)
        return Action(
            "Update", key=key, update=upload_keys.RECORD_OBJECTS, values=values | {"keys": item["objectKeys"]}
        )

    async def _given_back(self, email: str, user: Item | None) -> Action:
        """The user's place. Where no count is kept it begins without the photo: one that was begun meanwhile has it."""
        key = user_keys.user(email)
        if user is None:
            return Action("ConditionCheck", key=key, condition=upload_keys.NOT_EXISTS)
        count, one = user.get("uploadCount"), {"one": 1}
        if count is None:
            begin = upload_keys.START_COUNT
            values = {"partition": email, "prefix": keys.PREFIX}
            counted = await self.store.count(upload_keys.COUNT_PHOTOS, values)
            kept = {"count": max(0, counted - 1), "limit": UPLOAD_LIMIT, "null": "NULL"}
            return Action("Update", key=key, update=begin.update, condition=begin.condition, values=kept)
        if count < 1:
            return Action("ConditionCheck", key=key, condition=HAS_NONE, values=one)
        return Action(
            "Update", key=key, update=upload_keys.DECREMENT_UPLOAD_COUNT, condition=upload_keys.HAS_UPLOADS, values=one
        )

    async def _take_off(self, current: OptimisticUpdate, photo: Photo, faces: Sequence[FaceOnPhoto]) -> None:
        """Take some faces off a photo, in one transaction."""
        after = photo
        for face in faces:
            after = without_face(after, face)
        there = await self._there(current, photo.image_id, faces)
        persons = await current.persons(_names(photo, there))
        counts = await current.count_changes(persons, [face.person_id for face in there])
        await current.commit(keys.DELETE_PHOTO, [shown_change(photo, after), *_gone(photo.image_id, faces), *counts])

    async def _there(self, current: OptimisticUpdate, image_id: str, faces: Sequence[FaceOnPhoto]) -> list[FaceOnPhoto]:
        """Those of the faces that count: not those that are gone, and still listed or shown by the index."""
        read = [current.get(keys.DELETE_PHOTO, face_keys.face(face.face_id, image_id)) for face in faces]
        return [face for face, item in zip(faces, await gather_all(read), strict=True) if item is not None]


def _deletion(photo: Photo) -> Action:
    values = {"me": photo.email, "revision": photo.revision, "nothing": "NULL"}
    return Action("Delete", key=photo.key, condition=keys.OWN_UNCHANGED, values=values)


def _gone(image_id: str, faces: Iterable[FaceOnPhoto]) -> list[Action]:
    return [Action("Delete", key=face_keys.face(face.face_id, image_id)) for face in faces]


def _names(photo: Photo, faces: Iterable[FaceOnPhoto]) -> dict[str, str | None]:
    """Whose the faces are, each with the last known name."""
    return {face.person_id: photo.person_names.get(face.person_id) for face in faces}
