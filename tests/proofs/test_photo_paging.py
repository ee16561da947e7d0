"""A library of 5,000 photos with 60 people: every list, paged both ways in every order, equals that of plain Python."""

import asyncio
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from datastore.database import StoreOptions, open_database
from datastore.infrastructure import tables
from datastore.keyspace.photos import photos as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.model.timestamps import iso
from datastore.photos.photos import FaceOnPhoto, Photo
from runtime.container import Gateway
from server.settings import Settings
from tests.support.photo_items import ask_as, face, person, photo_user
from tests.support.served import NOON, SECRET, Clock, Served
from tests.support.store_engines import Engines

PHOTOS, PEOPLE, USERS = 5000, 60, 40
ORDERS = ("DESCENDING", "ASCENDING")


@dataclass
class Album:
    """The content of the library, in plain Python."""

    photos: list[Photo] = field(default_factory=list)
    faces: list[dict[str, Any]] = field(default_factory=list)
    people: list[dict[str, Any]] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    def all_photos(self, order: str) -> list[str]:
        return sorted([shot.image_id for shot in self.photos], reverse=order == "DESCENDING")

    def by_user(self, email: str, order: str) -> list[str]:
        return sorted([shot.image_id for shot in self.photos if shot.email == email], reverse=order == "DESCENDING")

    def of_person(self, person_id: str, order: str) -> list[str]:
        """Return each photo at the place of the person's first face on it."""
        own = [each for each in self.faces if each["personId"] == person_id]
        own.sort(key=lambda each: str(each["PK"]), reverse=order == "DESCENDING")
        return list(dict.fromkeys(each["imageId"] for each in own))


def album() -> Album:
    """Create an album: some people have many photos, some few; they are tagged at once or much later, a few of them
    twice.
    """
    rng, made, moment = random.Random(2026), Album(), NOON - timedelta(days=400)
    made.people = [person(uuid7(moment, f"person{number}"), f"Person {number}") for number in range(PEOPLE)]
    made.users = sorted(f"user{number}@example.com" for number in range(USERS))
    ids = [each["personId"] for each in made.people]
    for number in range(PHOTOS):
        moment += timedelta(milliseconds=rng.randrange(0, 10_000_000))
        image_id, email = uuid7(moment, f"photo{number}"), made.users[int(USERS * rng.random() ** 3)]
        # Half of the photos are of the first of all people.
        count = rng.choice((0, 0, 1, 1, 1, 2))
        shown = [ids[int(PEOPLE * rng.random() ** 3)] for _ in range(count)]
        faces = []
        for place, who in enumerate(shown):
            tagged = moment + timedelta(days=rng.choice((0, 0, 0, rng.randrange(100))))
            face_id = uuid7(tagged, f"face{number}.{place}")
            made.faces.append(face(face_id, image_id, who, iso(moment), createdAt=iso(tagged)))
            faces.append(FaceOnPhoto(face_id, who))
        who_is_there = tuple(dict.fromkeys(shown))
        made.photos.append(
            Photo(
                key=keys.photo(image_id, keys.sort_key_at(moment)),
                image_id=image_id,
                taken_at=moment,
                email=email,
                original_key=f"originals/{image_id}.jpg",
                thumbnail_key=f"thumbnails/{image_id}.jpg",
                description=f"Photo {number}",
                tags=("summer", "lake"),
                person_ids=who_is_there,
                person_names={each: f"Person {ids.index(each)}" for each in who_is_there},
                faces=tuple(faces),
                content_type="image/jpeg",
                size=2_000_000,
                width=4000,
                height=3000,
                created_at=moment,
                revision=len(faces),
            )
        )
    return made


@dataclass(frozen=True)
class Filled:
    options: StoreOptions
    album: Album


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    """Store the library once, on an engine of its own."""
    engines, made = Engines(), album()
    options = StoreOptions(store=engines.next(), prefix=f"album{uuid.uuid4().hex[:8]}__")
    try:
        asyncio.run(store_album(options, made))
        yield Filled(options, made)
    finally:
        engines.close()


async def store_album(options: StoreOptions, made: Album) -> None:
    """Store the album without a stream: nothing reads it, and writing is faster."""
    async with open_database(options) as database:
        await tables.create(database.client, [replace(SPARKS, stream=None)], options.prefix)
    items = [*made.people, *map(photo_user, made.users), *made.faces, *[photo.item() for photo in made.photos]]
    async with Gateway(Settings(secret=SECRET), options, now=Clock()).running() as gateway:
        for at in range(0, len(items), 1000):
            await gateway.open_store().write_all(SPARKS, puts=items[at : at + 1000])


@pytest.fixture
def store_options(filled: Filled) -> StoreOptions:
    return filled.options


# The lists


@dataclass(frozen=True)
class Listed:
    """A list of the API: its query and its expected content."""

    served: Served
    field: str
    id: str
    arguments: str
    expected: list[str]

    async def page(self, *, backward: bool, size: int, cursor: str | None = None) -> "AlbumPage":
        count, position = ("last", "before") if backward else ("first", "after")
        place = "" if cursor is None else f', {position}: "{cursor}"'
        answer = await ask_as(
            self.served,
            f"""{{ found: {self.field}({self.arguments}, {count}: {size}{place}) {{
              nodes {{ {self.id} }} pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }}
            }} }}""",
            role=Role.ADMIN,
        )
        assert answer.errors is None, answer.errors
        found = answer.data["found"]
        info = found["pageInfo"]
        return AlbumPage(
            [node[self.id] for node in found["nodes"]],
            (info["hasPreviousPage"], info["hasNextPage"]),
            (info["startCursor"], info["endCursor"]),
        )

    async def is_right(self, size: int, *, backward: bool) -> None:
        """Check every page of this size, one after the other."""
        rest, cursor = self.expected, None
        while True:
            here, rest = (rest[-size:], rest[:-size]) if backward else (rest[:size], rest[size:])
            found = await self.page(backward=backward, size=size, cursor=cursor)
            assert found.ids == here
            came_from, leads_to = found.around[::-1] if backward else found.around
            assert (came_from, leads_to) == (cursor is not None, bool(rest))
            if not rest:
                return
            cursor = found.cursors[0 if backward else 1]


@dataclass(frozen=True)
class AlbumPage:
    """A page as a client received it: whether the list continues before and after it, and its first and last cursor."""

    ids: list[str]
    around: tuple[bool, bool]
    cursors: tuple[str | None, str | None]


def photos(served: Served, made: Album, order: str) -> Listed:
    return Listed(served, "photos", "imageId", f"order: {order}", made.all_photos(order))


def by_user(served: Served, made: Album, email: str, order: str) -> Listed:
    return Listed(served, "photosByUser", "imageId", f'email: "{email}", order: {order}', made.by_user(email, order))


def of_person(served: Served, made: Album, number: int, order: str) -> Listed:
    id = made.people[number]["personId"]
    arguments = f'personId: "{id}", order: {order}'
    return Listed(served, "photosByPerson", "imageId", arguments, made.of_person(id, order))


def persons(served: Served, made: Album, order: str) -> Listed:
    ids = sorted((each["personId"] for each in made.people), reverse=order == "DESCENDING")
    return Listed(served, "persons", "personId", f"order: {order}", ids)


def photo_users(served: Served, made: Album, order: str) -> Listed:
    emails = sorted(made.users, reverse=order == "DESCENDING")
    return Listed(served, "photoUsers", "email", f"order: {order}", emails)


async def test_all_photos_both_ways_in_every_order(filled: Filled, served: Served) -> None:
    for order in ORDERS:
        for backward in (False, True):
            await photos(served, filled.album, order).is_right(100, backward=backward)


async def test_the_photos_of_a_user_and_of_a_person_both_ways_in_every_order(filled: Filled, served: Served) -> None:
    made = filled.album
    for order in ORDERS:
        for backward in (False, True):
            await by_user(served, made, made.users[1], order).is_right(37, backward=backward)
            await of_person(served, made, 1, order).is_right(37, backward=backward)


async def test_persons_and_users_both_ways_in_every_order(filled: Filled, served: Served) -> None:
    for make in (persons, photo_users):
        for order in ORDERS:
            for backward in (False, True):
                await make(served, filled.album, order).is_right(37 if backward else 7, backward=backward)


async def test_the_photos_of_many_users_and_persons_each_another_way(filled: Filled, served: Served) -> None:
    rng, made = random.Random(1), filled.album
    lists = [partial(by_user, served, made, email) for email in rng.sample(made.users[2:], 10)]
    lists += [partial(of_person, served, made, number) for number in (0, *rng.sample(range(2, PEOPLE), 15))]

    for make in lists:
        backward, size = rng.random() < 0.5, rng.choice((37, 100))
        await make(order=rng.choice(ORDERS)).is_right(size, backward=backward)


async def test_any_cursor_continues_in_both_directions(filled: Filled, served: Served) -> None:
    rng, made = random.Random(3), filled.album
    lists = [photos(served, made, rng.choice(ORDERS)), by_user(served, made, made.users[0], rng.choice(ORDERS))]
    lists += [of_person(served, made, number, order) for number in (0, 3) for order in ORDERS]

    for one in lists:
        place = {id: number for number, id in enumerate(one.expected)}
        known: list[tuple[int, str]] = []
        for _ in range(15):
            backward, size = rng.random() < 0.5, rng.choice((1, 1, 2, 7, 37, 100))
            at, cursor = rng.choice(known) if known else (len(place) if backward else -1, None)
            found = await one.page(backward=backward, size=size, cursor=cursor)
            assert found.ids == (one.expected[max(at - size, 0) : at] if backward else one.expected[at + 1 :][:size])
            if found.ids:
                known += [(place[found.ids[end]], str(found.cursors[end])) for end in (0, -1)]


async def test_one_by_one_along_a_stretch(filled: Filled, served: Served) -> None:
    made = filled.album
    for one in (photos(served, made, "ASCENDING"), of_person(served, made, 0, "DESCENDING")):
        start = await one.page(backward=False, size=100)
        cursor = start.cursors[1]
        for number in range(100, 112):
            found = await one.page(backward=False, size=1, cursor=cursor)
            assert found.ids == [one.expected[number]]
            cursor = found.cursors[1]
        for number in range(110, 98, -1):
            found = await one.page(backward=True, size=1, cursor=cursor)
            assert found.ids == [one.expected[number]]
            cursor = found.cursors[0]
