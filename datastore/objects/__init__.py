"""The object store of files: an S3 bucket, or a folder if the tables are on this machine."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from datastore.dynamodb.store_clock import StoreClock
from datastore.model.timestamps import to_seconds

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


class ObjectStore(Protocol):
    """Files by their keys. Signatures expire relative to the caller's `now`.

    Methods raise `Unavailable` or `Timeout` if the store fails, as those of the tables do.
    """

    #: Whether a URL contains the key of its file. A key with a user's email must then not reach other users.
    exposes_keys: bool

    def open(self, tables: StoreClock | None = None) -> None:
        """Prepare the store. `tables` is the clock of the tables' store. Raises `StoreMisconfigured`."""

    def close(self) -> None:
        """Release the resources of this process. Stored files stay, except those of a store in memory."""

    def origin(self) -> str | None:
        """Return the origin of the files' URLs as `https://host[:port]`, or None if the gateway serves the files."""

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

    async def url(self, key: str, *, now: datetime) -> str | None:
        """Return a URL of the file, valid for at least 45 minutes, or None if the store serves no files.

        It stays the same for up to 15 minutes, so that browsers cache the file. A bucket's URL is valid no longer than
        the credentials that signed it.
        """

    async def read(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the file, or None. Raises `BadUserInput` for a larger file, without reading it."""

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        """Store a file."""

    async def delete(self, keys: Collection[str]) -> None:
        """Delete files. Missing ones are ignored."""

    async def sweep(self) -> int:
        """Delete incoming files that no upload needs. Return their number.

        These are files of killed gateways after 20 minutes, and others when their reservation has expired. A bucket
        needs a lifecycle rule instead.
        """


def check_incoming(key: str) -> None:
    """Raise `ValueError` for a key outside of `INCOMING`, where a client could overwrite a checked file."""
    if not key.startswith(INCOMING):
        raise ValueError(f"Uploads to {key} are not allowed.")


def window_start(now: datetime) -> int:
    """Return the beginning of the quarter of an hour in which a URL stays the same, in epoch seconds."""
    return (to_seconds(now) // STABLE_SECONDS) * STABLE_SECONDS
