"""The library as it is now: what a write goes by is read consistently, and read again where it changed meanwhile.

A change is one transaction of the photo (its `revision` guards whom it shows), its faces, and the persons' counts.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Conflict, Forbidden, NotFound
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as person_keys
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, key_of
from datastore.model.identifiers import ascii_lower
from datastore.model.timestamps import iso
from datastore.photos.faces import Face, face_from
from datastore.photos.lookups import AT_ONCE, Lookups
from datastore.photos.photos import FaceOnPhoto, Photo, faces_attribute, photo_from
from datastore.session.store import Store
from datastore.session.writes import Action
from datastore.tasks import gather_all

T = TypeVar("T")

CHANGES = Backoff(initial=0.02, maximum=0.5, attempts=12)
# As many faces as one item has room for, with ids of any usual length.
MOST_LISTED = 500
UNCOUNTED = "(attribute_not_exists(faceCount) OR attribute_type(faceCount, :nothing))"
STAYS = "(attribute_not_exists(mergedInto) OR attribute_type(mergedInto, :nothing))"
# While a person gets another name, a Query may come between the item that goes and the one that comes.
MOVING_SECONDS = 0.05


class Changed(Exception):
    """Something is not as it was read."""


async def until_unchanged(attempt: Callable[[], Awaitable[T]]) -> T:
    """What the attempt answers, which reads and then writes; from its reads again when it raises `Changed`.

    Raises `Conflict` when that happens too often.
    """
    for delay in (*CHANGES.delays(), None):
        try:
            return await attempt()
        except Changed:
            if delay is not None:
                await asyncio.sleep(delay)
    raise Conflict("This changes too often at the moment; try again.", retryable=True)


def no_person(person_id: str) -> NotFound:
    return NotFound(f"There is no person {person_id!r}.")


def may_change(photo: Photo, me: str | None, *, is_admin: bool = False) -> bool:
    """Whether the photo is the user's. `me` is an email in lower case; an admin may change any, and may have none."""
    return is_admin or ascii_lower(photo.email) == me


def own(photo: Photo | None, me: str | None, *, is_admin: bool = False) -> Photo:
    """The photo, which the user may change. Raises `NotFound` or `Forbidden`."""
    if photo is None:
        raise NotFound("There is no such photo.")
    if not may_change(photo, me, is_admin=is_admin):
        raise Forbidden("This is another user's photo.")
    return photo


def of_moment(photo: Photo | None, taken_at: datetime | None) -> Photo | None:
    """The photo, which was taken at that moment; None allows any. Raises `NotFound` for one of another moment."""
    if photo is not None and taken_at is not None and iso(photo.taken_at) != iso(taken_at):
        raise NotFound("There is no such photo taken at that moment.", field="takenAt")
    return photo


def shown_change(before: Photo, after: Photo) -> Action:
    """Write whom the photo shows, if that is still as it was."""
    return Action(
        "Update",
        key=before.key,
        update="SET persons = :persons, personNames = :names, faces = :faces, revision = :next",
        condition=photo_keys.UNCHANGED,
        values={
            "persons": list(after.person_ids),
            "names": dict(after.person_names),
            "faces": faces_attribute(_with_room(after.faces)),
            "revision": before.revision,
            "nothing": "NULL",
            "next": before.revision + 1,
        },
    )


def _with_room(faces: tuple[FaceOnPhoto, ...]) -> tuple[FaceOnPhoto, ...]:
    """The faces that a photo may list, where others tagged very many: of a person all or none.

    Whose faces it lists none of is found by the index still.
    """
    room, listed = MOST_LISTED, set[str]()
    for person_id, count in Counter(face.person_id for face in faces).items():
        if count <= room:
            room -= count
            listed.add(person_id)
    return tuple(face for face in faces if face.person_id in listed)


class OptimisticUpdate:
    """Reads that see all writes up to now, anew each time, and transactions by what they saw."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def commit(self, pattern: AccessPattern, actions: Sequence[Action]) -> None:
        """All of the actions or none. Raises `Changed` when a condition does not hold."""
        try:
            await self._store.transact(pattern, actions)
        except TransactionCancelled as cancelled:
            if "ConditionalCheckFailed" not in cancelled.reasons:
                raise
            raise Changed from cancelled
        finally:
            self._lookups.clear_all()

    async def photo(self, image_id: str, sort: str | None = None) -> Photo | None:
        """By the sort key as the table has it; where that is not known, or not right, by the id alone."""
        item = None if sort is None else await self.get(photo_keys.PHOTO_CONSISTENT, photo_keys.photo(image_id, sort))
        if item is None:
            item = await self._first(photo_keys.PHOTO_CONSISTENT, photo_keys.partition(image_id), photo_keys.PREFIX)
        return record(photo_from, item)

    async def photo_taken(self, image_id: str, taken_at: datetime | None) -> Photo | None:
        """By when it was taken, which others may have written in another form; or else one of another moment."""
        return await self.photo(image_id, None if taken_at is None else photo_keys.sort_key_at(taken_at))

    async def face(self, face_id: str, image_id: str) -> Face | None:
        return record(face_from, await self.get(face_keys.FACE_CONSISTENT, face_keys.face(face_id, image_id)))

    async def face_with_id(self, face_id: str) -> Face | None:
        """A face on whatever photo."""
        return record(
            face_from, await self._first(face_keys.FACE_CONSISTENT, face_keys.partition(face_id), photo_keys.PREFIX)
        )

    async def person(self, person_id: str, name: str | None = None, *, patient: bool = True) -> Item | None:
        """The item of a person, by the name where it is known and still right.

        `patient`: who is not found is looked for again, for they may just be getting another name.
        """
        pattern, item = person_keys.PERSON_CONSISTENT, None
        if name is not None:
            item = await self.get(pattern, person_keys.person(person_id, name))
        if item is None:
            item = await self._first(pattern, person_keys.partition(person_id), person_keys.PREFIX)
        if item is None and patient:
            await asyncio.sleep(MOVING_SECONDS)
            return await self.person(person_id, patient=False)
        return item

    async def persons(self, names: Mapping[str, str | None]) -> dict[str, Item]:
        """The items of those who are there, by their ids; `names` are their last known ones."""
        found = await gather_all([self.person(id, name) for id, name in names.items()])
        return {id: item for id, item in zip(names, found, strict=True) if item is not None}

    async def with_all_faces(self, photo: Photo) -> Photo:
        """The photo with the faces that it does not know of, where others wrote it: they are among its persons'.

        Each once, as the photo lists it where it does: the index follows a moment later.
        """
        known = {face.person_id for face in photo.faces}
        others = [id for id in dict.fromkeys(photo.person_ids) if id and id not in known]
        found = await gather_all([self._faces_on(photo.image_id, person_id) for person_id in others])
        distinct = dict[str, FaceOnPhoto]()
        for face in (*photo.faces, *[face for faces in found for face in faces]):
            distinct.setdefault(face.face_id, face)
        return replace(photo, faces=tuple(distinct.values()))

    async def count_change(self, person: Item, change: int) -> Action:
        """So many faces more, or less: of a person who is not counted yet, the faces are counted.

        Faces do not come to somebody who is becoming another. No count falls below 0, however it came to be.
        """
        seen, condition = person.get("faceCount"), "attribute_exists(PK)"
        if seen is None and person.get("mergedInto") is not None and change <= 0:
            return _still_uncounted(person)
        if seen is None:
            counted = await self._store.count(person_keys.COUNT_FACES, face_values(person["personId"]))
            condition += f" AND {UNCOUNTED} AND {STAYS}"
            values: dict[str, Any] = {"count": max(0, counted + change), "nothing": "NULL"}
        elif seen + change < 0:
            condition += " AND faceCount = :seen"
            values = {"count": 0, "seen": seen}
        else:
            condition += " AND faceCount >= :least"
            values = {"change": change, "least": -change}
        return Action(
            "Update",
            key=key_of(SPARKS, person),
            update="SET faceCount = faceCount + :change" if "change" in values else "SET faceCount = :count",
            condition=condition + (" AND attribute_not_exists(mergedInto)" if change > 0 else ""),
            values=values,
        )

    async def count_changes(self, persons: Mapping[str, Item], less: Iterable[str]) -> list[Action]:
        """One face less for each of the ids, of those persons who are there."""
        ids = list(less)
        return [await self.count_change(person, -ids.count(id)) for id, person in persons.items() if id in ids]

    async def get(self, pattern: AccessPattern, key: Key) -> Item | None:
        """A point read; what was read before counts for nothing."""
        self._store.invalidate(pattern.table, key)
        return await self._store.get(pattern, key)

    async def _first(self, pattern: AccessPattern, partition: str, prefix: str) -> Item | None:
        async with self._at_once:
            page = await self._store.query(pattern, {"partition": partition, "prefix": prefix}, limit=1)
        return page.items[0] if page.items else None

    async def _faces_on(self, image_id: str, person_id: str) -> list[FaceOnPhoto]:
        values = {**face_values(person_id), "image": image_id}
        async with self._at_once:
            items = [item async for item in self._store.query_all(person_keys.FACES_OF_PERSON, values)]
        return [FaceOnPhoto(face_keys.face_parts(key_of(SPARKS, item))[0], person_id) for item in items]


def _still_uncounted(person: Item) -> Action:
    """No count begins of who is becoming another: by an index that lags it might say 0, which ends the merge."""
    return Action(
        "ConditionCheck",
        key=key_of(SPARKS, person),
        condition=f"mergedInto = :into AND {UNCOUNTED}",
        values={"into": person["mergedInto"], "nothing": "NULL"},
    )


def face_values(person_id: str) -> dict[str, str]:
    """The values of a Query of a person's faces."""
    return {"partition": person_id, "prefix": face_keys.PREFIX}
