"""Photos: what one is, how the table keeps it, and how it is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.keyspace.photos import photos as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso
from datastore.photos.lookups import Lookups
from datastore.session.optimistic_locking import version_of
from datastore.session.pagination import Page, SortOrder, Span, ordered, read_page
from datastore.session.store import Store


class FaceOnPhoto(NamedTuple):
    """A face that a photo knows of: its id, and whose it is."""

    face_id: str
    person_id: str


@dataclass(frozen=True, slots=True)
class Photo:
    """A photo. `key` is its key as the table has it; `person_names` holds the rest of the keys of those on it, as they
    were called when they were tagged.

    Photos that were not uploaded through this gateway may lack `content_type`, sizes and `faces`. `revision` counts
    changes of who is on it, `version` those of what it says; lists do not hold the former. `keeps_metadata` tells that
    the original is known to hold metadata: it is for its owner and administrators alone.
    """

    key: Key
    image_id: str
    taken_at: datetime
    email: str
    original_key: str
    thumbnail_key: str
    description: str | None
    tags: tuple[str, ...]
    person_ids: tuple[str, ...]
    person_names: Mapping[str, str]
    faces: tuple[FaceOnPhoto, ...]
    content_type: str | None
    size: int | None
    width: int | None
    height: int | None
    created_at: datetime
    revision: int
    version: int = 0
    camera: str | None = None
    keeps_metadata: bool = False

    @property
    def unlisted(self) -> list[str]:
        """The ids of persons on it of whom it lists no face, since another program wrote it."""
        listed = {face.person_id for face in self.faces}
        return [id for id in dict.fromkeys(self.person_ids) if id and id not in listed]


def photo_from(item: Mapping[str, Any]) -> Photo:
    """A photo from the table, or from an index. What its file is, older items tell in attributes of their own."""
    key = Key(item["PK"], item["SK"])
    image_id, moment = keys.photo_parts(key)
    file = {**item, **(item.get("file") or {})}
    return Photo(
        key=key,
        image_id=image_id,
        taken_at=from_iso(moment),
        email=item["email"],
        original_key=item["originalKey"],
        thumbnail_key=item["thumbnailKey"],
        description=item.get("description"),
        # Others write an attribute that is not there as null, too.
        tags=tuple(item.get("tags") or ()),
        person_ids=tuple(item.get("persons") or ()),
        person_names={id: name for id, name in (item.get("personNames") or {}).items() if name},
        faces=tuple(FaceOnPhoto(face["faceId"], face["personId"]) for face in item.get("faces") or ()),
        content_type=file.get("contentType"),
        size=_whole(file, "size"),
        width=_whole(file, "width"),
        height=_whole(file, "height"),
        created_at=from_iso(item["createdAt"]),
        revision=_whole(item, "revision") or 0,
        version=version_of(item),
        camera=file.get("camera"),
        keeps_metadata=bool(file.get("keepsMetadata")),
    )


def photo_item(photo: Photo) -> Item:
    """The photo as the table keeps it."""
    item = {
        "PK": photo.key.partition,
        "SK": photo.key.sort,
        "entityType": keys.TYPE,
        "email": photo.email,
        "imageId": photo.image_id,
        "originalKey": photo.original_key,
        "thumbnailKey": photo.thumbnail_key,
        "description": photo.description,
        "tags": list(photo.tags),
        "persons": list(photo.person_ids),
        "personNames": dict(photo.person_names),
        "faces": faces_attribute(photo.faces),
        "file": file_attribute(photo),
        "createdAt": iso(photo.created_at),
        "revision": photo.revision,
        "version": photo.version or None,
    }
    return {name: value for name, value in item.items() if value is not None}


def faces_attribute(faces: tuple[FaceOnPhoto, ...]) -> list[dict[str, str]]:
    return [{"faceId": face.face_id, "personId": face.person_id} for face in faces]


def file_attribute(photo: Photo) -> dict[str, Any] | None:
    """In one attribute, for an index takes only so many; None where nothing is known."""
    file = {
        "contentType": photo.content_type,
        "size": photo.size,
        "width": photo.width,
        "height": photo.height,
        "camera": photo.camera,
        "keepsMetadata": photo.keeps_metadata or None,
    }
    return {name: value for name, value in file.items() if value is not None} or None


def _whole(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]) if item.get(name) is not None else None


class Photos:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups

    async def by_id(
        self, image_id: str, taken_at: datetime | None = None, pattern: AccessPattern = keys.PHOTO
    ) -> Photo | None:
        """SPARKS-2: with the moment it was taken a point read, without it a Query. `pattern` may read consistently.

        Others may have written the moment in another form, so that a point read which finds nothing is followed by
        the Query.
        """
        sort = None if taken_at is None else keys.sort_key_at(taken_at)
        photo = await self.by_key(image_id, sort, pattern)
        return photo if taken_at is None or photo is None or iso(photo.taken_at) == iso(taken_at) else None

    async def by_key(self, image_id: str, sort: str | None, pattern: AccessPattern = keys.PHOTO) -> Photo | None:
        """SPARKS-2: by the sort key as the table has it; where that is not known, or not right, by the id alone."""
        item = None if sort is None else await self._store.get(pattern, keys.photo(image_id, sort))
        if item is None:
            item = await self._lookups.find(pattern, keys.partition(image_id), keys.PREFIX)
        return record(photo_from, item)

    async def as_taken(self, image_id: str, moment: str) -> Photo | None:
        """SPARKS-2: by the moment exactly as the table has it, or not at all."""
        return record(photo_from, await self._store.get(keys.PHOTO, keys.photo(image_id, keys.sort_key_from(moment))))

    async def all(self, span: Span, order: SortOrder, *, leads_on: bool = False) -> Page:
        """SPARKS-3."""
        pattern = ordered(keys.PHOTOS, order)
        return await read_page(self._store, pattern, [{"partition": keys.TYPE}], span, has_child_reads=leads_on)

    async def by_user(self, email: str, span: Span, order: SortOrder, *, leads_on: bool = False) -> Page:
        """SPARKS-5."""
        pattern, values = ordered(keys.PHOTOS_BY_USER, order), {"partition": email, "prefix": keys.PREFIX}
        return await read_page(self._store, pattern, [values], span, has_child_reads=leads_on)
