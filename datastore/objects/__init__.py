"""Where files are kept: in S3, or, with a store on this machine, in a folder."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from datastore.dynamodb.store_clock import StoreClock
from datastore.model.timestamps import to_seconds

# The field of an upload's form that the file is.
FILE_FIELD: Final = "file"
# What is uploaded waits here until it is checked. Clients can write nowhere else.
INCOMING: Final = "incoming/"
UPLOAD_LIFETIME: Final = timedelta(minutes=15)
# A file whose upload began so long ago is not on its way any more: it has come, or its gateway was killed.
STALE_AGE: Final = UPLOAD_LIFETIME + timedelta(minutes=5)
NO_CLAIMS: Final[Mapping[str, str]] = {}
# A URL is the same for a quarter of an hour, so that browsers keep what it shows, and good for at least three quarters.
STABLE_SECONDS: Final = 900
VALID_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """How to upload one file: POST a form with these fields, and then the file as `file`, to the URL.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-UsingHTTPPOST.html
    """

    url: str
    fields: Mapping[str, str]
    content_type: str
    max_bytes: int
    expires_at: datetime


class ObjectStore(Protocol):
    """Files by their keys. `now` decides until when what is signed is good.

    `tells_keys`: whether a URL shows the key of its file, so that a key with somebody's email is not for everybody.
    What does not work raises `Unavailable` or `Timeout`, as the tables do.
    """

    exposes_keys: bool

    def open(self, tables: StoreClock | None = None) -> None:
        """Get ready. `tables` is the clock of the tables' store. Raises `StoreMisconfigured`."""

    def close(self) -> None:
        """End what works for it; what is kept stays, unless it is in memory with everything else."""

    def origin(self) -> str | None:
        """Where the files are shown, as `https://host[:port]`; None where the gateway itself shows them."""

    async def upload(
        self,
        key: str,
        *,
        content_type: str,
        most_bytes: int,
        now: datetime,
        lifetime: timedelta = UPLOAD_LIFETIME,
        claims: Mapping[str, str] = NO_CLAIMS,
    ) -> UploadTarget:
        """Return the target for uploading a file of at most `most_bytes`, valid for at most 15 minutes.

        `claims` are what the gateway is to know of the upload when it arrives. A bucket's form has none of them.
        """

    async def url(self, key: str, *, now: datetime) -> str | None:
        """Where the file is shown, for at least 45 minutes; the same for a while, so that browsers cache it. None where
        files are not shown. In a bucket it is shown no longer than the credentials last that signed for it.
        """

    async def read(self, key: str, *, most_bytes: int) -> bytes | None:
        """The file, or None. Raises `BadUserInput` for one with more bytes, unread."""

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        """Keep a file."""

    async def delete(self, keys: Collection[str]) -> None:
        """Remove files; those that are not there are none that fail."""

    async def sweep(self) -> int:
        """Remove incoming files that no upload is waiting for: of killed gateways after 20 minutes, others when their
        reservation is over. Return how many files. In a bucket that is the work of a rule for its lifecycle.
        """


def check_incoming(key: str) -> None:
    """Nothing is signed that would let a client write over what was checked."""
    if not key.startswith(INCOMING):
        raise ValueError(f"Nothing is uploaded to {key}.")


def window_start(now: datetime) -> int:
    """The beginning of the quarter of an hour in which a URL stays the same, in epoch seconds."""
    return (to_seconds(now) // STABLE_SECONDS) * STABLE_SECONDS
