"""Faces of persons on photos: records and reads."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.records import record, record_or_error
from datastore.errors import DomainError
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import faces as keys
from datastore.model.access_patterns import AccessPattern
from datastore.photos.lookups import Lookups
from datastore.photos.photos import Photo
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class FaceBoundingBox:
    """The position and size of a face, as fractions of the image's width and height."""

    left: float
    top: float
    width: float
    height: float


def _box(stored_box: Mapping[str, Any]) -> FaceBoundingBox:
    return FaceBoundingBox(*[float(stored_box[side]) for side in ("left", "top", "width", "height")])


class Face(StoredItem, key=keys.face):
    """A face of a person on a photo."""

    entity_type = stored.constant("entityType", keys.TYPE)
    face_id: str = stored.part()
    image_id: str = stored.part("imageId")
    person_id: str = stored.text("personId")
    confidence: float = stored.number("confidence", float)
    bounding_box: FaceBoundingBox = stored.mapping("boundingBox", _box, encode=asdict)
    created_at: datetime = stored.moment("createdAt")
    #: The sort key of its photo. None for old faces.
    photo_sort: str | None = stored.text("photoSK", missing=None, if_none=None)
    #: The photo, if it was read with the face.
    photo: Photo | None = None
    #: A mutation just changed the face count of its person, which is therefore read consistently.
    just_changed: bool = False


class Faces:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups

    async def by_key(self, face_id: str, image_id: str, pattern: AccessPattern = keys.FACE) -> Face | None:
        """SPARKS-N2: return a face, or None."""
        return record(Face.decoder, await self._store.get(pattern, keys.face(face_id, image_id)))

    async def of_person_on(self, photo: Photo, person_id: str) -> list[Face | DomainError]:
        """SPARKS-N3: return a person's faces on a photo that does not list them, in the order of their ids.

        The person's faces are read once for all photos of a request. An error replaces a damaged face.
        """
        items = await self._lookups.find_all(keys.UNLISTED_FACES, person_id, keys.face_of_person.prefix)
        sort = keys.sort_key_of(photo.image_id)
        faces = [record_or_error(Face.decoder, item) for item in reversed(items) if item["SK"] == sort]
        return [replace(face, photo=photo) if isinstance(face, Face) else face for face in faces]
