"""The object store of files: an S3 bucket, or a folder if the tables are on this machine."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import Unavailable
from datastore.model.timestamps import to_seconds

T = TypeVar("T")

# The form field of an upload that contains the file.
FILE_FIELD: Final = "file"
# The prefix of uploaded files that are not checked yet. Clients cannot write under other keys.
INCOMING: Final = "incoming/"
UPLOAD_LIFETIME: Final = timedelta(minutes=15)
# An upload that began before this time has arrived, or its gateway was killed.
STALE_AGE: Final = UPLOAD_LIFETIME + timedelta(minutes=5)
NO_CLAIMS: Final[Mapping[str, str]] = {}
# A URL stays the same for a quarter of an hour, so that browsers cache the file, and is valid for at least three
# quarters.
STABLE_SECONDS: Final = 900
VALID_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The target of one upload: a form with `fields`, and with the file as the last field, is sent to `url` by POST.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-UsingHTTPPOST.html
    """

    url: str
    fields: Mapping[str, str]
    content_type: str
    max_bytes: int
    expires_at: datetime


class ObjectStore(ABC):
    """Files by their keys. Signatures expire relative to the caller's `now`.

    Methods raise `Unavailable` or `Timeout` if the store fails, as those of the tables do. A subclass reads, writes and
    deletes files in blocking methods.
    """

    #: Whether a URL contains the key of its file. A key with a user's email must then not reach other users.
    exposes_keys: ClassVar[bool] = False

    def open(self, tables: StoreClock | None = None) -> None:  # noqa: B027 - optional
        """Prepare the store. `tables` is the clock of the tables' store. Raises `StoreMisconfigured`."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of this process. Stored files stay, except those of a store in memory."""

    def origin(self) -> str | None:
        """Return the origin of the files' URLs as `https://host[:port]`, or None if the gateway serves the files."""
        return None

    @abstractmethod
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
        """Return the target for uploading a file of at most `max_bytes`, valid for at most 15 minutes.

        The token of the upload contains the `claims`, for the gateway that receives the file. A bucket ignores them.
        """

    @abstractmethod
    async def url(self, key: str, *, now: datetime) -> str | None:
        """Return a URL of the file, valid for at least 45 minutes, or None if the store serves no files.

        It stays the same for up to 15 minutes, so that browsers cache the file. A bucket's URL is valid no longer than
        the credentials that signed it.
        """

    async def read(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the file, or None. Raises `BadUserInput` for a larger file, without reading it."""
        return await self._in_thread(partial(self._read, key, max_bytes))

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        """Store a file."""
        await self._in_thread(partial(self._write, key, content, content_type))

    async def delete(self, keys: Collection[str]) -> None:
        """Delete files. Missing ones are ignored."""
        await self._in_thread(partial(self._delete, keys))

    async def sweep(self) -> int:
        """Delete incoming files that no upload needs. Return their number.

        These are files of killed gateways after 20 minutes, and others when their reservation has expired. A bucket
        needs a lifecycle rule instead.
        """
        return 0

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    @abstractmethod
    def _read(self, key: str, max_bytes: int) -> bytes | None: ...

    @abstractmethod
    def _write(self, key: str, content: bytes, content_type: str) -> None: ...

    @abstractmethod
    def _delete(self, keys: Collection[str]) -> None: ...


class NoObjects(ObjectStore):
    """The object store of tables in AWS without a bucket. Photos have no URLs, and uploads are refused."""

    async def upload(self, key: str, **_: Any) -> UploadTarget:
        self._refuse()

    async def url(self, key: str, *, now: datetime) -> str | None:
        return None

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        problem = Unavailable("This gateway stores no files: no bucket for photos is configured.")
        problem.extensions["retryable"] = False
        raise problem

    # The file deletion outbox keeps its entries for a gateway with the bucket.
    _read = _write = _delete = _refuse


def check_incoming(key: str) -> None:
    """Raise `ValueError` for a key outside of `INCOMING`, where a client could overwrite a checked file."""
    if not key.startswith(INCOMING):
        raise ValueError(f"Uploads to {key} are not allowed.")


def window_start(now: datetime) -> int:
    """Return the beginning of the quarter of an hour in which a URL stays the same, in epoch seconds."""
    return (to_seconds(now) // STABLE_SECONDS) * STABLE_SECONDS
