"""`gateway.py photos strip`: removes the metadata from the files of stored photos, also after interruptions."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from datastore.database import StoreOptions
from datastore.errors import Unavailable
from datastore.keyspace.photos import stripping as keys
from datastore.objects import ObjectStore
from pipelines.photos.stripping import Stripping, StrippingSummary
from server.settings import Settings
from tests.support.command_line import run_command, surroundings
from tests.support.forking import Forked
from tests.support.marked_pictures import KINDS, MARKER, TEXT, decoded_frames
from tests.support.photo_items import ADA, ask_as, photo, photo_user, put_library_items
from tests.support.photo_steps import DELETE, ask_library
from tests.support.pictures import jpeg
from tests.support.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server
from tests.support.served import Served

PHOTOS = 7
URLS = "{ photos(first: 100) { nodes { imageId originalUrl thumbnailUrl size camera } } }"
AWS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": REGION}
Write = Callable[[Any], Coroutine[Any, Any, None]]


@pytest.fixture(params=["folder", "bucket"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_options(store_options: StoreOptions, tmp_path: Path) -> StoreOptions:
    return replace(store_options, data_dir=tmp_path)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Server]:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    async with S3Server() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, kind: str, server: S3Server) -> Settings:
    return settings if kind == "folder" else replace(settings, photo_bucket=BUCKET, s3_url=server.url)


@dataclass
class Library:
    """Photos as an earlier gateway stored them, with all their metadata."""

    served: Served
    options: StoreOptions
    environment: dict[str, str]

    @property
    def objects(self) -> ObjectStore:
        return self.served.gateway.objects

    @property
    def arguments(self) -> list[str]:
        options = self.options
        return [
            "photos",
            "strip",
            "--store",
            options.store,
            "--prefix",
            options.prefix,
            "--data-dir",
            str(options.data_dir),
        ]

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a separate process."""
        return await asyncio.to_thread(run_command, *self.arguments, *arguments, **self.environment)

    async def file(self, key: str) -> bytes:
        content = await self.objects.read(key, max_bytes=2**25)
        assert content is not None
        return content

    async def marked(self) -> list[str]:
        """Return the keys of the files that contain a marker."""
        names = [key for number in range(PHOTOS) for key in object_names(number)]
        return [key for key in names if MARKER in await self.file(key)]

    async def photos(self, email: str | None = None) -> list[dict[str, Any]]:
        """Return the photos that a user sees, oldest first."""
        answer = await ask_as(self.served, URLS, email) if email else await self.served.ask(URLS)
        assert answer.errors is None
        return sorted(answer.data["photos"]["nodes"], key=lambda node: str(node["imageId"]))

    async def checkpoint(self) -> Any:
        return await self.served.store().get(keys.STRIP_PROGRESS, keys.checkpoint())


def object_names(number: int) -> tuple[str, str]:
    return f"originals/{number}.jpg", f"thumbnails/{number}.jpg"


def photo_item(number: int, **more: Any) -> dict[str, Any]:
    original, thumbnail = object_names(number)
    return photo(str(number), originalKey=original, thumbnailKey=thumbnail, **more)


@pytest.fixture
async def library(served: Served, store_options: StoreOptions, kind: str, server: S3Server) -> Library:
    environment = {} if kind == "folder" else {**AWS, "GATEWAY_PHOTO_BUCKET": BUCKET, "GATEWAY_S3_URL": server.url}
    library = Library(served, store_options, environment)
    await put_library_items(
        served, photo_user(uploadCount=PHOTOS), *[photo_item(number, size=1) for number in range(PHOTOS)]
    )
    kinds = [*KINDS]
    for number in range(PHOTOS):
        original, thumbnail = object_names(number)
        await library.objects.write(original, KINDS[kinds[2 * number]](6), content_type="image/jpeg")
        await library.objects.write(thumbnail, KINDS["JPEG"](None), content_type="image/jpeg")
    return library


def summary(stripped: int = 0, clean: int = 0, missing: int = 0, unreadable: int = 0, word: str = "stripped") -> str:
    return f"{word:<10}  {stripped}\nclean       {clean}\nmissing     {missing}\nunreadable  {unreadable}\n"


@pytest.mark.proof
async def test_all_files_are_stripped_and_a_second_run_changes_nothing(library: Library) -> None:
    before = [await library.file(object_names(number)[0]) for number in range(PHOTOS)]

    counted = await library.run("--dry-run")
    untouched = [await library.file(object_names(number)[0]) for number in range(PHOTOS)] == before
    first = await library.run("--page", "3")
    after = [await library.file(object_names(number)[0]) for number in range(PHOTOS)]
    second = await library.run()

    assert (counted.returncode, counted.stdout, untouched) == (0, summary(PHOTOS, word="to strip"), True)
    assert (first.returncode, first.stdout, first.stderr) == (0, summary(PHOTOS), "3 photos\n6 photos\n7 photos\n")
    assert (second.returncode, second.stdout) == (0, summary(clean=PHOTOS))
    assert await library.marked() == []
    assert [list(decoded_frames(one)) for one in after] == [list(decoded_frames(one)) for one in before]
    received = await library.photos()
    assert [(node["size"], node["camera"]) for node in received] == [
        (len(one), f"Maker {TEXT} Model 5") for one in after
    ]
    assert None not in [node["originalUrl"] for node in received]
    assert await library.checkpoint() is None


@pytest.mark.parametrize("kind", ["bucket"], indirect=True)
async def test_the_type_of_a_file_in_the_bucket_is_that_of_its_picture(library: Library, server: S3Server) -> None:
    await library.run()

    types = [server.objects[object_names(number)[0]][1] for number in range(PHOTOS)]
    assert types == ["image/jpeg"] * 3 + ["image/png"] * 3 + ["image/webp"]


@pytest.mark.parametrize("kind", ["bucket"], indirect=True)
async def test_a_killed_run_is_continued_after_its_last_page(
    library: Library, server: S3Server, tmp_path: Path
) -> None:
    answer, log = server._serve, tmp_path / "killed.log"
    stuck, puts = asyncio.Event(), 0

    async def hanging(request: Any, key: str) -> Any:
        nonlocal puts
        puts += request.method == "PUT"
        if puts > 9:  # one file of the third page has been replaced
            stuck.set()
            await asyncio.sleep(60)
        return await answer(request, key)

    server._serve = hanging  # type: ignore[method-assign]
    process = Forked("gateway.py", [*library.arguments, "--page", "2"], surroundings(**library.environment), stderr=log)
    async with asyncio.timeout(40):
        await stuck.wait()
    process.kill()
    process.wait(10)
    server._serve = answer  # type: ignore[method-assign]
    noted, half = await library.checkpoint(), await library.marked()
    seen = len(server.requests)

    ended = await library.run("--page", "2")

    assert (noted["photos"], log.read_text()) == (4, "2 photos\n4 photos\n")
    assert half
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "earlier     4")
    again = {name.rpartition("/")[2] for name in server.requests[seen:]}
    assert again == {"4.jpg", "5.jpg", "6.jpg"}
    assert (await library.marked(), await library.checkpoint()) == ([], None)
    received = await library.photos()
    assert [node["size"] for node in received] == [
        len(await library.file(object_names(number)[0])) for number in range(PHOTOS)
    ]
    assert [node["camera"] for node in received] == [f"Maker {TEXT} Model 5"] * PHOTOS
    assert None not in [node["originalUrl"] for node in received]


class InterruptedObjects:
    """The object store of a gateway that runs an interruption at each write."""

    def __init__(self, objects: ObjectStore, before: Write | None = None, after: Write | None = None) -> None:
        self._objects = objects
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        if self._before:
            await self._before(key)
        await self._objects.write(key, content, content_type=content_type)
        if self._after:
            await self._after(key)


def stripping(library: Library, step: str, interrupt: Write) -> Stripping:
    objects: Any = InterruptedObjects(library.objects, **{step: interrupt})
    return Stripping(library.served.store, objects, page=1)


def ignore_progress(_: StrippingSummary) -> None:
    pass


@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_failed_run_is_completed_by_the_next(library: Library, step: str) -> None:
    """In each run the object store fails at a later write, until a run completes."""
    failed: set[str] = set()

    async def fail(key: str) -> None:
        if key not in failed:
            failed.add(key)
            raise Unavailable("The object store fails.")

    runs = 0
    while True:
        runs += 1
        with suppress(Unavailable):
            ended = await stripping(library, step, fail).run(ignore_progress)
            break

    assert runs > PHOTOS
    assert ended.earlier == PHOTOS - 1
    assert await library.marked() == []
    received = await library.photos()
    assert [node["camera"] for node in received] == [f"Maker {TEXT} Model 5"] * PHOTOS
    assert None not in [node["originalUrl"] for node in received]


async def test_other_users_do_not_see_an_original_while_it_is_replaced(library: Library) -> None:
    seen: dict[str, tuple[Any, Any]] = {}

    async def look(key: str) -> None:
        folder, _, name = key.partition("/")
        if folder == "originals":
            number = int(name.partition(".")[0])
            strangers, own = await library.photos(), await library.photos(ADA)
            seen[name] = strangers[number]["originalUrl"], own[number]["originalUrl"]

    await stripping(library, "before", look).run(ignore_progress)

    assert len(seen) == PHOTOS
    assert [strangers for strangers, _ in seen.values()] == [None] * PHOTOS
    assert None not in [own for _, own in seen.values()]


@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_photo_deleted_during_the_run_leaves_no_file(library: Library, step: str) -> None:
    async def delete(key: str) -> None:
        if key == "originals/3.jpg":
            await ask_library(library.served, DELETE, id="3")

    await stripping(library, step, delete).run(ignore_progress)

    for key in object_names(3):
        assert await library.objects.read(key, max_bytes=2**25) is None
    assert [node["imageId"] for node in await library.photos()] == ["0", "1", "2", "4", "5", "6"]


async def test_unreadable_files_are_reported_and_shown_only_to_their_owner(library: Library) -> None:
    await library.objects.write("originals/1.jpg", b"GIF89a" + MARKER, content_type="image/gif")
    await library.objects.write("originals/2.jpg", jpeg()[:-2], content_type="image/jpeg")
    await library.objects.delete(["originals/3.jpg"])
    await put_library_items(library.served, photo_item(4) | {"createdAt": 5})

    ended = await library.run()

    assert (ended.returncode, ended.stdout) == (1, summary(stripped=3, missing=1, unreadable=3))
    assert "Photo 1: a file is unreadable.\n" in ended.stderr
    assert "Photo 3: a file is missing.\n" in ended.stderr
    urls = "query($id: ID!) { photo(id: $id) { originalUrl } }"
    for id, hidden in (("0", False), ("1", True), ("2", True), ("3", False)):
        answer = (await library.served.ask(urls, {"id": id})).data["photo"]["originalUrl"]
        assert (answer is None) is hidden, id
        assert (await ask_as(library.served, urls, id=id)).data["photo"]["originalUrl"] is not None


async def test_from_the_start_ignores_the_checkpoint(library: Library) -> None:
    async def fail(key: str) -> None:
        if key == "originals/5.jpg":
            raise Unavailable("The object store fails.")

    with pytest.raises(Unavailable):
        await stripping(library, "before", fail).run(ignore_progress)
    ended = await library.run("--from-the-start")

    assert ended.stdout == summary(stripped=2, clean=5)
