"""Files in a folder, with signed URLs that the gateway serves itself: the object store of the embedded engine."""

import asyncio
import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore.errors import BadUserInput
from datastore.moments import from_seconds, to_seconds
from datastore.objects import UploadTarget

UPLOAD_LIFETIME = timedelta(minutes=15)
# A URL is the same for a quarter of an hour, and good for at least three quarters.
SAME_SECONDS, GOOD_SECONDS = 900, 3600


class LocalObjects:
    """`base_url` is where the gateway is reached. Keys are paths below `folder`; tokens hold them encrypted."""

    tells_keys = False

    def __init__(self, folder: Path, secret: bytes, base_url: Callable[[], str]) -> None:
        self.folder = folder
        self._base_url = base_url
        self._cipher = AESSIV(hmac.digest(secret, b"local objects", "sha512"))

    async def upload(self, key: str, *, content_type: str, most_bytes: int, now: datetime) -> UploadTarget:
        expires_at = now + UPLOAD_LIFETIME
        claims = {"key": key, "type": content_type, "most": most_bytes, "until": to_seconds(expires_at)}
        url = f"{self._base_url()}/media"
        return UploadTarget(url, {"token": self.sealed(claims, b"upload")}, content_type, most_bytes, expires_at)

    async def url(self, key: str, *, now: datetime) -> str:
        until = (to_seconds(now) // SAME_SECONDS) * SAME_SECONDS + GOOD_SECONDS
        return f"{self._base_url()}/media/{self.sealed({'key': key, 'until': until}, b'download')}"

    async def read(self, key: str, *, most_bytes: int) -> bytes | None:
        return await asyncio.to_thread(self._read, key, most_bytes)

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        await asyncio.to_thread(self._write, key, content)

    async def delete(self, keys: Collection[str]) -> None:
        await asyncio.to_thread(self._delete, keys)

    def sealed(self, claims: dict[str, Any], purpose: bytes) -> str:
        """A token that says so, for that purpose."""
        return urlsafe_b64encode(self._cipher.encrypt(orjson.dumps(claims), [purpose])).rstrip(b"=").decode()

    def opened(self, token: str, purpose: bytes, now: datetime) -> dict[str, Any] | None:
        """What a token says; None for one that was not made here for this purpose, or has expired."""
        try:
            raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
            claims: dict[str, Any] = orjson.loads(self._cipher.decrypt(raw, [purpose]))
        except (InvalidTag, ValueError):
            return None
        return claims if now < from_seconds(claims["until"]) else None

    def path(self, key: str) -> Path:
        """Where a file is. Keys are ours or the table's: one that leads out of the folder is refused."""
        path = (self.folder / key).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise BadUserInput("There is no such file.")
        return path

    def _read(self, key: str, most_bytes: int) -> bytes | None:
        try:
            with self.path(key).open("rb") as file:
                if os.fstat(file.fileno()).st_size > most_bytes:
                    raise BadUserInput(f"The file has more than {most_bytes} bytes.")
                return file.read()
        except (FileNotFoundError, IsADirectoryError):
            return None

    def _write(self, key: str, content: bytes) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{uuid4().hex}.part")
        partial.write_bytes(content)
        partial.replace(path)

    def _delete(self, keys: Collection[str]) -> None:
        for key in keys:
            self.path(key).unlink(missing_ok=True)
