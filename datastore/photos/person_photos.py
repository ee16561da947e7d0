"""The photos of a person: the person's faces in the index, and their photos, each once.

The position of a photo in the list is that of its first face of the person. A photo of this gateway lists its faces, so
its first face follows from the photo. A photo without a listed face of the person was written by another program. For
such photos a Query reads all of the person's faces before the page (half a read unit for each 4 KB, some twelve faces).
`faces` of such a photo reads the faces after the page in the same way.

If a photo lists only some of the person's faces, its position is that of the first listed face. A listed face that was
deleted counts only if its position is outside the range that the page read.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import QueryPage, record_or_error
from datastore.errors import DomainError
from datastore.keyspace.photos import faces as keys
from datastore.keyspace.photos import photos as photo_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, second_part
from datastore.photos.faces import Face, Faces
from datastore.photos.photos import Photo, Photos
from datastore.session.pagination import Page, Span, pattern_of
from datastore.session.store import Store

# The faces that are read for each photo: a page is one Query even if the person is twice on each photo. For 25 photos
# this costs one read unit more than one face each.
FACES_PER_PHOTO = 2
# Photos, at half a read unit each, are read as needed. A page other than the first reads a quarter more, since earlier
# pages may have listed some of them.
EXTRA_PHOTOS_DIVISOR = 4
MAX_FACES = 1000


@dataclass(frozen=True, slots=True)
class PersonPhoto:
    """A photo of a person."""

    #: The item of the person's first face on the photo, from the index.
    item: Item
    photo: Photo | DomainError
    _page: "_PageReader" = field(repr=False)

    async def faces(self) -> list[Face | DomainError]:
        """Return the person's faces on the photo, in the order of the list. An error replaces a damaged face.

        Faces that were not read with the page are batched with other point reads.
        """
        return await self._page.faces(self.item["SK"])


class PersonPhotos:
    """One method for each access pattern."""

    def __init__(self, store: Store, photos: Photos, faces: Faces) -> None:
        self._store = store
        self._photos = photos
        self._faces = faces

    async def of_person(self, person_id: str, span: Span) -> tuple[Page, list[PersonPhoto]]:
        """SPARKS-7: return a page of a person's photos. See the module for the cost of other programs' photos.

        A face whose photo was deleted is omitted. An error replaces a photo that cannot be read.
        """
        pattern = pattern_of(keys.PHOTOS_BY_PERSON, span)
        reader = _PageReader(self._store, self._photos, self._faces, pattern, person_id, span)
        return await reader.read()


class _PageReader:
    """A read of one page: faces in the order of reading, and their photos, until the page is full."""

    def __init__(
        self, store: Store, photos: Photos, faces: Faces, pattern: AccessPattern, person_id: str, span: Span
    ) -> None:
        self._store = store
        self._library = photos
        self._faces = faces
        self._pattern = pattern
        self._person_id = person_id
        self._span = span
        self._position, self._ended = span.start, False
        self._items: list[Item] = []
        # The faces and the photos, by the sort key of a face, which identifies its photo.
        self._faces_by_photo: dict[str, dict[str, Item]] = {}
        self._photos: dict[str, Photo | DomainError | None] = {}
        self._before: dict[str, str] | None = None
        self._after: dict[str, dict[str, Item]] | None = None
        self._after_lock = asyncio.Lock()

    async def read(self) -> tuple[Page, list[PersonPhoto]]:
        span, first_faces, rounds = self._span, list[Item](), 0
        while len(first_faces) <= span.size and not (self._ended and not self._unread()):
            missing = (span.size + 1 - len(first_faces)) << rounds
            if len(self._unread()) < missing and not self._ended:
                await self._read_faces(min(FACES_PER_PHOTO * missing, MAX_FACES))
            await self._read_photos(missing)
            first_faces = await self._first_faces()
            rounds += 1
        page = _page(first_faces, span)
        return page, [PersonPhoto(item, self._photos[item["SK"]], self) for item in page.items]  # type: ignore[arg-type]

    async def _read_faces(self, limit: int) -> None:
        # The photos of several lists are read in one batch.
        with self._store.defer_dispatch():
            page = await self._query(self._position, limit, self._span.backward)
        self._position, self._ended = page.next_start, page.next_start is None
        for item in page.items:
            if item["SK"].startswith(photo_keys.photo_taken.prefix) and item["SK"] != photo_keys.photo_taken.prefix:
                self._items.append(item)
                self._faces_by_photo.setdefault(item["SK"], {})[item["PK"]] = item

    def _unread(self) -> list[str]:
        return [sort for sort in self._faces_by_photo if sort not in self._photos]

    async def _read_photos(self, count: int) -> None:
        is_first_page = self._span.start is None and not self._span.backward
        sorts = self._unread()[: count if is_first_page else count + count // EXTRA_PHOTOS_DIVISOR]
        photos = await asyncio.gather(*[self._photo(sort) for sort in sorts], return_exceptions=True)
        self._photos.update(zip(sorts, photos, strict=True))  # type: ignore[arg-type]

    async def _photo(self, face_sort: str) -> Photo | None:
        """Read a photo by the sort key in one of its faces. Old faces have none."""
        sorts = (item.get("photoSK") for item in self._faces_by_photo[face_sort].values())
        sort = next((sort for sort in sorts if sort and isinstance(sort, str)), None)
        return await self._library.by_key(second_part(face_sort), sort)

    async def _first_faces(self) -> list[Item]:
        """Return the first faces of the photos in the order of reading: at most one more than the page."""
        first_faces: list[Item] = []
        for item in self._items:
            face_sort = item["SK"]
            if face_sort not in self._photos or len(first_faces) > self._span.size:
                break
            if self._photos[face_sort] is not None and await self._first_face(face_sort) == item["PK"]:
                first_faces.append(item)
        return first_faces

    async def _first_face(self, face_sort: str) -> str | None:
        """Return the partition key of the first face on a photo; None if it precedes the page."""
        if listed := self._listed(face_sort):
            return listed[0]
        if self._before is None:
            self._before = await self._read_before()
        own = self._ordered(self._faces_by_photo[face_sort])[0]
        return own if self._before.get(face_sort, own) == own else None

    def _listed(self, face_sort: str) -> list[str]:
        """Return the partition keys of the person's faces that the photo lists, without deleted faces in read range."""
        photo, read = self._photos[face_sort], self._faces_by_photo[face_sort]
        if not isinstance(photo, Photo):
            return []
        ids = [face.face_id for face in photo.faces if face.person_id == self._person_id and face.face_id]
        listed = [keys.face(str(id), photo.image_id).partition for id in ids]
        return self._ordered([face for face in listed if face in read or not self._is_in_read_range(face)])

    def _is_in_read_range(self, face: str) -> bool:
        start, downward = self._span.start, self._pattern.descending is not self._span.backward

        def is_after(position: Item) -> bool:
            return bool(face < position["PK"] if downward else face > position["PK"])

        if start is not None and not is_after(start):
            return False
        return self._position is None or not is_after(self._position)

    def _ordered(self, faces: Sequence[str] | dict[str, Item]) -> list[str]:
        return sorted(faces, reverse=self._pattern.descending)

    async def _read_before(self) -> dict[str, str]:
        """Return the first face of each photo with a face before the read range, in the order of the list."""
        start = self._span.start
        before = {} if start is None or self._span.backward else {start["SK"]: start["PK"]}
        async for items in self._outside(first=True, attributes=("PK", "SK")):
            before.update({item["SK"]: item["PK"] for item in items})
        return before

    async def _read_after(self) -> dict[str, dict[str, Item]]:
        """Return the faces after the read range, in the order of the list, of photos that were read."""
        after: dict[str, dict[str, Item]] = {}
        async for items in self._outside(first=False):
            for item in items:
                if item["SK"] in self._photos:
                    after.setdefault(item["SK"], {})[item["PK"]] = item
        return after

    async def _outside(self, *, first: bool, attributes: Sequence[str] | None = None) -> AsyncIterator[list[Item]]:
        """Yield the faces from the read range to the first or the last face of the list."""
        onward = first is self._span.backward
        position = self._position if onward else self._span.start
        while position is not None:
            page = await self._query(position, None, self._span.backward is onward, attributes)
            yield page.items
            position = page.next_start

    async def _query(
        self, start: Item | None, limit: int | None, backward: bool, attributes: Sequence[str] | None = None
    ) -> QueryPage:
        values = keys.face_of_person.values_of(self._person_id)
        return await self._store.query(
            self._pattern, values, start=start, limit=limit, backward=backward, attributes=attributes
        )

    async def faces(self, face_sort: str) -> list[Face | DomainError]:
        read, listed = self._faces_by_photo[face_sort], self._listed(face_sort)
        if not listed:
            async with self._after_lock:
                if self._after is None:
                    self._after = await self._read_after()
            read = read | self._after.get(face_sort, {})
        partitions = self._ordered(list({*read, *listed}))
        faces = await asyncio.gather(
            *[self._face(Key(partition, face_sort), read.get(partition)) for partition in partitions],
            return_exceptions=True,
        )
        return [face for face in faces if face is not None]  # type: ignore[misc]

    async def _face(self, key: Key, item: Item | None) -> Face | DomainError | None:
        face = record_or_error(Face.decoder, item) if item else await self._faces.by_key(*keys.face_parts(key))
        if not isinstance(face, Face):
            return face
        photo = self._photos[key.sort]
        # A face that was read by its key may be another person's by now.
        is_of_person = face.person_id == self._person_id
        return replace(face, photo=photo if isinstance(photo, Photo) else None) if is_of_person else None


def _page(first_faces: list[Item], span: Span) -> Page:
    """Return the page of faces in the order of reading, of which there may be one more than the page takes."""
    items, more = first_faces[: span.size], len(first_faces) > span.size
    if span.backward:
        return Page(items[::-1], has_next=span.start is not None, has_previous=more)
    return Page(items, has_next=more, has_previous=span.start is not None)
