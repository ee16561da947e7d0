"""Optimistic updates of the photo library: consistent reads, and transactions that are retried if the items changed.

A change is one transaction of the photo (its `revision` guards its lists of persons and faces), its faces, and the face
counts of persons.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Conflict, Forbidden, NotFound
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as person_keys
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import Key, key_of
from datastore.model.identifiers import ascii_lower
from datastore.model.timestamps import iso
from datastore.photos.faces import Face
from datastore.photos.lookups import CONCURRENCY, Lookups
from datastore.photos.photos import FaceOnPhoto, Photo, faces_attribute
from datastore.primitives.retries import retry
from datastore.primitives.tasks import gather_all
from datastore.session.store import Store
from datastore.session.writes import Action

T = TypeVar("T")

RETRIES_OF_CHANGES = Backoff(initial=0.02, maximum=0.5, attempts=12)
# The most faces that a photo's item lists. Each list of photos pays for their size.
MAX_LISTED_FACES = 500
UNCOUNTED = "(attribute_not_exists(faceCount) OR attribute_type(faceCount, :null_type))"
NOT_MERGING = "(attribute_not_exists(mergedInto) OR attribute_type(mergedInto, :null_type))"
# A rename replaces the item of a person. A concurrent Query may find neither of the two items.
RENAME_SECONDS = 0.05


class ChangedMeanwhile(Exception):
    """An item changed after it was read."""


async def retry_if_changed(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`, which reads and then writes. Repeat it while it raises `ChangedMeanwhile`.

    Raises `Conflict` after the last retry.
    """
    try:
        return await retry(attempt, RETRIES_OF_CHANGES.delays(), lambda problem: isinstance(problem, ChangedMeanwhile))
    except ChangedMeanwhile:
        raise Conflict("This changes too often at the moment; try again.", retryable=True) from None


def no_person(person_id: str) -> NotFound:
    return NotFound(f"There is no person {person_id!r}.")


def may_change(photo: Photo, email: str | None, *, is_admin: bool = False) -> bool:
    """Return whether a user may change a photo: its owner or an admin. `email` is the caller's, in lower case."""
    return is_admin or ascii_lower(photo.email) == email


def require_own(photo: Photo | None, email: str | None, *, is_admin: bool = False) -> Photo:
    """Return the photo. Raises `NotFound` if it is None, `Forbidden` if the user may not change it."""
    if photo is None:
        raise NotFound("There is no such photo.")
    if not may_change(photo, email, is_admin=is_admin):
        raise Forbidden("This is another user's photo.")
    return photo


def require_taken_at(photo: Photo | None, taken_at: datetime | None) -> Photo | None:
    """Return the photo. Raises `NotFound` if it was taken at another time. None for `taken_at` allows any time."""
    if photo is not None and taken_at is not None and iso(photo.taken_at) != iso(taken_at):
        raise NotFound("There is no such photo taken at that moment.", field="takenAt")
    return photo


def faces_update(before: Photo, after: Photo) -> Action:
    """Return the action that writes the photo's lists of persons and faces, if they are unchanged."""
    return Action(
        "Update",
        key=before.key,
        update="SET persons = :persons, personNames = :names, faces = :faces, revision = :next",
        condition=photo_keys.UNCHANGED,
        values={
            "persons": list(after.person_ids),
            "names": dict(after.person_names),
            "faces": faces_attribute(_listed_faces(after.faces)),
            "revision": before.revision,
            "null_type": "NULL",
            "next": before.revision + 1,
        },
    )


def _listed_faces(faces: tuple[FaceOnPhoto, ...]) -> tuple[FaceOnPhoto, ...]:
    """Return the faces to list in the photo's item: at most `MAX_LISTED_FACES`, and of each person all or none.

    Only other programs tag more. Faces that are not listed are found in the index by person.
    """
    available, listed = MAX_LISTED_FACES, set[str]()
    for person_id, count in Counter(face.person_id for face in faces).items():
        if count <= available:
            available -= count
            listed.add(person_id)
    return tuple(face for face in faces if face.person_id in listed)


class OptimisticUpdate:
    """Consistent reads without caches, and transactions on the condition that the items have not changed."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def commit(self, pattern: AccessPattern, actions: Sequence[Action]) -> None:
        """Apply all of the actions or none. Raises `ChangedMeanwhile` if a condition fails."""
        try:
            await self._store.transact(pattern, actions)
        except TransactionCancelled as cancelled:
            if "ConditionalCheckFailed" not in cancelled.reasons:
                raise
            raise ChangedMeanwhile from cancelled
        finally:
            self._lookups.clear_all()  # the request's cached Queries may be outdated after any attempt

    async def photo(self, image_id: str, sort: str | None = None) -> Photo | None:
        """Read a photo by its stored sort key, or by its id if the key is unknown or outdated."""
        key = None if sort is None else photo_keys.photo(image_id, sort)
        values = photo_keys.photo_taken.values_of(image_id)
        return record(Photo.decoder, await self._read(consistently(photo_keys.PHOTO), key, values))

    async def photo_taken(self, image_id: str, taken_at: datetime | None) -> Photo | None:
        """Read a photo by its capture time, or by its id if the stored time has another form.

        The result may have another capture time: see `require_taken_at`.
        """
        return await self.photo(image_id, None if taken_at is None else photo_keys.sort_key_at(taken_at))

    async def face(self, face_id: str, image_id: str) -> Face | None:
        return record(Face.decoder, await self.get(face_keys.FACE_CONSISTENT, face_keys.face(face_id, image_id)))

    async def face_with_id(self, face_id: str) -> Face | None:
        """Read a face by its id, on any photo."""
        values = face_keys.face.values_of(face_id)
        return record(Face.decoder, await self._read(face_keys.FACE_CONSISTENT, None, values))

    async def person(self, person_id: str, name: str | None = None, *, retry: bool = True) -> Item | None:
        """Read a person by id and name, or by id if the name is unknown or outdated.

        With `retry`, a person who is not found is read again: a concurrent rename may hide the person.
        """
        key = None if name is None else person_keys.person(person_id, name)
        item = await self._read(consistently(person_keys.PERSON), key, person_keys.person.values_of(person_id))
        if item is None and retry:
            await asyncio.sleep(RENAME_SECONDS)
            return await self.person(person_id, retry=False)
        return item

    async def persons(self, names: Mapping[str, str | None]) -> dict[str, Item]:
        """Return the items of the existing persons, by id. `names` contains the last known name of each id."""
        items = await gather_all([self.person(id, name) for id, name in names.items()])
        return {id: item for id, item in zip(names, items, strict=True) if item is not None}

    async def with_all_faces(self, photo: Photo) -> Photo:
        """Return the photo with its unlisted faces too.

        They are read from the index by person, for each person without a listed face. A face that the photo lists under
        another person stays with that person, because the index lags.
        """
        listed = {face.person_id for face in photo.faces}
        unlisted = [id for id in dict.fromkeys(photo.person_ids) if id and id not in listed]
        indexed = await gather_all([self._faces_on(photo.image_id, person_id) for person_id in unlisted])
        distinct = dict[str, FaceOnPhoto]()
        for face in (*photo.faces, *[face for faces in indexed for face in faces]):
            distinct.setdefault(face.face_id, face)
        return replace(photo, faces=tuple(distinct.values()))

    async def count_update(self, person: Item, change: int) -> Action:
        """Return the action that adds `change` to the face count of a person.

        A person without a stored count gets the number of faces in the index plus `change`.

        A person who is being merged into another gets no faces. A count never falls below 0.
        """
        seen, condition = person.get("faceCount"), "attribute_exists(PK)"
        if seen is None and person.get("mergedInto") is not None and change <= 0:
            return _still_uncounted(person)
        if seen is None:
            faces = face_keys.face_of_person.values_of(person["personId"])
            counted = await self._store.count(person_keys.COUNT_FACES, faces)
            condition += f" AND {UNCOUNTED} AND {NOT_MERGING}"
            values: dict[str, Any] = {"count": max(0, counted + change), "null_type": "NULL"}
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

    async def count_decrements(self, persons: Mapping[str, Item], removed: Iterable[str]) -> list[Action]:
        """Return the actions that subtract the number of removed faces of each person in `persons`.

        `removed` has the person id of each removed face.
        """
        ids = list(removed)
        return [await self.count_update(person, -ids.count(id)) for id, person in persons.items() if id in ids]

    async def get(self, pattern: AccessPattern, key: Key) -> Item | None:
        """Read an item without the request's cache."""
        self._store.invalidate(pattern.table, key)
        return await self._store.get(pattern, key)

    async def _read(self, pattern: AccessPattern, key: Key | None, values: Mapping[str, Any]) -> Item | None:
        """Read an item by its key, or else the first one of a Query."""
        item = None if key is None else await self.get(pattern, key)
        if item is not None:
            return item
        async with self._slots:
            page = await self._store.query(pattern, values, limit=1)
        return page.items[0] if page.items else None

    async def _faces_on(self, image_id: str, person_id: str) -> list[FaceOnPhoto]:
        values = {**face_keys.face_of_person.values_of(person_id), "image": image_id}
        async with self._slots:
            items = [item async for item in self._store.query_all(person_keys.FACES_OF_PERSON, values)]
        return [FaceOnPhoto(face_keys.face_parts(key_of(SPARKS, item))[0], person_id) for item in items]


def _still_uncounted(person: Item) -> Action:
    """Return the check that a person who is being merged has no count.

    The merge deletes the person when the count is 0. A count from the lagging index could be 0 too early.
    """
    return Action(
        "ConditionCheck",
        key=key_of(SPARKS, person),
        condition=f"mergedInto = :into AND {UNCOUNTED}",
        values={"into": person["mergedInto"], "null_type": "NULL"},
    )
