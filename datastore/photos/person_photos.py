"""The photos a person is on: their faces in the index by person, and the photos that those are on, each once.

A photo stands at the place of its first face of the person, in the order of the list. Which one that is, a photo of
this gateway tells once it is read, since it lists its faces. One that lists none of the person's was written by others:
for those alone the index tells, by a Query over all of the person's faces that come before the page (half a read unit
for each 4 KB, some twelve faces). `faces` of such a photo takes the same of those that come after.

A photo that lists some of the person's faces and not others stands at the first that it lists. A listed face that is
gone counts only where the page did not read its place: then nothing tells that it is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import parsed
from datastore.errors import DomainError
from datastore.keyspace.photos import faces as keys
from datastore.keyspace.photos import photos as photo_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.photos.faces import Face, Faces, face_from
from datastore.photos.photos import Photo, Photos
from datastore.session.pagination import Page, SortOrder, Span, ordered
from datastore.session.store import QueryPage, Store

# So many faces are read for each photo that is wanted: a page is one Query also where the person is twice on each
# photo. For 25 photos that is one read unit more than with a face each.
FACES_PER_PHOTO = 2
# Photos, half a read unit each, are read as they are needed; a quarter more away from the beginning of the list, where
# some may have been shown already.
SPARE_PHOTOS = 4
MOST_FACES = 1000


@dataclass(frozen=True, slots=True)
class Appearance:
    """A person's place in a photo. `item` is their first face on it, as the index has it."""

    item: Item
    photo: Photo | DomainError
    _page: "_PageReader" = field(repr=False)

    async def faces(self) -> list[Face | DomainError]:
        """The person's faces on the photo, in the order of the list; an error in the place of a damaged one.

        Those that were not read with the page are read through the loader.
        """
        return await self._page.faces(self.item["SK"])


class Appearances:
    """One method for each access pattern."""

    def __init__(self, store: Store, photos: Photos, faces: Faces) -> None:
        self._store = store
        self._photos = photos
        self._faces = faces

    async def of_person(self, person_id: str, span: Span, order: SortOrder) -> tuple[Page, list[Appearance]]:
        """SPARKS-7: a page of places, and the photos there. See above for what a photo of others costs.

        A face whose photo is gone is left out; a photo that cannot be read is an error in its own place.
        """
        pattern = ordered(keys.PHOTOS_OF_PERSON, order)
        reader = _PageReader(self._store, self._photos, self._faces, pattern, person_id, span)
        return await reader.read()


class _PageReader:
    """Reads one page: faces in the order of reading, and their photos, until enough of them have their place here."""

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
        # By the sort key of a face, which names its photo.
        self._of_photo: dict[str, dict[str, Item]] = {}
        self._photos: dict[str, Photo | DomainError | None] = {}
        self._before: dict[str, str] | None = None
        self._after: dict[str, dict[str, Item]] | None = None
        self._reading_after = asyncio.Lock()

    async def read(self) -> tuple[Page, list[Appearance]]:
        span, places, rounds = self._span, list[Item](), 0
        while len(places) <= span.size and not (self._ended and not self._unread()):
            missing = (span.size + 1 - len(places)) << rounds
            if len(self._unread()) < missing and not self._ended:
                await self._read_faces(min(FACES_PER_PHOTO * missing, MOST_FACES))
            await self._read_photos(missing)
            places = await self._places()
            rounds += 1
        page = _page(places, span)
        return page, [Appearance(item, self._photos[item["SK"]], self) for item in page.items]  # type: ignore[arg-type]

    async def _read_faces(self, limit: int) -> None:
        # The photos of several lists go out together.
        with self._store.defer_dispatch():
            page = await self._query(self._position, limit, self._span.backward)
        self._position, self._ended = page.next_start, page.next_start is None
        for item in page.items:
            if item["SK"].startswith(photo_keys.PREFIX) and item["SK"] != photo_keys.PREFIX:
                self._items.append(item)
                self._of_photo.setdefault(item["SK"], {})[item["PK"]] = item

    def _unread(self) -> list[str]:
        return [name for name in self._of_photo if name not in self._photos]

    async def _read_photos(self, count: int) -> None:
        from_the_start = self._span.start is None and not self._span.backward
        names = self._unread()[: count if from_the_start else count + count // SPARE_PHOTOS]
        found = await asyncio.gather(*[self._photo(name) for name in names], return_exceptions=True)
        self._photos.update(zip(names, found, strict=True))  # type: ignore[arg-type]

    async def _photo(self, name: str) -> Photo | None:
        """By the key that one of its faces holds; old ones hold none."""
        sorts = (item.get("photoSK") for item in self._of_photo[name].values())
        sort = next((sort for sort in sorts if sort and isinstance(sort, str)), None)
        return await self._library.by_key(keys.face_parts(Key(keys.PREFIX, name))[1], sort)

    async def _places(self) -> list[Item]:
        """The faces, in the order of reading, at which a photo has its place: one more than the page at most."""
        places: list[Item] = []
        for item in self._items:
            name = item["SK"]
            if name not in self._photos or len(places) > self._span.size:
                break
            if self._photos[name] is not None and await self._place(name) == item["PK"]:
                places.append(item)
        return places

    async def _place(self, name: str) -> str | None:
        """The partition key of a photo's first face of the person; None when others' photos have it elsewhere."""
        if listed := self._listed(name):
            return listed[0]
        if self._before is None:
            self._before = await self._read_before()
        own = self._ordered(self._of_photo[name])[0]
        return own if self._before.get(name, own) == own else None

    def _listed(self, name: str) -> list[str]:
        """The partition keys of the person's faces that the photo lists, but those that would have been read here."""
        photo, there = self._photos[name], self._of_photo[name]
        if not isinstance(photo, Photo):
            return []
        ids = [face.face_id for face in photo.faces if face.person_id == self._person_id and face.face_id]
        listed = [keys.face(str(id), photo.image_id).partition for id in ids]
        return self._ordered([one for one in listed if one in there or not self._was_read(one)])

    def _was_read(self, face: str) -> bool:
        start, downward = self._span.start, self._pattern.descending is not self._span.backward

        def is_after(position: Item) -> bool:
            return bool(face < position["PK"] if downward else face > position["PK"])

        if start is not None and not is_after(start):
            return False
        return self._position is None or not is_after(self._position)

    def _ordered(self, faces: Sequence[str] | dict[str, Item]) -> list[str]:
        return sorted(faces, reverse=self._pattern.descending)

    async def _read_before(self) -> dict[str, str]:
        """Each photo with a face before what was read, in the order of the list, with the first of those."""
        start = self._span.start
        before = {} if start is None or self._span.backward else {start["SK"]: start["PK"]}
        async for items in self._side(first=True, attributes=("PK", "SK")):
            before.update({item["SK"]: item["PK"] for item in items})
        return before

    async def _read_after(self) -> dict[str, dict[str, Item]]:
        """The faces after what was read, in the order of the list, of photos that were read."""
        after: dict[str, dict[str, Item]] = {}
        async for items in self._side(first=False):
            for item in items:
                if item["SK"] in self._photos:
                    after.setdefault(item["SK"], {})[item["PK"]] = item
        return after

    async def _side(self, *, first: bool, attributes: Sequence[str] | None = None) -> AsyncIterator[list[Item]]:
        """What lies on one side of what was read, from there to the list's first or last face."""
        onward = first is self._span.backward
        position = self._position if onward else self._span.start
        while position is not None:
            page = await self._query(position, None, self._span.backward is onward, attributes)
            yield page.items
            position = page.next_start

    async def _query(
        self, start: Item | None, limit: int | None, backward: bool, attributes: Sequence[str] | None = None
    ) -> QueryPage:
        values = {"partition": self._person_id, "prefix": keys.PREFIX}
        return await self._store.query(
            self._pattern, values, start=start, limit=limit, backward=backward, attributes=attributes
        )

    async def faces(self, name: str) -> list[Face | DomainError]:
        read, listed = self._of_photo[name], self._listed(name)
        if not listed:
            async with self._reading_after:
                if self._after is None:
                    self._after = await self._read_after()
            read = read | self._after.get(name, {})
        wanted = self._ordered(list({*read, *listed}))
        found = await asyncio.gather(
            *[self._face(Key(one, name), read.get(one)) for one in wanted], return_exceptions=True
        )
        return [face for face in found if face is not None]  # type: ignore[misc]

    async def _face(self, key: Key, item: Item | None) -> Face | DomainError | None:
        face = parsed(face_from, item) if item else await self._faces.by_key(*keys.face_parts(key))
        if not isinstance(face, Face):
            return face
        photo = self._photos[key.sort]
        # One that was read by its key may be another person's by now.
        is_theirs = face.person_id == self._person_id
        return replace(face, photo=photo if isinstance(photo, Photo) else None) if is_theirs else None


def _page(places: list[Item], span: Span) -> Page:
    """The page, of the places in the order of reading, of which one more may have been found than it takes."""
    items, more = places[: span.size], len(places) > span.size
    if span.backward:
        return Page(items[::-1], has_next=span.start is not None, has_previous=more)
    return Page(items, has_next=more, has_previous=span.start is not None)
