"""Photos: records and reads."""

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
    """A face in the list of a photo."""

    face_id: str
    person_id: str


@dataclass(frozen=True, slots=True)
class Photo:
    """A photo. Photos of other programs may lack `content_type`, sizes and `faces`."""

    #: The stored key.
    key: Key
    image_id: str
    taken_at: datetime
    email: str
    original_key: str
    thumbnail_key: str
    description: str | None
    tags: tuple[str, ...]
    person_ids: tuple[str, ...]
    #: The name of each person when the person was tagged, by id. The name is part of a person's key.
    person_names: Mapping[str, str]
    faces: tuple[FaceOnPhoto, ...]
    content_type: str | None
    size: int | None
    width: int | None
    height: int | None
    created_at: datetime
    #: Counts the changes of persons and faces. Indexes do not project it.
    revision: int
    #: Counts the changes of the other attributes.
    version: int = 0
    camera: str | None = None
    #: The original may contain metadata: only its owner and administrators may download it.
    keeps_metadata: bool = False

    @property
    def unlisted(self) -> list[str]:
        """The ids of persons without a listed face, which another program tagged."""
        listed = {face.person_id for face in self.faces}
        return [id for id in dict.fromkeys(self.person_ids) if id and id not in listed]


def photo_from(item: Mapping[str, Any]) -> Photo:
    """Return the photo of an item of the table or of an index. Old items have no attribute `file`."""
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
        # Other programs store null for missing attributes.
        tags=tuple(item.get("tags") or ()),
        person_ids=tuple(item.get("persons") or ()),
        person_names={id: name for id, name in (item.get("personNames") or {}).items() if name},
        faces=tuple(FaceOnPhoto(face["faceId"], face["personId"]) for face in item.get("faces") or ()),
        content_type=file.get("contentType"),
        size=_integer(file, "size"),
        width=_integer(file, "width"),
        height=_integer(file, "height"),
        created_at=from_iso(item["createdAt"]),
        revision=_integer(item, "revision") or 0,
        version=version_of(item),
        camera=file.get("camera"),
        keeps_metadata=bool(file.get("keepsMetadata")),
    )


def photo_item(photo: Photo) -> Item:
    """Return the item of a photo."""
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
    """Return the attributes of the file as one, since indexes limit projected attributes; None if all are unknown."""
    file = {
        "contentType": photo.content_type,
        "size": photo.size,
        "width": photo.width,
        "height": photo.height,
        "camera": photo.camera,
        "keepsMetadata": photo.keeps_metadata or None,
    }
    return {name: value for name, value in file.items() if value is not None} or None


def _integer(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]) if item.get(name) is not None else None


async def photo_with_id(store: Store, image_id: str) -> Photo | None:
    """Read the photo of an id consistently, by one Query."""
    values = {"partition": keys.partition(image_id), "prefix": keys.PREFIX}
    page = await store.query(keys.PHOTO_CONSISTENT, values, limit=1)
    return record(photo_from, page.items[0] if page.items else None)


class Photos:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups

    async def by_id(
        self, image_id: str, taken_at: datetime | None = None, pattern: AccessPattern = keys.PHOTO
    ) -> Photo | None:
        """SPARKS-2: return a photo, or None. A point read with the capture time; otherwise a Query.

        Other programs may have stored the time in another form. A point read without a result is therefore followed by
        the Query. `pattern` may be one that reads consistently.
        """
        sort = None if taken_at is None else keys.sort_key_at(taken_at)
        photo = await self.by_key(image_id, sort, pattern)
        return photo if taken_at is None or photo is None or iso(photo.taken_at) == iso(taken_at) else None

    async def by_key(self, image_id: str, sort: str | None, pattern: AccessPattern = keys.PHOTO) -> Photo | None:
        """SPARKS-2: return a photo by its stored sort key, or by its id if the key is unknown or outdated."""
        item = None if sort is None else await self._store.get(pattern, keys.photo(image_id, sort))
        if item is None:
            item = await self._lookups.find(pattern, keys.partition(image_id), keys.PREFIX)
        return record(photo_from, item)

    async def as_taken(self, image_id: str, moment: str) -> Photo | None:
        """SPARKS-2: return a photo by the stored text of its capture time, or None."""
        return record(photo_from, await self._store.get(keys.PHOTO, keys.photo(image_id, keys.sort_key_from(moment))))

    async def all(self, span: Span, order: SortOrder, *, has_child_reads: bool = False) -> Page:
        """SPARKS-3: return all photos."""
        pattern = ordered(keys.PHOTOS, order)
        return await read_page(self._store, pattern, [{"partition": keys.TYPE}], span, has_child_reads=has_child_reads)

    async def by_user(self, email: str, span: Span, order: SortOrder, *, has_child_reads: bool = False) -> Page:
        """SPARKS-5: return the photos of a user."""
        pattern, values = ordered(keys.PHOTOS_BY_USER, order), {"partition": email, "prefix": keys.PREFIX}
        return await read_page(self._store, pattern, [values], span, has_child_reads=has_child_reads)
