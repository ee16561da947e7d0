"""The merge of two persons: moves the faces of a source to a target in transactions, then deletes the source.

At the start the source is marked with its target (`mergedInto`), after which it gets no new faces. The target is marked
with its source (`receives`), and cannot be merged itself. A repeated merge continues an interrupted merge. Each
transaction also changes both face counts.

The faces are read from an index, which lags behind the table. The source is therefore deleted once its count is 0. If
its count is positive or unknown, the merge remains open and has to be repeated. Only after a time that no index lag
exceeds is the index trusted regardless of the count.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Conflict
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import key_of
from datastore.model.timestamps import iso
from datastore.photos.faces import Face
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import (
    ChangedMeanwhile,
    OptimisticUpdate,
    faces_update,
    no_person,
    retry_if_changed,
)
from datastore.photos.persons import Person, require_person
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.primitives.tasks import gather_all
from datastore.session.store import Store
from datastore.session.writes import Action

# These faces, their photos and both persons fit in a transaction of 100 actions.
FACES_PER_TRANSACTION = 20
# The retries for faces that may not be in the index yet.
INDEX_LAG_RETRIES = Backoff(initial=0.1, maximum=0.8, attempts=5)
# The source of a merge gets no new faces: after this time the index contains all of its faces.
MAX_INDEX_LAG = timedelta(minutes=10)
# The attributes of a face that a move needs. The others may be damaged.
MOVED_FACE = Face.decoder.projected(frozenset({"face_id", "image_id", "person_id", "photo_sort"}))
MAY_MERGE = (
    "attribute_exists(PK) AND attribute_not_exists(receives) "
    "AND (attribute_not_exists(mergedInto) OR mergedInto = :former)"
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The items of both persons. The source is None once it is deleted."""

    source: Item | None
    target: Item


def with_faces_moved(photo: Photo, moved: Sequence[str], source: str, target: Item) -> Photo:
    """Return the photo after a move of faces from `source` to `target`. Each person is listed once, in order."""
    target_id = target["personId"]
    listed = {face.face_id for face in photo.faces}
    faces = tuple(face._replace(person_id=target_id) if face.face_id in moved else face for face in photo.faces)
    faces += tuple(FaceOnPhoto(face_id, target_id) for face_id in moved if face_id not in listed)
    remaining = {source} & {face.person_id for face in faces}
    ids = [name for id in photo.person_ids for name in ((target_id, *remaining) if id == source else (id,))]
    names = {id: name for id, name in photo.person_names.items() if id != source or remaining}
    return replace(
        photo,
        faces=faces,
        person_ids=tuple(dict.fromkeys((*ids, target_id))),
        person_names=names | {target_id: target["name"]},
        revision=photo.revision + 1,
    )


class PersonMerge:
    """SPARKS-W1: the merge of a source person into a target person."""

    def __init__(self, store: Store, lookups: Lookups, now: datetime) -> None:
        self._store = store
        self._current = OptimisticUpdate(store, lookups)
        self._now = now

    async def merge(self, source: str, target: str) -> Person:
        """Merge `source` into `target`, and return `target`. A source that was deleted has been merged before.

        Raises `NotFound` if there is no `target`. Raises `Conflict` if either person takes part in a conflicting merge,
        and while the index does not contain all counted faces: then the merge has to be repeated.
        """
        pair = await retry_if_changed(lambda: self._start(source, target))
        delays = INDEX_LAG_RETRIES.delays(lambda: 1.0)
        if pair.source is None:
            await self._move_all(source, target)
        while pair.source is not None:
            moved = await self._move_all(source, target)
            pair = await self._pair(source, target)
            if pair.source is None or moved:
                continue
            # Without a count there may be more faces.
            may_have_more = pair.source.get("faceCount") is None or pair.source["faceCount"] > 0
            delay = next(delays, None) if may_have_more else None
            if delay is not None:
                await asyncio.sleep(delay)
            elif may_have_more and not self._is_index_complete(pair.source):
                raise _unfinished(pair.source)
            elif await self._delete_source(pair.source, pair.target):
                break
        return require_person(await retry_if_changed(lambda: self._merged(source, target)))

    def _is_index_complete(self, source: Item) -> bool:
        """Return whether the merge of `source` started longer ago than any index lag."""
        started_at = source.get("mergedAt")
        return started_at is not None and started_at < iso(self._now - MAX_INDEX_LAG)

    async def _merged(self, source: str, target: str) -> Item:
        """Return the target without its mark of the deleted source."""
        person = await self._existing(target)
        if source in (person.get("receives") or ()):
            await self._current.commit(keys.MERGE_PERSONS, [_unmark_target(source, person)])
            person = {name: value for name, value in person.items() if name != "receives"}
        return person

    async def _start(self, source: str, target: str) -> _Pair:
        """Mark both persons, unless the source is deleted or marked already. Return their items."""
        pair = await self._pair(source, target)
        if pair.source is None or (pair.source.get("mergedInto") == target and pair.source.get("mergedAt")):
            return pair
        await self._check_mergeable(pair.source, target)
        # A target is no source of another merge: of two merges in opposite directions one is refused.
        await self._current.commit(
            keys.MERGE_PERSONS,
            [
                Action(
                    "Update",
                    key=key_of(SPARKS, pair.source),
                    update="SET mergedInto = :into, mergedAt = :now",
                    condition=MAY_MERGE,
                    values={"into": target, "former": pair.source.get("mergedInto"), "now": iso(self._now)},
                ),
                Action(
                    "Update",
                    key=key_of(SPARKS, pair.target),
                    update="ADD receives :one",
                    condition="attribute_exists(PK) AND attribute_not_exists(mergedInto)",
                    values={"one": {source}},
                ),
            ],
        )
        return pair

    async def _check_mergeable(self, source: Item, target: str) -> None:
        """Raise `Conflict` if `source` is being merged into another person, or is the target of another merge."""
        former, receives = source.get("mergedInto"), source.get("receives")
        if former not in (None, target) and await self._current.person(former) is not None:
            raise Conflict(f"{source['personId']} is being merged into {former}: finish that first.")
        if receives:
            raise Conflict(f"{min(receives)} is being merged into {source['personId']}: finish that first.")

    async def _pair(self, source: str, target: str) -> _Pair:
        """Read both persons. Raises `NotFound` for the target, `Conflict` if it is being merged itself."""
        source_item, target_item = await gather_all([self._current.person(source), self._existing(target)])
        assert target_item is not None, "It exists."
        if target_item.get("mergedInto") is not None:
            raise Conflict(f"{target} is being merged into {target_item['mergedInto']}: finish that first.")
        return _Pair(source_item, target_item)

    async def _existing(self, person_id: str) -> Item:
        person = await self._current.person(person_id)
        if person is None:
            raise no_person(person_id)
        return person

    async def _move_all(self, source: str, target: str) -> int:
        """Move all faces of `source` that the index contains. Return their number."""
        moved, start = 0, None
        while True:
            values = face_keys.face_of_person.values_of(source)
            page = await self._store.query(keys.FACES_TO_MERGE, values, start=start, limit=FACES_PER_TRANSACTION)
            listed = [face_keys.face_parts(key_of(SPARKS, item)) for item in page.items]
            if listed:
                moved += await retry_if_changed(lambda: self._move(source, target, listed))  # noqa: B023 - awaited
            if (start := page.next_start) is None:
                return moved

    async def _move(self, source: str, target: str, listed: Sequence[tuple[str, str]]) -> int:
        """Move those of the faces that still belong to `source`, in one transaction. Return their number."""
        pair, *current_faces = await gather_all([self._pair(source, target), *[self._face(*ids) for ids in listed]])
        faces = [face for face in current_faces if isinstance(face, Face) and face.person_id == source]
        if not faces or not isinstance(pair, _Pair):
            return 0
        photos = [
            faces_update(photo, with_faces_moved(photo, [face.face_id for face in moved], source, pair.target))
            for photo, moved in await self._photos(faces)
        ]
        counts = [await self._current.count_update(pair.target, len(faces))]
        if pair.source is not None:
            counts.append(await self._current.count_update(pair.source, -len(faces)))
        moves = [_move_action(face, target) for face in faces]
        await self._current.commit(keys.MERGE_PERSONS, [*moves, *photos, *counts])
        return len(faces)

    async def _face(self, face_id: str, image_id: str) -> Face | None:
        """Read the attributes that a move needs. A face whose other attributes are damaged is moved too."""
        item = await self._current.get(face_keys.FACE_CONSISTENT, face_keys.face(face_id, image_id))
        return None if item is None else MOVED_FACE(item)

    async def _photos(self, faces: Sequence[Face]) -> list[tuple[Photo, list[Face]]]:
        """Return the photos of the faces, each with its faces, without deleted photos."""
        by_photo: dict[str, list[Face]] = {}
        for face in faces:
            by_photo.setdefault(face.image_id, []).append(face)
        photos = await gather_all([self._photo(image_id, grouped) for image_id, grouped in by_photo.items()])
        return [(photo, grouped) for photo, grouped in zip(photos, by_photo.values(), strict=True) if photo is not None]

    async def _photo(self, image_id: str, faces: Sequence[Face]) -> Photo | None:
        photo = await self._current.photo(image_id, faces[0].photo_sort)
        return None if photo is None else await self._current.with_all_faces(photo)

    async def _delete_source(self, source: Item, target: Item) -> bool:
        """Delete the source. Return False if either person changed meanwhile."""
        values = {"into": target["personId"], "seen": source.get("faceCount")}
        actions = [
            Action("Delete", key=key_of(SPARKS, source), condition=keys.MERGE_PERSONS.condition, values=values),
            _unmark_target(source["personId"], target),
        ]
        try:
            await self._current.commit(keys.MERGE_PERSONS, actions)
        except ChangedMeanwhile:
            return False
        return True


def _unfinished(source: Item) -> Conflict:
    """Return the error for a merge that cannot end yet. Without a count only a complete index can end it."""
    when = "soon"
    if source.get("faceCount") is None:
        when = f"in {MAX_INDEX_LAG // timedelta(minutes=1)} minutes"
    return Conflict(
        f"The index may not contain all faces yet. The merge has started: to finish it, repeat it {when}.",
        retryable=True,
    )


def _unmark_target(source: str, target: Item) -> Action:
    return Action(
        "Update",
        key=key_of(SPARKS, target),
        update="DELETE receives :one",
        condition="attribute_exists(PK)",
        values={"one": {source}},
    )


def _move_action(face: Face, target: str) -> Action:
    return Action(
        "Update",
        key=face_keys.face(face.face_id, face.image_id),
        update="SET personId = :into",
        condition="personId = :one",
        values={"one": face.person_id, "into": target},
    )
