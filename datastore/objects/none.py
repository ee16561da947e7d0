"""The object store of tables in AWS without a bucket: it keeps no files."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import Unavailable
from datastore.objects import NO_CLAIMS, UPLOAD_LIFETIME, UploadTarget


class NoObjects:
    """An object store without files. Photos have no URLs, and uploads are refused."""

    exposes_keys = False

    def open(self, tables: StoreClock | None = None) -> None:
        pass

    def close(self) -> None:
        pass

    def origin(self) -> str | None:
        return None

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
        raise _no_bucket()

    async def url(self, key: str, *, now: datetime) -> str | None:
        return None

    async def read(self, key: str, *, max_bytes: int) -> bytes | None:
        raise _no_bucket()

    async def write(self, key: str, content: bytes, *, content_type: str) -> None:
        raise _no_bucket()

    async def delete(self, keys: Collection[str]) -> None:
        # The outbox keeps its entries for a gateway with the bucket.
        raise _no_bucket()

    async def sweep(self) -> int:
        return 0


def _no_bucket() -> Unavailable:
    problem = Unavailable("This gateway stores no files: no bucket for photos is configured.")
    problem.extensions["retryable"] = False
    return problem
