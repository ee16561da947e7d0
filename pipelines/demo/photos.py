"""A photo library for the demo: six pictures with tagged persons, and a livestream whose description changes."""

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.errors import DomainError, Unavailable
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import livestreams, users
from datastore.keyspace.photos import persons as person_keys
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import Table, consistently
from datastore.model.ids import uuid7
from datastore.model.timestamps import iso
from datastore.objects import ObjectStore
from datastore.photos.livestreams import Livestream, Livestreams, LivestreamStatus
from datastore.photos.lookups import Lookups
from datastore.photos.photos import FaceOnPhoto, Photo
from datastore.photos.users import PhotoUsers
from datastore.session.store import Store
from datastore.session.writes import Action
from pipelines.demo.photo_album import (
    BEGAN,
    ENDED,
    HEIGHT,
    LIVE,
    PERSON_IDS,
    SCENES,
    SHOTS,
    UPCOMING,
    USERS,
    WIDTH,
    Shot,
    Stream,
)

JPEG = "image/jpeg"
# A picture is THUMBNAIL_FACTOR times as wide as its thumbnail.
THUMBNAIL_FACTOR, THUMBNAIL_QUALITY = 2, 78
EXISTS = "attribute_exists(PK)"


@dataclass(frozen=True, slots=True)
class PhotoDemo:
    """Loads the photo library and keeps its livestream active."""

    #: Returns a new store for each operation.
    open_store: Callable[[], Store]
    objects: ObjectStore
    now: Callable[[], datetime]
    #: Returns whether a table has subscribers.
    has_subscribers: Callable[[Table], bool]

    async def load(self) -> int:
        """Create the users, persons, photos and three livestreams. Return the number of photos created.

        Return 0 if the library already exists, or if the gateway has no object store. All ids are the same in each
        demo and existing items are left unchanged, so the next load completes an interrupted one. The ended livestream
        is created last: if it exists, so does everything else.

        Raises `Unavailable` if the files of the photos cannot be written. Everything but the photos then exists.
        """
        if await self.objects.url(SHOTS[0].name, now=self.now()) is None:
            return 0
        if await self._find(ENDED) is not None:
            await self._restart_livestreams()
            return 0
        # Livestreams have no files, so create them even if the pictures cannot be written.
        for stream in (LIVE, UPCOMING):
            await self._announce(stream)
        await self._restart_livestreams()
        store = self.open_store()
        photo_users = PhotoUsers(store, BEGAN)
        await asyncio.gather(*[photo_users.create(email, display_name=name) for email, name in USERS.items()])
        await asyncio.gather(*[store.put(person_keys.CREATE_PERSON, person_item(name)) for name in PERSON_IDS])
        for shot in SHOTS:
            await self._upload(shot)
        await self._announce(ENDED)
        return len(SHOTS)

    async def live(self) -> None:
        """Restart the livestreams that are due, and change the live one's description if it has subscribers."""
        await self._restart_livestreams()
        livestream = await self._find(LIVE) if self.has_subscribers(SPARKS) else None
        if livestream is not None:
            current = livestream.description
            scene = SCENES[(SCENES.index(current) + 1) % len(SCENES) if current in SCENES else 0]
            await self._livestreams().update(livestream.livestream_id, {"description": scene})

    async def _upload(self, shot: Shot) -> None:
        """Write the files before the photo's item, so that a client that sees the photo can load its picture."""
        original, thumbnail = await asyncio.to_thread(picture_of, shot)
        photo = photo_of(shot, len(original))
        try:
            await self.objects.write(photo.original_key, original, content_type=JPEG)
            await self.objects.write(photo.thumbnail_key, thumbnail, content_type=JPEG)
        except DomainError as problem:
            raise Unavailable(f"The demo's photos could not be written. {problem}") from problem
        try:
            await self.open_store().transact(SPARKS, _actions(shot, photo))
        except TransactionCancelled as problem:
            if problem.reasons[0] != "ConditionalCheckFailed":
                raise

    async def _announce(self, stream: Stream) -> None:
        await self._livestreams().create(livestream_of(stream, self.now()))

    async def _restart_livestreams(self) -> None:
        """Move the live and the upcoming livestream's times, if they are over, so that they are live and upcoming."""
        now = self.now()
        for stream, status in ((LIVE, LivestreamStatus.LIVE), (UPCOMING, LivestreamStatus.UPCOMING)):
            livestream = await self._find(stream)
            if livestream is not None and livestream.status(now) is not status:
                start, end = stream.times(now)
                times = {"start_time": start, "end_time": end}
                await self._livestreams().update(livestream.livestream_id, times)

    async def _find(self, stream: Stream) -> Livestream | None:
        return await self._livestreams().by_id(stream.livestream_id, consistently(livestreams.LIVESTREAM))

    def _livestreams(self) -> Livestreams:
        store = self.open_store()
        return Livestreams(store, Lookups(store), self.now())


def picture_of(shot: Shot) -> tuple[bytes, bytes]:
    """Return the JPEG file of a photo, and that of its thumbnail."""
    from PIL import Image  # not with the module: only the demo needs Pillow in the gateway's process

    original, thumbnail = shot.picture.read_bytes(), io.BytesIO()
    Image.open(io.BytesIO(original)).reduce(THUMBNAIL_FACTOR).save(thumbnail, "JPEG", quality=THUMBNAIL_QUALITY)
    return original, thumbnail.getvalue()


def person_item(name: str) -> Item:
    key = person_keys.person(PERSON_IDS[name], name)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": person_keys.TYPE,
        "personId": PERSON_IDS[name],
        "name": name,
        "faceCount": 0,
        "createdAt": iso(BEGAN),
    }


def photo_of(shot: Shot, size: int) -> Photo:
    image_id, names = shot.image_id, [sitter.name for sitter in shot.sitters]
    faces = [FaceOnPhoto(_face_id(shot, number), PERSON_IDS[name]) for number, name in enumerate(names)]
    return Photo(
        key=library.photo(image_id, library.sort_key_at(shot.taken_at)),
        image_id=image_id,
        taken_at=shot.taken_at,
        email=shot.user,
        original_key=f"originals/{image_id}.jpg",
        thumbnail_key=f"thumbnails/{image_id}.jpg",
        description=shot.description,
        tags=shot.tags,
        person_ids=tuple(PERSON_IDS[name] for name in names),
        person_names={PERSON_IDS[name]: name for name in names},
        faces=tuple(faces),
        content_type=JPEG,
        size=size,
        width=WIDTH,
        height=HEIGHT,
        created_at=shot.uploaded_at,
        revision=len(faces),
    )


def _face_id(shot: Shot, number: int) -> str:
    return uuid7(shot.uploaded_at, f"{shot.name} {number}")


def face_items(shot: Shot, photo: Photo) -> list[Item]:
    keys = [face_keys.face(face.face_id, photo.image_id) for face in photo.faces]
    return [
        {
            "PK": key.partition,
            "SK": key.sort,
            "entityType": face_keys.TYPE,
            "personId": PERSON_IDS[sitter.name],
            "imageId": photo.image_id,
            "photoSK": photo.key.sort,
            "confidence": round(0.99 - 0.013 * number, 3),
            "boundingBox": sitter.box,
            "createdAt": iso(shot.uploaded_at),
        }
        for number, (key, sitter) in enumerate(zip(keys, shot.sitters, strict=True))
    ]


def _actions(shot: Shot, photo: Photo) -> list[Action]:
    """Return the writes of a photo: its item, the items of its faces, and the counters of its user and persons."""
    counters = [(users.user(shot.user), "uploadCount")]
    counters += [(person_keys.person(PERSON_IDS[sitter.name], sitter.name), "faceCount") for sitter in shot.sitters]
    return [
        Action("Put", item=photo.item(), condition="attribute_not_exists(PK)"),
        *[Action("Put", item=item) for item in face_items(shot, photo)],
        *[
            Action("Update", key=key, update=f"ADD {count} :one", condition=EXISTS, values={"one": 1})
            for key, count in counters
        ],
    ]


def livestream_of(stream: Stream, now: datetime) -> Livestream:
    start, end = stream.times(now)
    return Livestream(
        livestream_id=stream.livestream_id,
        title=stream.title,
        description=stream.description,
        stream_url=f"https://example.com/streams/{stream.slug}",
        start_time=start,
        end_time=end,
        created_at=stream.announced_at,
    )
