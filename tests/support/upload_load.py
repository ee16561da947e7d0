"""Uploads of photos as a load, and a model of what must be there of them.

Each photo is one uploader's, who does one thing after another with it, and sends again whatever is not answered for
good: so the last answer settles whether it is there. Of one that was confirmed when its time was over anything may be
true.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp

from datastore.database import Database
from datastore.dynamodb.codec import Item
from datastore.keyspace.photos.table import SPARKS
from datastore.model.ids import uuid7
from datastore.model.timestamps import from_iso
from datastore.objects import INCOMING
from datastore.photos.metadata import strip
from tests.support.deployment import wait_for
from tests.support.feed_changes import items_of
from tests.support.mixed_load import Fact, Truth
from tests.support.photo_items import ask_as, photo_user, put_library_items
from tests.support.photo_steps import DELETE
from tests.support.pictures import unique_jpeg
from tests.support.remote import Remote
from tests.support.upload_forms import cancel, complete_photo, create_photo, post_form

LIMIT = 4
URLS = "query ($id: ID!) { photo(id: $id) { originalUrl thumbnailUrl } }"
SENT, BUSY = 204, 409
# The token or the reservation has expired.
OVER = (403, 404)
# Codes for an upload that ended in another way: the reservation or the file does not exist.
GONE = {"NOT_FOUND", "NOT_UPLOADED"}


@dataclass(frozen=True)
class Upload:
    """A reservation as its uploader knows it, with its picture."""

    image_id: str
    expires_at: datetime
    target: Any
    picture: bytes

    @property
    def fact(self) -> Fact:
        return "upload", self.image_id

    @property
    def digest(self) -> str:
        """The digest of the original, which is stored without metadata."""
        return sha256(strip(self.picture)).hexdigest()


# An expired reservation holds its place until the janitor runs, in a process that may have been killed.
UNSWEPT = timedelta(minutes=5)


class UploadLoad:
    """Concurrent uploaders with a random generator each. `outcomes` counts the outcomes of their uploads."""

    def __init__(self, served: Remote, http: aiohttp.ClientSession, urls: list[str], *, uploaders: int, seed: int):
        self.served = served
        self.http = http
        self.urls = urls
        self.truth = Truth()
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[Any] = []
        # Ids that were confirmed while they were cancelled or expired.
        self.ended_meanwhile: set[str] = set()
        self.uploaders = [
            Uploader(self, f"uploader{number:02}@example.com", random.Random(f"{seed} upload {number}"))
            for number in range(uploaders)
        ]

    async def prepare(self) -> None:
        await put_library_items(
            self.served, *[photo_user(one.email, uploadCount=0, uploadLimit=LIMIT) for one in self.uploaders]
        )

    async def work_until(self, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            for uploader in self.uploaders:
                tasks.create_task(uploader.work_until(over))

    async def check(self, database: Database, folder: Path, seconds: float) -> None:
        """Wait at most `seconds` for the janitor to finish.

        Check that each photo exists as the responses say, with exactly its files, and that the places of each uploader
        are counted.
        """

        async def is_tidy() -> bool:
            kinds = {item["entityType"] for item in await items_of(database, SPARKS)}
            return not kinds & {"UPLOAD", "REMOVAL"}

        assert not self.wrong, self.wrong
        await wait_for(is_tidy, seconds)
        emails = {one.email for one in self.uploaders}
        items = [item for item in await items_of(database, SPARKS) if item.get("email") in emails]
        photos = [item for item in items if item["entityType"] == "IMAGE"]
        stored: dict[Fact, Any] = {("upload", item["imageId"]): await self._digest(item) for item in photos}
        assert len(stored) == len(photos), "A photo is there twice."
        wrong = [*self.truth.wrong("upload", stored)]
        assert not wrong, wrong
        held = Counter(item["email"] for item in photos)
        counts = {item["email"]: item["uploadCount"] for item in items if item["entityType"] == "USER"}
        assert counts == {email: held[email] for email in emails}, (counts, held)
        shown = {item[name] for item in photos for name in ("originalKey", "thumbnailKey")}
        there = files_in(folder)
        assert shown <= there, shown - there
        left = [key for key in there - shown if not self._may_be_left(key)]
        assert not left, left

    def _may_be_left(self, key: str) -> bool:
        """Return whether a file may be left: a partial file of a killed gateway is swept later, and a late confirmation
        may leave the files that it had written.
        """
        is_swept = key.startswith(INCOMING) and key.endswith(".part")
        return is_swept or (not key.startswith(INCOMING) and any(one in key for one in self.ended_meanwhile))

    async def _digest(self, photo: Item) -> str:
        """Return the digest of the original that its owner downloads."""
        answer = await ask_as(self.served, URLS, photo["email"], id=photo["imageId"])
        assert answer.errors is None
        contents = []
        for url in answer.data["photo"].values():
            async with self.http.get(url) as response:
                assert response.status == 200
                contents.append(await response.read())
        assert all(contents)
        return sha256(contents[0]).hexdigest()


class Uploader:
    """A user of the library. `_open` holds the expiry times of abandoned reservations."""

    def __init__(self, load: UploadLoad, email: str, rng: random.Random) -> None:
        self.email = email
        self._load = load
        self._rng = rng
        self._photos: list[str] = []
        self._open: list[datetime] = []
        self._number = 0
        confirm: Callable[[Upload], Awaitable[None]] = self._confirm
        self._ways = [*[confirm] * 3, self._confirm_twice, self._confirm_and_cancel]
        self._ways += [self._cancel, self._confirm_what_is_no_picture, self._leave]

    async def work_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            upload = await self._reserve()
            if upload is not None:
                await self._rng.choice(self._ways)(upload)
            if len(self._photos) == LIMIT or (self._photos and self._rng.random() < 0.3):
                await self._delete(self._photos.pop(self._rng.randrange(len(self._photos))))

    # The endings of an upload

    async def _reserve(self) -> Upload | None:
        self._number += 1
        began = self._load.served.clock()
        own = {"imageId": uuid7(began, f"{self.email} {self._number}")} if self._rng.random() < 0.5 else {}
        answer = await create_photo(self._load.served, self.email, **own)
        if answer.errors is not None:
            held = len(self._photos) + sum(expires_at + UNSWEPT > began for expires_at in self._open)
            if answer.codes != ["CONFLICT"] or held < LIMIT:
                self._load.wrong.append(("createPhoto", held, answer.errors))
            self._load.outcomes["refused"] += 1
            await asyncio.sleep(self._rng.uniform(0.1, 0.3))
            return None
        reserved = answer.data["createPhoto"]
        picture = unique_jpeg(f"{self.email} {self._number}")
        return Upload(reserved["imageId"], from_iso(reserved["expiresAt"]), reserved["original"], picture)

    async def _send(self, upload: Upload, content: bytes | None = None) -> None:
        """Send the file to any gateway, and repeat until it is stored or the reservation has expired."""
        while True:
            target = upload.target | {"url": f"{self._rng.choice(self._load.urls)}/media"}
            try:
                status = await post_form(self._load.http, target, content or upload.picture)
            except (aiohttp.ClientError, TimeoutError, OSError):
                status = None
            if status == SENT or (status in OVER and self._is_over(upload)):
                return
            if status is not None and status != BUSY and status < 500:
                self._load.wrong.append(("send", upload.image_id, status))
                return
            self._load.outcomes["sent again"] += 1
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))

    async def _confirm(self, upload: Upload) -> None:
        await self._send(upload)
        self._settle(upload, await self._is_confirmed(upload))

    async def _confirm_twice(self, upload: Upload) -> None:
        """Confirm twice concurrently: both responses have the photo."""
        await self._send(upload)
        confirmed = await asyncio.gather(*[self._is_confirmed(upload) for _ in range(2)])
        self._settle(upload, any(confirmed))

    async def _confirm_and_cancel(self, upload: Upload) -> None:
        """Confirm and cancel concurrently: one of them succeeds."""
        await self._send(upload)
        self._load.ended_meanwhile.add(upload.image_id)
        confirmed, cancelled = await asyncio.gather(self._is_confirmed(upload, ends=True), self._is_cancelled(upload))
        if confirmed and cancelled:
            self._load.wrong.append(("confirmed and cancelled", upload.image_id))
        self._settle(upload, confirmed)

    async def _cancel(self, upload: Upload) -> None:
        if self._rng.random() < 0.7:
            await self._send(upload)
        await self._is_cancelled(upload)
        self._load.outcomes["cancelled"] += 1

    async def _confirm_what_is_no_picture(self, upload: Upload) -> None:
        """Confirm a file that is not a picture: it is refused, and the place is
        kept. Some upload a picture afterwards.
        """
        await self._send(upload, b"no picture")
        answer = await complete_photo(self._load.served, upload.image_id, self.email)
        if _reasons(answer) != {"NOT_A_PICTURE"} and not self._is_gone(upload, answer):
            self._load.wrong.append(("no picture", upload.image_id, answer.errors))
        await (self._confirm if self._rng.random() < 0.5 else self._leave)(upload)

    async def _leave(self, upload: Upload) -> None:
        """Abandon the reservation to the janitor."""
        if self._rng.random() < 0.5:
            await self._send(upload)
        self._open.append(upload.expires_at)
        self._load.outcomes["left"] += 1

    async def _delete(self, image_id: str) -> None:
        answer = await ask_as(self._load.served, DELETE, self.email, id=image_id)
        if answer.errors is not None:
            self._load.wrong.append(("deletePhoto", image_id, answer.errors))
        self._load.truth.acknowledged(("upload", image_id), None)
        self._load.outcomes["deleted"] += 1

    # The responses

    async def _is_confirmed(self, upload: Upload, *, ends: bool = False) -> bool:
        """`ends`: whether the upload may end in another way at the same time."""
        answer = await complete_photo(self._load.served, upload.image_id, self.email)
        if answer.errors is not None and not self._is_gone(upload, answer, ends=ends):
            self._load.wrong.append(("completePhoto", upload.image_id, answer.errors))
        return answer.errors is None

    async def _is_cancelled(self, upload: Upload) -> bool:
        answer = await cancel(self._load.served, upload.image_id, self.email)
        if answer.errors is not None:
            self._load.wrong.append(("cancelPhotoUpload", upload.image_id, answer.errors))
            return False
        return bool(answer.data["cancelPhotoUpload"])

    def _is_gone(self, upload: Upload, answer: Any, *, ends: bool = False) -> bool:
        return _reasons(answer) <= GONE and (ends or self._is_over(upload))

    def _is_over(self, upload: Upload) -> bool:
        now: datetime = self._load.served.clock()
        return now >= upload.expires_at

    def _settle(self, upload: Upload, confirmed: bool) -> None:
        if confirmed:
            self._load.truth.acknowledged(upload.fact, upload.digest)
        elif self._is_over(upload):
            # A lost request may have arrived in time and been executed after the answered one.
            self._load.truth.unsure(upload.fact, upload.digest)
            self._load.ended_meanwhile.add(upload.image_id)
        if confirmed or self._is_over(upload):
            self._photos.append(upload.image_id)
        self._load.outcomes["confirmed" if confirmed else "not confirmed"] += 1


def files_in(folder: Path) -> set[str]:
    """Return the keys of the files in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _reasons(answer: Any) -> set[str]:
    """Return the reasons in the errors, else their codes."""
    return {error["extensions"].get("reason", error["extensions"]["code"]) for error in answer.errors or ()}
