"""The object store in a folder of this machine. The gateway serves the files under signed URLs."""

import asyncio
import hmac
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import BadUserInput, Unavailable
from datastore.model import base64url
from datastore.model.timestamps import from_seconds, to_seconds
from datastore.objects import (
    INCOMING,
    NO_CLAIMS,
    STALE_AGE,
    UPLOAD_LIFETIME,
    VALID_SECONDS,
    ObjectStore,
    UploadTarget,
    check_incoming,
    window_start,
)
from datastore.objects.ledger import IncomingLimits, Ledger
from datastore.objects.partial_files import IncomingFile, PartialFile, UploadGone, translate_disk_errors
from datastore.primitives.tasks import run_to_end
from datastore.private_files import make_private_folder, open_private_file, open_private_folder

LEDGER = "uploads.sqlite"


class LocalObjects(ObjectStore):
    """An object store whose keys are paths below `folder`. Tokens contain them encrypted.

    `base_url` returns the address of the gateway. Without a folder there is a temporary one until `close`. Tokens that
    were sealed with one of the `other_secrets` are accepted, too.
    """

    def __init__(
        self, folder: Path | None, secret: bytes, base_url: Callable[[], str], other_secrets: Iterable[bytes] = ()
    ) -> None:
        self._configured = folder
        self._temporary: Path | None = None
        self._closed = False
        self._base_url = base_url
        self._cipher = _cipher(secret)
        self._user_key = hmac.digest(secret, b"users of the ledger", "sha256")
        self._accepted = (self._cipher, *map(_cipher, other_secrets))

    @property
    def folder(self) -> Path:
        if self._configured is not None:
            return self._configured
        if self._closed:
            raise Unavailable("The gateway is stopping.")  # a thread that still writes must not create a folder again
        if self._temporary is None:
            self._temporary = Path(mkdtemp(prefix="gateway-objects-"))
            (self._temporary / "objects").mkdir()
        return self._temporary / "objects"

    @property
    def ledger(self) -> Ledger:
        """The ledger of incoming files, beside the folder. All processes with this folder share it."""
        return Ledger(self.folder.with_name(LEDGER))

    def open(self, tables: StoreClock | None = None) -> None:
        """Close an existing data directory to other users. Raises `FolderUnusable`.

        A folder is created when the first file is written.
        """
        self._closed = False
        if self._configured is not None and self._configured.parent.is_dir():
            open_private_folder(self._configured.parent)

    def close(self) -> None:
        self._closed = True
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    async def upload(
        self,
        key: str,
        *,
        content_type: str,
        max_bytes: int,
        now: datetime,
        lifetime: timedelta = UPLOAD_LIFETIME,
        claims: Mapping[str, str] = NO_CLAIMS,
    ) -> UploadTarget:
        check_incoming(key)
        expires_at = now + lifetime
        own = {"key": key, "type": content_type, "most": max_bytes, "until": to_seconds(expires_at)}
        token = self.seal_token({**claims, **own}, b"upload")
        return UploadTarget(f"{self._base_url()}/media", {"token": token}, content_type, max_bytes, expires_at)

    async def url(self, key: str, *, now: datetime) -> str | None:
        claims = {"key": key, "until": window_start(now) + VALID_SECONDS}
        return f"{self._base_url()}/media/{self.seal_token(claims, b'download')}"

    async def sweep(self) -> int:
        return await asyncio.to_thread(self._sweep)

    def seal_token(self, claims: dict[str, Any], purpose: bytes) -> str:
        """Return an encrypted token with the claims, for one purpose."""
        return base64url.encode(self._cipher.encrypt(orjson.dumps(claims), [purpose]))

    def open_token(self, token: str, purpose: bytes, now: datetime) -> dict[str, Any] | None:
        """Return the claims of a token, or None if it is expired or was not sealed for this purpose."""
        for cipher in self._accepted:
            with suppress(InvalidTag, ValueError):
                claims: dict[str, Any] = orjson.loads(cipher.decrypt(base64url.decode(token), [purpose]))
                return claims if now < from_seconds(claims["until"]) else None
        return None

    def path(self, key: str) -> Path:
        """Return the path of a file. Raises `BadUserInput` for a key that leads out of the folder."""
        folder = self.folder.resolve()
        path = (folder / key).resolve() if "\0" not in key else folder
        if path == folder or not path.is_relative_to(folder):
            raise BadUserInput("There is no such file.")
        return path

    @asynccontextmanager
    async def incoming_file(
        self, key: str, *, owner: str, max_bytes: int, seconds: float, limits: IncomingLimits
    ) -> AsyncIterator["IncomingFile"]:
        """Open an incoming file for writing. Its `max_bytes` count for `owner`, which is any text.

        After `keep` the file expires in `seconds`, and some minutes of grace.

        Raises:
            Throttled: The limit of the owner would be exceeded.
            Unavailable: The limit of all owners would be exceeded, or the folder cannot be written.
        """
        ledger, unique = self.ledger, uuid4().hex
        name = f"{key}.{unique}.part"
        expires_at = time.time() + (UPLOAD_LIFETIME + STALE_AGE).total_seconds()
        # A hash, because no file outside of the tables may contain an email.
        user = hmac.digest(self._user_key, owner.encode(), "sha256").hex()
        entering = asyncio.ensure_future(asyncio.to_thread(ledger.add, name, user, max_bytes, expires_at, limits))
        incoming = None
        try:
            await asyncio.shield(entering)
            with self.partial_file(key, unique) as file:
                incoming = IncomingFile(file, partial(ledger.rename, name, key), seconds)
                yield incoming
        finally:
            if incoming is None or not incoming.is_kept:
                await run_to_end(_remove_entry(ledger, name, entering))

    @contextmanager
    def partial_file(self, key: str, unique: str | None = None) -> Iterator[PartialFile]:
        """Open a file for writing in pieces. It is removed at the end of the context unless `keep` was called.

        `unique` is a unique text. Raises `Unavailable` if the folder cannot be written.
        """
        path, unique = self.path(key), unique or uuid4().hex
        part = path.with_name(f"{path.name}.{unique}.part")
        if not key.startswith(INCOMING):
            # In `incoming/`, where it is swept if the process is killed.
            part = self.path(f"{INCOMING}{unique}/{path.name}.part")
        with translate_disk_errors():
            for folder in {path.parent, part.parent}:
                make_private_folder(folder)
            file = open(part, "xb", opener=open_private_file)  # noqa: SIM115 - closed below
        try:
            yield PartialFile(file, part, path)
        finally:
            # A file that was not kept is discarded: an error while flushing it does not matter.
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                part.unlink(missing_ok=True)
            if part.parent != path.parent:
                with suppress(OSError):
                    part.parent.rmdir()

    def _read(self, key: str, max_bytes: int) -> bytes | None:
        path = self.path(key)
        with translate_disk_errors():
            try:
                with path.open("rb") as file:
                    if os.fstat(file.fileno()).st_size > max_bytes:
                        raise BadUserInput(f"The file has more than {max_bytes:,} bytes.")
                    return file.read()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def _write(self, key: str, content: bytes, content_type: str) -> None:
        with self.partial_file(key) as file:
            file.write(content)
            try:
                file.keep()
            except UploadGone as problem:
                raise Unavailable("Files cannot be stored at the moment; try again.") from problem

    def _delete(self, keys: Collection[str]) -> None:
        for key in keys:
            path = self.path(key)
            if key.startswith(INCOMING):
                # Before the file itself, so that no upload in progress can replace it.
                with suppress(OSError):
                    for part in path.parent.glob(f"{path.name}.*.part"):
                        part.unlink()
            with translate_disk_errors():
                path.unlink(missing_ok=True)
            if key.startswith(INCOMING):
                # The folder stays while it holds another file.
                with suppress(OSError):
                    path.parent.rmdir()
        # The entries of removed parts stay: a part occupies the disk while an upload has it open.
        self.ledger.remove(key for key in keys if key.startswith(INCOMING))

    def _sweep(self) -> int:
        if self._configured is None and self._temporary is None:
            return 0
        # By this machine's clock, which also dates the files.
        now, ledger = time.time(), self.ledger
        expirations = ledger.expirations()
        with translate_disk_errors():
            swept = sum(
                _sweep_folder(folder, now, expirations)
                for folder in self.folder.glob(f"{INCOMING}*")
                if folder.is_dir()
            )
        ledger.remove(name for name, expires_at in expirations.items() if expires_at < now)
        return swept


async def _remove_entry(ledger: Ledger, name: str, entering: asyncio.Future[None]) -> None:
    await asyncio.gather(entering, return_exceptions=True)
    await asyncio.to_thread(ledger.remove, [name])


def _sweep_folder(folder: Path, now: float, expirations: Mapping[str, float]) -> int:
    """Remove expired files, and a folder with its last file. Return the number of removed files.

    `expirations` has the expiry of each file in the ledger. Other files expire when they are stale.
    """
    swept, stale = 0, STALE_AGE.total_seconds()
    with suppress(FileNotFoundError):  # uploads remove their files concurrently
        was_touched = folder.stat().st_mtime >= now - stale
        for path in list(folder.iterdir()):
            expires_at = expirations.get(f"{INCOMING}{folder.name}/{path.name}", path.stat().st_mtime + stale)
            if expires_at < now:
                path.unlink()
                swept += 1
        if not was_touched:
            with suppress(OSError):
                folder.rmdir()
    return swept


def _cipher(secret: bytes) -> AESSIV:
    return AESSIV(hmac.digest(secret, b"local objects", "sha512"))
