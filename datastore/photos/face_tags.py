"""Who is where on a photo: faces come and go, and with each of them the photo's lists and the person's count."""

import asyncio
from dataclasses import replace
from datetime import datetime

from datastore.dynamodb.codec import Item
from datastore.errors import Conflict
from datastore.keyspace.photos import faces as keys
from datastore.model.timestamps import iso
from datastore.photos.faces import Face
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import (
    OptimisticUpdate,
    may_change,
    no_person,
    of_moment,
    own,
    shown_change,
    until_unchanged,
)
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.session.store import Store
from datastore.session.writes import Action

# So that a photo is deleted with all its faces and the counts of their persons in one transaction of 100 actions.
MOST_FACES = 45
# A person may become another who becomes a third.
MERGES_FOLLOWED = 5


def face_item(face: Face) -> Item:
    """The face as the table keeps it."""
    key, box = keys.face(face.face_id, face.image_id), face.bounding_box
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "personId": face.person_id,
        "imageId": face.image_id,
        "photoSK": face.photo_sort,
        "confidence": face.confidence,
        "boundingBox": {"left": box.left, "top": box.top, "width": box.width, "height": box.height},
        "createdAt": iso(face.created_at),
    }


def with_face(photo: Photo, face: FaceOnPhoto, name: str) -> Photo:
    """The photo when somebody is tagged, in the place of a face with the same id that is gone and was still listed."""
    for gone in [one for one in photo.faces if one.face_id == face.face_id]:
        photo = replace(without_face(photo, gone), revision=photo.revision)
    return replace(
        photo,
        faces=(*photo.faces, face),
        person_ids=tuple(dict.fromkeys((*photo.person_ids, face.person_id))),
        person_names={**photo.person_names, face.person_id: name},
        revision=photo.revision + 1,
    )


def without_face(photo: Photo, gone: FaceOnPhoto) -> Photo:
    """The photo when a face is taken off; with their last one a person goes."""
    faces = tuple(face for face in photo.faces if face.face_id != gone.face_id)
    going = {gone.person_id} - {face.person_id for face in faces}
    return replace(
        photo,
        faces=faces,
        person_ids=tuple(id for id in photo.person_ids if id not in going),
        person_names={id: name for id, name in photo.person_names.items() if id not in going},
        revision=photo.revision + 1,
    )


class FaceTags:
    """SPARKS-W1. `me` is the email of the photo's owner, in lower case."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._current = OptimisticUpdate(store, lookups)

    async def tag(self, face: Face, me: str, *, taken_at: datetime | None = None, may_be_there: bool = False) -> Face:
        """The face, tagged, or the one that is there with its id (looked for if it `may_be_there`).

        Whom a merge is making another person is tagged as that one. Raises `NotFound` for a photo or person that is
        not there, `Forbidden` for another's photo, `Conflict` at the limit and for an id that is on another photo.
        """
        return await until_unchanged(lambda: self._tag(face, me, taken_at, may_be_there))

    async def _tag(self, face: Face, me: str, taken_at: datetime | None, may_be_there: bool) -> Face:
        photo, person, there = await asyncio.gather(
            self._current.photo_taken(face.image_id, taken_at),
            self._current.person(face.person_id),
            self._current.face_with_id(face.face_id) if may_be_there else _nothing(),
        )
        photo = own(of_moment(photo, taken_at), me)
        if there is not None:
            return _repeated(there, photo)
        person = await self._remaining(person, face.person_id)
        photo = await self._current.with_all_faces(photo)
        if len(photo.faces) >= MOST_FACES:
            raise Conflict(f"A photo may have at most {MOST_FACES} faces.")
        whose = person["personId"]
        after = with_face(photo, FaceOnPhoto(face.face_id, whose), person["name"])
        tagged = replace(face, person_id=whose, photo_sort=photo.key.sort, photo=after, just_changed=True)
        await self._current.commit(
            keys.TAG_FACE,
            [
                Action("Put", item=face_item(tagged), condition=keys.TAG_FACE.condition),
                shown_change(photo, after),
                await self._current.count_change(person, 1),
            ],
        )
        return tagged

    async def _remaining(self, person: Item | None, person_id: str) -> Item:
        """The person, or whom they are becoming."""
        for _ in range(MERGES_FOLLOWED):
            if person is None:
                raise no_person(person_id)
            into = person.get("mergedInto")
            if into is None:
                return person
            person, person_id = await self._current.person(into), into
        raise Conflict("This person is being merged into another; try again.", retryable=True)

    async def untag(self, face_id: str, image_id: str, me: str | None, *, is_admin: bool = False) -> Face | None:
        """The face as it was, or None if there is none: then one's photo does not list it any more, either.

        Raises `NotFound` or `Forbidden` by its photo. An admin may take any face off, and one whose photo is gone.
        """
        return await until_unchanged(lambda: self._untag(face_id, image_id, me, is_admin))

    async def _untag(self, face_id: str, image_id: str, me: str | None, is_admin: bool) -> Face | None:
        face = await self._current.face(face_id, image_id)
        if face is None:
            await self._unlist(face_id, image_id, me, is_admin)
            return None
        photo, person = await asyncio.gather(
            self._current.photo(image_id, face.photo_sort), self._current.person(face.person_id)
        )
        gone = [_deletion(face), *([] if person is None else [await self._current.count_change(person, -1)])]
        if photo is None and is_admin:
            await self._current.commit(keys.UNTAG_FACE, gone)
            return face
        photo = await self._current.with_all_faces(own(photo, me, is_admin=is_admin))
        after = without_face(photo, FaceOnPhoto(face_id, face.person_id))
        await self._current.commit(keys.UNTAG_FACE, [*gone, shown_change(photo, after)])
        return replace(face, photo=after, just_changed=True)

    async def _unlist(self, face_id: str, image_id: str, me: str | None, is_admin: bool) -> None:
        """Write a photo that one may change without a face that is gone, if it lists it."""
        photo = await self._current.photo(image_id)
        if photo is None or not may_change(photo, me, is_admin=is_admin):
            return
        after = photo
        for face in [face for face in photo.faces if face.face_id == face_id]:
            after = without_face(after, face)
        if after is not photo:
            still_gone = Action("ConditionCheck", key=keys.face(face_id, image_id), condition=keys.TAG_FACE.condition)
            await self._current.commit(keys.UNTAG_FACE, [still_gone, shown_change(photo, after)])


async def _nothing() -> None:
    return None


def _deletion(face: Face) -> Action:
    return Action(
        "Delete",
        key=keys.face(face.face_id, face.image_id),
        condition=keys.UNTAG_FACE.condition,
        values={"person": face.person_id},
    )


def _repeated(there: Face, photo: Photo) -> Face:
    if there.image_id != photo.image_id:
        raise Conflict(f"The id {there.face_id} is taken.")
    return replace(there, photo=photo, just_changed=True)
