"""Face tags: adds and removes faces together with the photo's lists and the person's face count."""

import asyncio
from datetime import datetime

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.errors import Conflict
from datastore.keyspace.photos import faces as keys
from datastore.photos.faces import Face
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import (
    OptimisticUpdate,
    faces_update,
    may_change,
    no_person,
    require_own,
    require_taken_at,
    retry_if_changed,
)
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.session.store import Store
from datastore.session.writes import Action

# A photo, all its faces and the counts of their persons are deleted in one transaction of 100 actions.
MAX_FACES = 45
# The target of a merge may itself be the source of a later merge.
MAX_MERGES_FOLLOWED = 5


def with_face(photo: Photo, face: FaceOnPhoto, name: str) -> Photo:
    """Return the photo with a tagged face. It replaces a deleted face of the same id that is still listed."""
    for deleted in [listed for listed in photo.faces if listed.face_id == face.face_id]:
        photo = replace(without_face(photo, deleted), revision=photo.revision)
    return replace(
        photo,
        faces=(*photo.faces, face),
        person_ids=tuple(dict.fromkeys((*photo.person_ids, face.person_id))),
        person_names={**photo.person_names, face.person_id: name},
        revision=photo.revision + 1,
    )


def without_face(photo: Photo, removed: FaceOnPhoto) -> Photo:
    """Return the photo without a face, and without its person if it was the person's last face."""
    faces = tuple(face for face in photo.faces if face.face_id != removed.face_id)
    without_faces = {removed.person_id} - {face.person_id for face in faces}
    return replace(
        photo,
        faces=faces,
        person_ids=tuple(id for id in photo.person_ids if id not in without_faces),
        person_names={id: name for id, name in photo.person_names.items() if id not in without_faces},
        revision=photo.revision + 1,
    )


class FaceTags:
    """SPARKS-W1: tags and untags faces. `email` is the caller's, in lower case."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._current = OptimisticUpdate(store, lookups)

    async def tag(self, face: Face, email: str, *, taken_at: datetime | None = None, may_exist: bool = False) -> Face:
        """Tag a face. If it `may_exist`, return the existing face of its id.

        If its person is being merged into another, tag the merge's target.

        Raises `NotFound` if there is no such photo or person, `Forbidden` for another user's photo, `Conflict` at the
        maximum number of faces and for the id of a face on another photo.
        """
        return await retry_if_changed(lambda: self._tag(face, email, taken_at, may_exist))

    async def _tag(self, face: Face, email: str, taken_at: datetime | None, may_exist: bool) -> Face:
        photo, person, existing = await asyncio.gather(
            self._current.photo_taken(face.image_id, taken_at),
            self._current.person(face.person_id),
            self._current.face_with_id(face.face_id) if may_exist else _no_face(),
        )
        photo = require_own(require_taken_at(photo, taken_at), email)
        if existing is not None:
            return _tagged_before(existing, photo)
        person = await self._merge_target(person, face.person_id)
        photo = await self._current.with_all_faces(photo)
        if len(photo.faces) >= MAX_FACES:
            raise Conflict(f"A photo may have at most {MAX_FACES} faces.")
        person_id = person["personId"]
        after = with_face(photo, FaceOnPhoto(face.face_id, person_id), person["name"])
        tagged = replace(face, person_id=person_id, photo_sort=photo.key.sort, photo=after, just_changed=True)
        await self._current.commit(
            keys.TAG_FACE,
            [
                Action("Put", item=tagged.item(), condition=keys.TAG_FACE.condition),
                faces_update(photo, after),
                await self._current.count_update(person, 1),
            ],
        )
        return tagged

    async def _merge_target(self, person: Item | None, person_id: str) -> Item:
        """Return the person, or the person into whom the person is being merged."""
        for _ in range(MAX_MERGES_FOLLOWED):
            if person is None:
                raise no_person(person_id)
            target = person.get("mergedInto")
            if target is None:
                return person
            person, person_id = await self._current.person(target), target
        raise Conflict("This person is being merged into another; try again.", retryable=True)

    async def untag(self, face_id: str, image_id: str, email: str | None, *, is_admin: bool = False) -> Face | None:
        """Remove a face. Return it as it was, or None if there is none; the caller's photo then no longer lists it.

        An admin may remove any face, including that of a deleted photo.

        Raises `NotFound` or `Forbidden` for its photo.
        """
        return await retry_if_changed(lambda: self._untag(face_id, image_id, email, is_admin))

    async def _untag(self, face_id: str, image_id: str, email: str | None, is_admin: bool) -> Face | None:
        face = await self._current.face(face_id, image_id)
        if face is None:
            await self._unlist(face_id, image_id, email, is_admin)
            return None
        photo, person = await asyncio.gather(
            self._current.photo(image_id, face.photo_sort), self._current.person(face.person_id)
        )
        actions = [_delete_action(face), *([] if person is None else [await self._current.count_update(person, -1)])]
        if photo is None and is_admin:
            await self._current.commit(keys.UNTAG_FACE, actions)
            return face
        photo = await self._current.with_all_faces(require_own(photo, email, is_admin=is_admin))
        after = without_face(photo, FaceOnPhoto(face_id, face.person_id))
        await self._current.commit(keys.UNTAG_FACE, [*actions, faces_update(photo, after)])
        return replace(face, photo=after, just_changed=True)

    async def _unlist(self, face_id: str, image_id: str, email: str | None, is_admin: bool) -> None:
        """Remove a deleted face from the lists of its photo, if the caller may change the photo."""
        photo = await self._current.photo(image_id)
        if photo is None or not may_change(photo, email, is_admin=is_admin):
            return
        after = photo
        for face in [face for face in photo.faces if face.face_id == face_id]:
            after = without_face(after, face)
        if after is not photo:
            is_absent = Action("ConditionCheck", key=keys.face(face_id, image_id), condition=keys.TAG_FACE.condition)
            await self._current.commit(keys.UNTAG_FACE, [is_absent, faces_update(photo, after)])


async def _no_face() -> None:
    return None


def _delete_action(face: Face) -> Action:
    return Action(
        "Delete",
        key=keys.face(face.face_id, face.image_id),
        condition=keys.UNTAG_FACE.condition,
        values={"person": face.person_id},
    )


def _tagged_before(existing: Face, photo: Photo) -> Face:
    if existing.image_id != photo.image_id:
        raise Conflict(f"The id {existing.face_id} is taken.")
    return replace(existing, photo=photo, just_changed=True)
