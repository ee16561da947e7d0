"""A photo library for the demo: drawn pictures with those who are on them, and a livestream in which things happen."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.errors import DomainError, Unavailable
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as person_keys
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos import users
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import Table
from datastore.model.ids import uuid7
from datastore.model.timestamps import iso
from datastore.objects import ObjectStore
from datastore.photos.livestreams import Livestream, Livestreams, LivestreamState
from datastore.photos.lookups import Lookups
from datastore.photos.photos import FaceOnPhoto, Photo, photo_item
from datastore.photos.users import PhotoUsers
from datastore.session.store import Store
from datastore.session.writes import Action
from pipelines.demo.canvas import HEIGHT, WIDTH
from pipelines.demo.photo_album import (
    BEGAN,
    ENDED,
    LIVE,
    LOOKS,
    PERSON_IDS,
    SCENES,
    SHOTS,
    UPCOMING,
    USERS,
    Shot,
    Stream,
)
from pipelines.demo.pictures import picture

JPEG = "image/jpeg"
ONE_MORE = "attribute_exists(PK)"


class PhotoDemo:
    """`open_store` gives a fresh `Store` for each piece of work."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        objects: ObjectStore,
        *,
        now: Callable[[], datetime],
        is_followed: Callable[[Table], bool],
    ) -> None:
        self._open_store = open_store
        self._objects = objects
        self._now = now
        self._is_followed = is_followed

    async def load(self) -> int:
        """The users, persons and photos, and three livestreams, unless they are there: how many photos.

        All ids are the same in each demo, and what is there is left as it is: a start that was cut short is made good
        by the next. The livestream that has ended comes last, and tells that all the rest is there. Without a place for
        files there is nothing to show. Raises `Unavailable` without the photos when their files cannot be written.
        """
        if await self._objects.url(SHOTS[0].name, now=self._now()) is None:
            return 0
        if await self._find(ENDED) is not None:
            await self._keep_going()
            return 0
        # Nothing of theirs is a file: they are there also when the pictures cannot be.
        for stream in (LIVE, UPCOMING):
            await self._announce(stream)
        await self._keep_going()
        store = self._open_store()
        entered = PhotoUsers(store, BEGAN)
        await asyncio.gather(*[entered.create(email, display_name=name) for email, name in USERS.items()])
        await asyncio.gather(*[store.put(person_keys.CREATE_PERSON, person_item(name)) for name in LOOKS])
        for shot in SHOTS:
            await self._upload(shot)
        await self._announce(ENDED)
        return len(SHOTS)

    async def live(self) -> None:
        """Something else happens on the livestream, while somebody follows."""
        await self._keep_going()
        there = await self._find(LIVE) if self._is_followed(SPARKS) else None
        if there is not None:
            said = there.description
            scene = SCENES[(SCENES.index(said) + 1) % len(SCENES) if said in SCENES else 0]
            await self._livestreams().update(there.livestream_id, {"description": scene})

    async def _upload(self, shot: Shot) -> None:
        """The files, and then the photo: whoever sees a photo sees its picture."""
        original, thumbnail = await asyncio.to_thread(picture, shot.name, shot.place, shot.sitters, LOOKS)
        photo = photo_of(shot, len(original))
        try:
            await self._objects.write(photo.original_key, original, content_type=JPEG)
            await self._objects.write(photo.thumbnail_key, thumbnail, content_type=JPEG)
        except DomainError as problem:
            raise Unavailable(f"Photos of the demo are missing. {problem}") from problem
        try:
            await self._open_store().transact(SPARKS, _actions(shot, photo))
        except TransactionCancelled as problem:
            if problem.reasons[0] != "ConditionalCheckFailed":
                raise

    async def _announce(self, stream: Stream) -> None:
        await self._livestreams().create(livestream_of(stream, self._now()))

    async def _keep_going(self) -> None:
        """What has ended begins again, and what was to come is to come again."""
        now = self._now()
        for stream, state in ((LIVE, LivestreamState.LIVE), (UPCOMING, LivestreamState.UPCOMING)):
            there = await self._find(stream)
            if there is not None and there.state(now) is not state:
                start, end = stream.times(now)
                await self._livestreams().update(there.livestream_id, {"startTime": iso(start), "endTime": iso(end)})

    async def _find(self, stream: Stream) -> Livestream | None:
        return await self._livestreams().by_id(stream.livestream_id, consistent=True)

    def _livestreams(self) -> Livestreams:
        store = self._open_store()
        return Livestreams(store, Lookups(store), self._now())


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
    """The photo with its faces, and one more of each for those who count them."""
    counted = [(users.user(shot.user), "uploadCount")]
    counted += [(person_keys.person(PERSON_IDS[sitter.name], sitter.name), "faceCount") for sitter in shot.sitters]
    return [
        Action("Put", item=photo_item(photo), condition="attribute_not_exists(PK)"),
        *[Action("Put", item=item) for item in face_items(shot, photo)],
        *[
            Action("Update", key=key, update=f"ADD {count} :one", condition=ONE_MORE, values={"one": 1})
            for key, count in counted
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
