"""One person of two: the faces of the one become the other's, some at a time, until the one has none and goes.

From the beginning the one is marked with whom they become (`mergedInto`) and gets no new faces, and the other with whom
they receive (`receives`) and cannot go: a merge that was cut off goes on when it is asked for again. Every transaction
moves its part of both counts.

The faces are found by an index, which follows the table a moment later. So the one goes when their count says that they
have no more; while it says they have, or nothing, the merge stays open, to be asked for again. Only when it has been
open for so long that no index lags any more, the index is right, whatever the count.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from datastore.dynamodb.codec import Item
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Conflict
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import key_of
from datastore.model.timestamps import iso
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import (
    Changed,
    OptimisticUpdate,
    face_values,
    no_person,
    shown_change,
    until_unchanged,
)
from datastore.photos.persons import Person
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.photos.rename_person import whole
from datastore.session.store import Store
from datastore.session.writes import Action
from datastore.tasks import gather_all

# Each with its photo, and both persons, fit in a transaction of 100 actions.
FACES_AT_ONCE = 20
# How long to look again for faces that may not be in the index yet.
LAGGING = Backoff(initial=0.1, maximum=0.8, attempts=5)
# Who is becoming another gets no faces: what the index does not show so long after it began is not there.
LONGEST_LAG = timedelta(minutes=10)
MAY_BECOME = (
    "attribute_exists(PK) AND attribute_not_exists(receives) "
    "AND (attribute_not_exists(mergedInto) OR mergedInto = :former)"
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The items of the two; None of who is gone."""

    one: Item | None
    into: Item


@dataclass(frozen=True, slots=True)
class _Face:
    """Which face on which photo, and whose."""

    face_id: str
    image_id: str
    person_id: str
    photo_sort: str | None


def with_faces_moved(photo: Photo, moved: Sequence[str], one: str, into: Item) -> Photo:
    """The photo when those faces of `one` are `into`'s, who comes in their place, each person once."""
    known = {face.face_id for face in photo.faces}
    faces = tuple(face._replace(person_id=into["personId"]) if face.face_id in moved else face for face in photo.faces)
    faces += tuple(FaceOnPhoto(face_id, into["personId"]) for face_id in moved if face_id not in known)
    stays = {one} & {face.person_id for face in faces}
    ids = [name for id in photo.person_ids for name in ((into["personId"], *stays) if id == one else (id,))]
    names = {id: name for id, name in photo.person_names.items() if id != one or stays}
    return replace(
        photo,
        faces=faces,
        person_ids=tuple(dict.fromkeys((*ids, into["personId"]))),
        person_names=names | {into["personId"]: into["name"]},
        revision=photo.revision + 1,
    )


class PersonMerge:
    """SPARKS-W1."""

    def __init__(self, store: Store, lookups: Lookups, now: datetime) -> None:
        self._store = store
        self._current = OptimisticUpdate(store, lookups)
        self._now = now

    async def merge(self, one: str, into: str) -> Person:
        """The person `into`, when all faces of `one` are theirs, also of one who is gone: they were merged before.

        Raises `NotFound` for `into`, `Conflict` where one of both is in another merge that stands against it, and
        while the index does not show all faces that are counted: then the merge goes on when it is asked for again.
        """
        pair = await until_unchanged(lambda: self._begin(one, into))
        delays = LAGGING.delays(lambda: 1.0)
        if pair.one is None:
            await self._move_all(one, into)
        while pair.one is not None:
            moved = await self._move_all(one, into)
            pair = await self._pair(one, into)
            if pair.one is None or moved:
                continue
            # What nobody counted is not known to be none.
            more = pair.one.get("faceCount") is None or pair.one["faceCount"] > 0
            delay = next(delays, None) if more else None
            if delay is not None:
                await asyncio.sleep(delay)
            elif more and not self._is_old(pair.one):
                raise _open(pair.one)
            elif await self._end(pair.one, pair.into):
                break
        return whole(await until_unchanged(lambda: self._merged(one, into)))

    def _is_old(self, one: Item) -> bool:
        """Whether `one` has been becoming another for longer than an index lags."""
        since = one.get("mergedAt")
        return since is not None and since < iso(self._now - LONGEST_LAG)

    async def _merged(self, one: str, into: str) -> Item:
        """`into`, without a mark of `one`, who is gone."""
        person = await self._known(into)
        if one in (person.get("receives") or ()):
            await self._current.commit(keys.MERGE_PERSONS, [_no_more_of(one, person)])
            person = {name: value for name, value in person.items() if name != "receives"}
        return person

    async def _begin(self, one: str, into: str) -> _Pair:
        """Both, `one` marked if they are there."""
        pair = await self._pair(one, into)
        if pair.one is None or (pair.one.get("mergedInto") == into and pair.one.get("mergedAt")):
            return pair
        await self._may_become(pair.one, into)
        # Nobody becomes somebody who becomes another: of two merges across each other one is refused.
        await self._current.commit(
            keys.MERGE_PERSONS,
            [
                Action(
                    "Update",
                    key=key_of(SPARKS, pair.one),
                    update="SET mergedInto = :into, mergedAt = :now",
                    condition=MAY_BECOME,
                    values={"into": into, "former": pair.one.get("mergedInto"), "now": iso(self._now)},
                ),
                Action(
                    "Update",
                    key=key_of(SPARKS, pair.into),
                    update="ADD receives :one",
                    condition="attribute_exists(PK) AND attribute_not_exists(mergedInto)",
                    values={"one": {one}},
                ),
            ],
        )
        return pair

    async def _may_become(self, one: Item, into: str) -> None:
        """Raise `Conflict` for who is becoming another than `into`, or whom another is becoming."""
        former, receives = one.get("mergedInto"), one.get("receives")
        if former not in (None, into) and await self._current.person(former) is not None:
            raise Conflict(f"{one['personId']} is being merged into {former}: finish that first.")
        if receives:
            raise Conflict(f"{min(receives)} is being merged into {one['personId']}: finish that first.")

    async def _pair(self, one: str, into: str) -> _Pair:
        """Both as they are now. Raises `NotFound` for `into`, `Conflict` where they are becoming another."""
        first, second = await gather_all([self._current.person(one), self._known(into)])
        assert second is not None, "They are known."
        if second.get("mergedInto") is not None:
            raise Conflict(f"{into} is being merged into {second['mergedInto']}: finish that first.")
        return _Pair(first, second)

    async def _known(self, person_id: str) -> Item:
        person = await self._current.person(person_id)
        if person is None:
            raise no_person(person_id)
        return person

    async def _move_all(self, one: str, into: str) -> int:
        """Once through the faces of `one` as the index has them: how many were moved."""
        moved, start = 0, None
        while True:
            page = await self._store.query(keys.FACES_TO_MERGE, face_values(one), start=start, limit=FACES_AT_ONCE)
            listed = [face_keys.face_parts(key_of(SPARKS, item)) for item in page.items]
            if listed:
                moved += await until_unchanged(lambda: self._move(one, into, listed))  # noqa: B023 - it is awaited
            if (start := page.next_start) is None:
                return moved

    async def _move(self, one: str, into: str, listed: Sequence[tuple[str, str]]) -> int:
        """Move those of the faces that are still `one`'s, in one transaction."""
        pair, *found = await gather_all([self._pair(one, into), *[self._face(*ids) for ids in listed]])
        faces = [face for face in found if isinstance(face, _Face) and face.person_id == one]
        if not faces or not isinstance(pair, _Pair):
            return 0
        changes = [
            shown_change(photo, with_faces_moved(photo, [face.face_id for face in on_it], one, pair.into))
            for photo, on_it in await self._photos(faces)
        ]
        counts = [await self._current.count_change(pair.into, len(faces))]
        if pair.one is not None:
            counts.append(await self._current.count_change(pair.one, -len(faces)))
        await self._current.commit(keys.MERGE_PERSONS, [*[_move_of(face, into) for face in faces], *changes, *counts])
        return len(faces)

    async def _face(self, face_id: str, image_id: str) -> _Face | None:
        """Of a face what its move takes: one that is damaged otherwise is moved too."""
        item = await self._current.get(face_keys.FACE_CONSISTENT, face_keys.face(face_id, image_id))
        return None if item is None else _Face(face_id, image_id, item["personId"], item.get("photoSK"))

    async def _photos(self, faces: Sequence[_Face]) -> list[tuple[Photo, list[_Face]]]:
        """The photos the faces are on, each with those; none for faces whose photo is gone."""
        by_photo: dict[str, list[_Face]] = {}
        for face in faces:
            by_photo.setdefault(face.image_id, []).append(face)
        found = await gather_all([self._photo(image_id, on_it) for image_id, on_it in by_photo.items()])
        return [(photo, on_it) for photo, on_it in zip(found, by_photo.values(), strict=True) if photo is not None]

    async def _photo(self, image_id: str, faces: Sequence[_Face]) -> Photo | None:
        photo = await self._current.photo(image_id, faces[0].photo_sort)
        return None if photo is None else await self._current.with_all_faces(photo)

    async def _end(self, one: Item, into: Item) -> bool:
        """Whether `one` is deleted: not if something was changed just now."""
        values = {"into": into["personId"], "seen": one.get("faceCount")}
        actions = [
            Action("Delete", key=key_of(SPARKS, one), condition=keys.MERGE_PERSONS.condition, values=values),
            _no_more_of(one["personId"], into),
        ]
        try:
            await self._current.commit(keys.MERGE_PERSONS, actions)
        except Changed:
            return False
        return True


def _open(one: Item) -> Conflict:
    """What a caller is told of a merge that cannot end yet: of who is not counted only the index can tell, in time."""
    when = "soon"
    if one.get("faceCount") is None:
        when = f"in {LONGEST_LAG // timedelta(minutes=1)} minutes"
    return Conflict(
        f"The index may not show all faces yet. The merge is begun: to finish it, ask for it again {when}.",
        retryable=True,
    )


def _no_more_of(one: str, into: Item) -> Action:
    return Action(
        "Update",
        key=key_of(SPARKS, into),
        update="DELETE receives :one",
        condition="attribute_exists(PK)",
        values={"one": {one}},
    )


def _move_of(face: _Face, into: str) -> Action:
    return Action(
        "Update",
        key=face_keys.face(face.face_id, face.image_id),
        update="SET personId = :into",
        condition="personId = :one",
        values={"one": face.person_id, "into": into},
    )
