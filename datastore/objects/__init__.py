"""Where files are kept: in S3, or, with the embedded store, in a folder."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

# The field of an upload's form that the file is.
FILE_FIELD: Final = "file"


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
    """

    tells_keys: bool

    async def upload(self, key: str, *, content_type: str, most_bytes: int, now: datetime) -> UploadTarget:
        """Where to upload a file of that type, with at most so many bytes, for the next 15 minutes."""

    async def url(self, key: str, *, now: datetime) -> str | None:
        """Where the file is shown, for at least 45 minutes; the same for a while, so that browsers cache it. None where
        files are not shown.
        """

    async def read(self, key: str, *, most_bytes: int) -> bytes | None:
        """The file, or None. Raises `BadUserInput` for one with more bytes, unread."""

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        """Keep a file."""

    async def delete(self, keys: Collection[str]) -> None:
        """Remove files; those that are not there are none that fail."""
