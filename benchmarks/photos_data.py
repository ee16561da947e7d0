"""The data of the photo library, equal in every run and in the form that the gateway writes."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from io import BytesIO

from PIL import Image

from benchmarks.data import NOON, SEED, open_store
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos import users
from datastore.keyspace.photos.table import SPARKS
from datastore.model.ids import uuid7
from datastore.model.timestamps import iso
from datastore.photos.face_tags import face_item
from datastore.photos.faces import Face, FaceBoundingBox
from datastore.photos.persons import Person, person_item
from datastore.photos.photos import FaceOnPhoto, Photo, photo_item

PHOTOS = 300
FACES_EACH = 2
GROUP_SIZE = 10  # the faces on each of the photos that are deleted
BETWEEN = timedelta(minutes=7)
PICTURE = (640, 480)

USERS = [f"user-{number:02}@example.com" for number in range(10)]
UPLOADER = "uploader@example.com"
GROUP_USER = "groups@example.com"
POPULAR_PERSON = "Person 00"  # is on every fourth photo
NAMES = [POPULAR_PERSON, *[f"Person {number:02}" for number in range(1, 50)]]
GROUP_PERSONS = NAMES[-GROUP_SIZE:]
LIMIT = 10


def limited(number: int) -> str:
    """Return the email of a user without photos and with a limit of ten."""
    return f"limited-{number:02}@example.com"


async def fill(client: Client, group_photos: int, limited_users: int) -> list[str]:
    """Write all data to empty tables. Return the ids of the photos with groups, which are older than the others."""
    photos = [_planned(number) for number in range(PHOTOS)]
    deleted = [_photo(PHOTOS + number, GROUP_USER, GROUP_PERSONS) for number in range(group_photos)]
    both = [*photos, *deleted]
    items = [
        *(_user(email, PHOTOS // len(USERS)) for email in USERS),
        _user(UPLOADER, 0),
        _user(GROUP_USER, group_photos),
        *(_user(limited(number), 0, LIMIT) for number in range(limited_users)),
        *_persons(both),
        *map(photo_item, both),
        *(face_item(face) for photo in both for face in _faces(photo)),
    ]
    await open_store(client).write_all(SPARKS, puts=items)
    return [photo.image_id for photo in deleted]


def image_id(number: int) -> str:
    """Return the id of photo `number`, counted from the newest."""
    return uuid7(taken_at(number), f"photo {number}")


def taken_at(number: int) -> datetime:
    return NOON - (number + 1) * BETWEEN


def person_id(name: str) -> str:
    return uuid7(NOON - timedelta(days=300), name)


def picture() -> bytes:
    """Return a JPEG of soft colours, which compresses about like a photo."""
    rng = random.Random(SEED)
    small = Image.frombytes("RGB", (80, 60), rng.randbytes(80 * 60 * 3))
    file = BytesIO()
    small.resize(PICTURE, Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


def _planned(number: int) -> Photo:
    """Return a photo with two persons. The photos of one page have mostly different persons."""
    rng = random.Random(SEED + number)
    others = NAMES[1:-GROUP_SIZE]
    shown = rng.sample(others, FACES_EACH)
    return _photo(number, USERS[number % len(USERS)], [POPULAR_PERSON, shown[0]] if number % 4 == 0 else shown)


def _photo(number: int, email: str, names: Sequence[str]) -> Photo:
    moment, image = taken_at(number), image_id(number)
    ids = [person_id(name) for name in names]
    return Photo(
        key=library.photo(image, library.sort_key_at(moment)),
        image_id=image,
        taken_at=moment,
        email=email,
        original_key=f"originals/{image}-0123456789abcdef.jpg",
        thumbnail_key=f"thumbnails/{image}-0123456789abcdef.jpg",
        description=f"Number {number}: boats in the harbour, in the last light of the day.",
        tags=("harbour", "evening"),
        person_ids=tuple(ids),
        person_names=dict(zip(ids, names, strict=True)),
        faces=tuple(FaceOnPhoto(uuid7(moment, f"face {number} of {id}"), id) for id in ids),
        content_type="image/jpeg",
        size=2_345_678,
        width=4000,
        height=3000,
        created_at=moment,
        revision=len(names),
    )


def _faces(photo: Photo) -> Iterator[Face]:
    for place, face in enumerate(photo.faces):
        yield Face(
            face_id=face.face_id,
            image_id=photo.image_id,
            person_id=face.person_id,
            confidence=0.98,
            bounding_box=FaceBoundingBox(round(0.05 + 0.09 * place, 2), 0.3, 0.08, 0.12),
            created_at=photo.taken_at,
            photo_sort=photo.key.sort,
        )


def _persons(photos: Sequence[Photo]) -> Iterator[Item]:
    for name in NAMES:
        id = person_id(name)
        count = sum(id in photo.person_ids for photo in photos)
        thumbnail = f"https://images.example.org/persons/{id}.jpg"
        yield person_item(Person(id, name, count, thumbnail, NOON - timedelta(days=300), None))


def _user(email: str, count: int, limit: int = 1_000_000) -> Item:
    key = users.user(email)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": users.TYPE,
        "email": email,
        "displayName": email.partition("@")[0].title(),
        "uploadLimit": limit,
        "uploadCount": count,
        "createdAt": iso(NOON - timedelta(days=300)),
    }
