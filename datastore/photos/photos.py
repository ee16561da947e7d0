"""Photos: records and reads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import NamedTuple

from datastore.dynamodb.records import record
from datastore.items import attributes as stored
from datastore.items.forms import Prose
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import photos as keys
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import from_iso, iso
from datastore.model.versioning import version_from
from datastore.photos.lookups import Lookups
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store


class FaceOnPhoto(NamedTuple):
    """A face in the list of a photo."""

    face_id: str
    person_id: str


def _faces(listed: Sequence[Mapping[str, str]] | None) -> tuple[FaceOnPhoto, ...]:
    return tuple(FaceOnPhoto(face["faceId"], face["personId"]) for face in listed or ())


def faces_attribute(faces: tuple[FaceOnPhoto, ...]) -> list[dict[str, str]]:
    """Return the attribute `faces`."""
    return [{"faceId": face.face_id, "personId": face.person_id} for face in faces]


def _names(names: Mapping[str, str] | None) -> dict[str, str]:
    return {id: name for id, name in (names or {}).items() if name}


def _time_in_key(sort: str) -> datetime:
    return from_iso(second_part(sort))


class Photo(StoredItem, key=keys.photo):
    """A photo. Photos of other programs may lack `content_type`, sizes and `faces`.

    The attributes of the file are in one attribute, since indexes limit projected attributes.
    """

    entity_type = stored.constant("entityType", keys.TYPE)
    #: The stored key.
    key: Key = stored.key()
    image_id: str = stored.part("imageId")
    taken_at: datetime = stored.text("SK", _time_in_key, encode=None)
    email: str = stored.text("email", typical=24)
    original_key: str = stored.text("originalKey", typical=70)
    thumbnail_key: str = stored.text("thumbnailKey", typical=70)
    description: str | None = stored.text("description", missing=None, form=Prose(1000), removable=True)
    tags: tuple[str, ...] = stored.texts("tags", stored.if_null((), tuple), missing=())
    person_ids: tuple[str, ...] = stored.texts("persons", stored.if_null((), tuple), missing=())
    #: The name of each person when the person was tagged, by id. The name is part of a person's key.
    person_names: Mapping[str, str] = stored.mapping("personNames", _names, missing={})
    faces: tuple[FaceOnPhoto, ...] = stored.elements("faces", _faces, encode=faces_attribute, missing=(), typical=120)
    content_type: str | None = stored.text("contentType", inside="file", missing=None)
    size: int | None = stored.number("size", int, inside="file", missing=None)
    width: int | None = stored.number("width", int, inside="file", missing=None)
    height: int | None = stored.number("height", int, inside="file", missing=None)
    created_at: datetime = stored.moment("createdAt")
    #: Counts the changes of persons and faces. Indexes do not project it.
    revision: int = stored.number("revision", version_from, missing=0)
    #: Counts the changes of the other attributes.
    version: int = stored.version(default=0)
    camera: str | None = stored.text("camera", inside="file", default=None)
    #: The original may contain metadata: only its owner and administrators may download it.
    keeps_metadata: bool = stored.flag("keepsMetadata", bool, inside="file", default=False, omit=not_)

    @property
    def unlisted(self) -> list[str]:
        """The ids of persons without a listed face, which another program tagged."""
        listed = {face.person_id for face in self.faces}
        return [id for id in dict.fromkeys(self.person_ids) if id and id not in listed]


async def photo_with_id(store: Store, image_id: str) -> Photo | None:
    """Read the photo of an id consistently, by one Query."""
    page = await store.query(consistently(keys.PHOTO), keys.photo_taken.values_of(image_id), limit=1)
    return record(Photo.decoder, page.items[0] if page.items else None)


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
            item = await self._lookups.find(pattern, keys.photo.partition_of(image_id), keys.photo_taken.prefix)
        return record(Photo.decoder, item)

    async def as_taken(self, image_id: str, moment: str) -> Photo | None:
        """SPARKS-2: return a photo by the stored text of its capture time, or None."""
        return record(Photo.decoder, await self._store.get(keys.PHOTO, keys.photo_taken(image_id, moment)))

    async def by_user(self, email: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """SPARKS-5: return the photos of a user."""
        values = keys.photo_of_user.values_of(email)
        return await read_page(self._store, keys.PHOTOS_BY_USER, [values], span, has_child_reads=has_child_reads)
