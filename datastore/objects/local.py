"""Files in a folder, with signed URLs that the gateway serves itself: the object store of stores on this machine."""

import asyncio
import hmac
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, BinaryIO
from uuid import uuid4

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore import base64url
from datastore.errors import BadUserInput, Unavailable
from datastore.moments import from_seconds, to_seconds
from datastore.objects import GOOD_SECONDS, INCOMING, STALE, UPLOAD_LIFETIME, UploadTarget, check_incoming, window


class Receiving:
    """A file that is on its way. It takes its place only when it is `kept`, and is gone otherwise."""

    def __init__(self, file: BinaryIO, partial: Path, place: Path) -> None:
        self._file = file
        self._partial = partial
        self._place = place

    def write(self, content: bytes) -> None:
        """Raises `Unavailable` when the disk is full or broken."""
        with _told():
            self._file.write(content)

    def keep(self) -> None:
        """Raises `Unavailable`. What is kept outlives a loss of power, as what the tables say of it does."""
        with _told():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self._place)
            _settle(self._place.parent)


class LocalObjects:
    """`base_url` is where the gateway is reached. Keys are paths below `folder`; tokens hold them encrypted.

    Without a folder there is one for as long as the gateway runs. Tokens made with one of the `others`, secrets beside
    ours, count too.
    """

    tells_keys = False

    def __init__(
        self, folder: Path | None, secret: bytes, base_url: Callable[[], str], others: Iterable[bytes] = ()
    ) -> None:
        self._given = folder
        self._made: Path | None = None
        self._closed = False
        self._base_url = base_url
        self._cipher = _cipher(secret)
        self._accepted = (self._cipher, *map(_cipher, others))

    @property
    def folder(self) -> Path:
        if self._given is not None:
            return self._given
        if self._closed:
            raise Unavailable("The gateway stops.")  # a thread that still writes makes no folder anew
        if self._made is None:
            self._made = Path(mkdtemp(prefix="gateway-objects-"))
        return self._made

    def open(self) -> None:
        """No folder is made before it is needed."""
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None

    def origin(self) -> str | None:
        return None

    async def upload(
        self, key: str, *, content_type: str, most_bytes: int, now: datetime, lifetime: timedelta = UPLOAD_LIFETIME
    ) -> UploadTarget:
        check_incoming(key)
        expires_at = now + lifetime
        claims = {"key": key, "type": content_type, "most": most_bytes, "until": to_seconds(expires_at)}
        url = f"{self._base_url()}/media"
        return UploadTarget(url, {"token": self.sealed(claims, b"upload")}, content_type, most_bytes, expires_at)

    async def url(self, key: str, *, now: datetime) -> str | None:
        claims = {"key": key, "until": window(now) + GOOD_SECONDS}
        return f"{self._base_url()}/media/{self.sealed(claims, b'download')}"

    async def read(self, key: str, *, most_bytes: int) -> bytes | None:
        return await asyncio.to_thread(self._read, key, most_bytes)

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        await asyncio.to_thread(self._write, key, content)

    async def delete(self, keys: Collection[str]) -> None:
        await asyncio.to_thread(self._delete, keys)

    async def sweep(self) -> int:
        return await asyncio.to_thread(self._sweep)

    def sealed(self, claims: dict[str, Any], purpose: bytes) -> str:
        """A token that says so, for that purpose."""
        return base64url.encode(self._cipher.encrypt(orjson.dumps(claims), [purpose]))

    def opened(self, token: str, purpose: bytes, now: datetime) -> dict[str, Any] | None:
        """What a token says; None for one that was not made here for this purpose, or has expired."""
        for cipher in self._accepted:
            with suppress(InvalidTag, ValueError):
                claims: dict[str, Any] = orjson.loads(cipher.decrypt(base64url.decode(token), [purpose]))
                return claims if now < from_seconds(claims["until"]) else None
        return None

    def path(self, key: str) -> Path:
        """Where a file is. Keys are ours or the table's: one that leads out of the folder is refused."""
        folder = self.folder.resolve()
        path = (folder / key).resolve() if "\0" not in key else folder
        if path == folder or not path.is_relative_to(folder):
            raise BadUserInput("There is no such file.")
        return path

    @contextmanager
    def receiving(self, key: str) -> Iterator[Receiving]:
        """A file to write to piece by piece. Nothing of it is left unless it is kept.

        Raises `Unavailable` when the folder cannot be written to.
        """
        path, unique = self.path(key), uuid4().hex
        partial = path.with_name(f"{path.name}.{unique}.part")
        if not key.startswith(INCOMING):
            # A process that is killed leaves it where it is swept.
            partial = self.path(f"{INCOMING}{unique}/{path.name}.part")
        with _told():
            for folder in {path.parent, partial.parent}:
                folder.mkdir(parents=True, exist_ok=True)
            file = partial.open("xb")
        try:
            with file:
                yield Receiving(file, partial, path)
        finally:
            partial.unlink(missing_ok=True)
            if partial.parent != path.parent:
                with suppress(OSError):
                    partial.parent.rmdir()

    def _read(self, key: str, most_bytes: int) -> bytes | None:
        path = self.path(key)
        with _told():
            try:
                with path.open("rb") as file:
                    if os.fstat(file.fileno()).st_size > most_bytes:
                        raise BadUserInput(f"The file has more than {most_bytes:,} bytes.")
                    return file.read()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def _write(self, key: str, content: bytes) -> None:
        with self.receiving(key) as receiving:
            receiving.write(content)
            receiving.keep()

    def _delete(self, keys: Collection[str]) -> None:
        for key in keys:
            path = self.path(key)
            with _told():
                path.unlink(missing_ok=True)
            if key.startswith(INCOMING):
                # What a process that was killed was receiving goes too; the folder stays while it holds another file.
                with suppress(OSError):
                    for part in path.parent.glob(f"{path.name}.*.part"):
                        part.unlink()
                    path.parent.rmdir()

    def _sweep(self) -> int:
        if self._given is None and self._made is None:
            return 0
        # Files are as old as the clock of this machine says that wrote them.
        stale = time.time() - STALE.total_seconds()
        with _told():
            return sum(_swept(folder, stale) for folder in self.folder.glob(f"{INCOMING}*") if folder.is_dir())


def _swept(folder: Path, stale: float) -> int:
    """How many files were removed that are older; the folder of an upload goes with the last of them."""
    swept = 0
    with suppress(FileNotFoundError):  # others remove what they are done with at the same time
        was_touched = folder.stat().st_mtime >= stale
        for path in [path for path in folder.iterdir() if path.stat().st_mtime < stale]:
            path.unlink()
            swept += 1
        if not was_touched:
            with suppress(OSError):
                folder.rmdir()
    return swept


def _settle(folder: Path) -> None:
    """Have the names of a folder's files written to the disk, where the system lets one."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextmanager
def _told() -> Iterator[None]:
    """A full or broken disk is told as an outage of S3 would be."""
    try:
        yield
    except OSError as problem:
        raise Unavailable("Files cannot be kept or read at the moment; try again.") from problem


def _cipher(secret: bytes) -> AESSIV:
    return AESSIV(hmac.digest(secret, b"local objects", "sha512"))
