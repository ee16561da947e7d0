"""The demo's photo library: it is loaded once, its pictures match its data, and its livestream changes."""

from collections import Counter
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from datastore.database import Database
from datastore.dynamodb.codec import Item
from datastore.errors import Unavailable
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import key_of
from datastore.objects import NoObjects
from datastore.objects.local import LocalObjects
from datastore.photos.metadata import separate
from pipelines.demo.photo_album import LIVE, PERSON_IDS, SCENES, SHOTS, UPCOMING, USERS, VISITOR, Shot, Sitter
from pipelines.demo.photos import PhotoDemo
from tests.support.feed_changes import items_of
from tests.support.feed_world import FeedWorld, Killed, ProcessWire
from tests.support.photo_items import ask_as
from tests.support.served import Served

ALL = """{ photos(first: 50) { nodes {
  imageId width height size thumbnailUrl originalUrl user { displayName } persons { name }
  faces { boundingBox { left top width height } person { name } }
} } persons(first: 50) { nodes { name faceCount } } }"""
# The colour of each person's face.
SKINS = {
    "Ilse Caldera": (236, 188, 150),
    "Tomo Arakawa": (242, 206, 168),
    "Bram Adeyemi": (122, 80, 58),
    "Odalys Finch": (208, 150, 112),
    "Pia Rautio": (250, 218, 194),
    "Ezra Malik": (172, 118, 84),
}
STREAMS = "{ latestLivestream { title status } livestreams { nodes { status } } }"


@pytest.fixture
def world(database: Database) -> FeedWorld:
    return FeedWorld(database)


@pytest.fixture
def objects(tmp_path: Any) -> LocalObjects:
    return LocalObjects(tmp_path / "objects", b"secret", lambda: "http://127.0.0.1")


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the pictures, which other tests check."""
    monkeypatch.setattr("pipelines.demo.photos.picture_of", lambda _: (b"original", b"thumbnail"))


def photo_demo(
    world: FeedWorld, objects: LocalObjects, wire: ProcessWire | None = None, *, followed: bool = True
) -> PhotoDemo:
    return PhotoDemo(
        lambda: world.store(wire), objects, now=world.clock, has_subscribers=lambda table: followed and table is SPARKS
    )


def demo_of(served: Served) -> PhotoDemo:
    return PhotoDemo(served.store, served.gateway.objects, now=served.clock, has_subscribers=lambda _: True)


async def sorted_photo_items(world: FeedWorld) -> list[Item]:
    return sorted(await items_of(world.database, SPARKS), key=lambda item: (item["PK"], item["SK"]))


async def test_the_library_shows_its_pictures(served: Served) -> None:
    assert await demo_of(served).load() == len(SHOTS)

    data = (await ask_as(served, ALL, VISITOR)).data
    photos = data["photos"]["nodes"]
    assert [photo["imageId"] for photo in photos] == [shot.image_id for shot in reversed(SHOTS)]
    assert {photo["user"]["displayName"] for photo in photos} == set(USERS.values())
    for photo, shot in zip(photos, reversed(SHOTS), strict=True):
        original, thumbnail = [await fetched(served, photo[url]) for url in ("originalUrl", "thumbnailUrl")]
        picture = Image.open(BytesIO(original))
        assert picture.size == (photo["width"], photo["height"])
        assert [sitter.name for sitter in shot.sitters if not is_inside_its_box(picture, sitter)] == []
        assert Image.open(BytesIO(thumbnail)).size == (480, 320)
        assert photo["size"] == len(original)
        assert [person["name"] for person in photo["persons"]] == [sitter.name for sitter in shot.sitters]
        assert [(face["person"]["name"], face["boundingBox"]) for face in photo["faces"]] == [
            (sitter.name, sitter.box) for sitter in shot.sitters
        ]
    counts = Counter(sitter.name for shot in SHOTS for sitter in shot.sitters)
    assert {person["name"]: person["faceCount"] for person in data["persons"]["nodes"]} == counts
    assert counts.keys() == PERSON_IDS.keys()


@pytest.mark.parametrize("shot", SHOTS, ids=[shot.name for shot in SHOTS])
def test_a_file_is_small_and_without_metadata(shot: Shot) -> None:
    content = shot.picture.read_bytes()
    assert len(content) <= 40_000
    assert separate(content).content == content


async def fetched(served: Served, url: str) -> bytes:
    async with served.http.get(url) as response:
        assert response.status == 200
        return await response.read()


def is_inside_its_box(image: Image.Image, sitter: Sitter) -> bool:
    """Return whether the middle of the box, between the eyes and the nose, has about the colour of the face."""
    box = sitter.box
    middle = (box["left"] + box["width"] / 2) * image.width, (box["top"] + box["height"] * 0.53) * image.height
    seen = image.getpixel((round(middle[0]), round(middle[1])))
    assert isinstance(seen, tuple)
    return all(abs(one - other) < 60 for one, other in zip(seen, SKINS[sitter.name], strict=True)) and (
        0 <= box["left"] <= box["left"] + box["width"] <= 1 and 0 <= box["top"] <= box["top"] + box["height"] <= 1
    )


@pytest.mark.usefixtures("blank_pictures")
async def test_the_library_is_loaded_once(world: FeedWorld, objects: LocalObjects) -> None:
    assert await photo_demo(world, objects).load() == len(SHOTS)
    loaded = await sorted_photo_items(world)
    world.clock.forward(hours=2)

    assert await photo_demo(world, objects).load() == 0

    assert await sorted_photo_items(world) == loaded
    users = {item["email"]: item["uploadCount"] for item in loaded if item["entityType"] == "USER"}
    assert users == Counter(shot.user for shot in SHOTS)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("last", [2, 12, 16])
async def test_an_interrupted_load_is_completed_by_the_next(world: FeedWorld, objects: LocalObjects, last: int) -> None:
    await photo_demo(world, objects).load()
    whole = await sorted_photo_items(world)
    await world.store().write_all(SPARKS, deletes=[key_of(SPARKS, item) for item in whole])
    wire = ProcessWire(world.database.client, last, role=None)
    with pytest.raises(Killed):
        await photo_demo(world, objects, wire).load()
    await wire.quiet()
    assert 0 < len(await sorted_photo_items(world)) < len(whole)

    await photo_demo(world, objects).load()

    assert await sorted_photo_items(world) == whole


@pytest.mark.usefixtures("blank_pictures")
async def test_livestreams_are_loaded_if_files_cannot_be_written(
    world: FeedWorld, objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise Unavailable("The object store cannot be reached.")

    monkeypatch.setattr(objects, "write", refuse)
    with pytest.raises(
        Unavailable, match=r"The demo's photos could not be written\. The object store cannot be reached\."
    ):
        await photo_demo(world, objects).load()
    kinds = Counter(item["entityType"] for item in await sorted_photo_items(world))
    assert (kinds["LIVESTREAM"], kinds["IMAGE"], kinds["PERSON"]) == (2, 0, len(PERSON_IDS))
    monkeypatch.undo()
    monkeypatch.setattr("pipelines.demo.photos.picture_of", lambda _: (b"original", b"thumbnail"))

    assert await photo_demo(world, objects).load() == len(SHOTS)

    kinds = Counter(item["entityType"] for item in await sorted_photo_items(world))
    assert (kinds["LIVESTREAM"], kinds["IMAGE"]) == (3, len(SHOTS))


async def test_without_an_object_store_there_is_no_library(world: FeedWorld) -> None:
    assert await PhotoDemo(world.store, NoObjects(), now=world.clock, has_subscribers=lambda _: True).load() == 0
    assert await sorted_photo_items(world) == []


@pytest.mark.usefixtures("blank_pictures")
async def test_the_latest_livestream_is_live_and_begins_again_when_it_has_ended(served: Served) -> None:
    def states(data: Any) -> list[str]:
        return [data["latestLivestream"]["status"], *[node["status"] for node in data["livestreams"]["nodes"]]]

    await demo_of(served).load()
    at_first = (await served.ask(STREAMS)).data
    assert at_first["latestLivestream"]["title"] == LIVE.title
    assert states(at_first) == ["LIVE", "LIVE", "UPCOMING", "ENDED"]

    served.clock.forward(hours=30)
    assert states((await served.ask(STREAMS)).data) == ["ENDED", "ENDED", "ENDED", "ENDED"]
    await demo_of(served).load()
    assert states((await served.ask(STREAMS)).data) == ["LIVE", "LIVE", "UPCOMING", "ENDED"]


@pytest.mark.usefixtures("blank_pictures")
async def test_the_livestream_changes_while_it_has_subscribers(world: FeedWorld, objects: LocalObjects) -> None:
    async def description_after(followed: bool) -> str:
        await photo_demo(world, objects, followed=followed).live()
        words: str = next(
            item["description"] for item in await sorted_photo_items(world) if LIVE.livestream_id in item["PK"]
        )
        return words

    await photo_demo(world, objects).load()
    before = len(await sorted_photo_items(world))
    assert await description_after(followed=False) == LIVE.description
    assert [await description_after(followed=True) for _ in range(len(SCENES) + 1)] == [*SCENES, SCENES[0]]
    assert len(await sorted_photo_items(world)) == before


def test_ids_are_in_the_order_that_examples_need() -> None:
    assert UPCOMING.livestream_id < LIVE.livestream_id
    assert SHOTS[-1].image_id < UPCOMING.livestream_id
    assert SHOTS[-1].user == VISITOR
    assert len({shot.image_id for shot in SHOTS}) == len(SHOTS)
