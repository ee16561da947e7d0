"""The object store in an S3 bucket, or in a service with S3's API."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.config
import botocore.exceptions

from datastore.database import StoreMisconfigured, credentials_of
from datastore.dynamodb.boto_signing import sign_at_store_time
from datastore.dynamodb.retry.classify import SIGNATURE_CODES
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import BadUserInput, Timeout, Unavailable
from datastore.objects import (
    NO_CLAIMS,
    STABLE_SECONDS,
    UPLOAD_LIFETIME,
    VALID_SECONDS,
    ObjectStore,
    UploadTarget,
    check_incoming,
    window_start,
)
from datastore.primitives.lru_cache import LruCache

T = TypeVar("T")

THREADS = 8
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 2, 10, 3
MAX_CACHED_URLS = 10_000
# The minimum validity of a cached URL. botocore renews credentials 15 minutes before they expire, so that there are new
# ones by then.
MIN_SECONDS = 600

logger = logging.getLogger(__name__)


class S3Objects(ObjectStore):
    """The object store in a bucket. `url` is that of a service other than AWS's.

    Requests run in threads of their own. Signing needs no request. Signatures are made at S3's time; before the first
    response of S3 this is the time of `tables`, the tables' store.
    """

    exposes_keys = True

    def __init__(self, bucket: str, *, region: str | None = None, url: str | None = None) -> None:
        self._bucket = bucket
        self._region = region
        self._url = url
        self._client: Any = None
        self._clock = StoreClock()
        self._credentials: CredentialSource | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._urls = LruCache[str, str](MAX_CACHED_URLS)
        self._kept_from = self._kept_until = 0.0

    def open(self, tables: StoreClock | None = None) -> None:
        self._clock = StoreClock(tables)
        self._credentials = CredentialSource(self._connect(), self._connect)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    def _connect(self) -> Any:
        """Create a client with the credentials that are found now. Return the credentials."""
        session = boto3.Session(region_name=self._region)
        credentials = credentials_of(session)
        self._client = _client(session, self._url)
        sign_at_store_time(self._client, self._clock)
        return credentials

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def origin(self) -> str | None:
        address = urlsplit(self._presigned_url("-", VALID_SECONDS))
        return f"{address.scheme}://{address.netloc}"

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
        """Return a form with a signed policy.

        https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html
        """
        check_incoming(key)
        lifetime = min(lifetime, timedelta(seconds=await self._validity_seconds(now)))
        with _translate_errors():
            signed = self._client.generate_presigned_post(
                self._bucket,
                key,
                Fields={"Content-Type": content_type},
                Conditions=[{"Content-Type": content_type}, ["content-length-range", 1, max_bytes]],
                # botocore adds this to this machine's time, and S3 compares the sum with its own time.
                ExpiresIn=int(lifetime.total_seconds() + self._clock.skew),
            )
        return UploadTarget(signed["url"], signed["fields"], content_type, max_bytes, now + lifetime)

    async def url(self, key: str, *, now: datetime) -> str | None:
        if not self._kept_from <= now.timestamp() < self._kept_until:
            self._urls.clear()
        found = self._urls.get(key)
        if found is None:
            seconds = await self._validity_seconds(now)
            found = self._presigned_url(key, seconds)
            if not self._urls:
                self._kept_from = window_start(now)
                self._kept_until = min(self._kept_from + STABLE_SECONDS, now.timestamp() + seconds - MIN_SECONDS)
            self._urls.put(key, found)
        return found

    async def _validity_seconds(self, now: datetime) -> int:
        """Return the seconds for which a signature is valid: at most an hour, and no longer than the credentials.

        Temporary credentials are refreshed before if needed. Raises `Unavailable` if they have expired.
        """
        assert self._credentials is not None, "The store is used before it is open."
        await self._credentials.current()
        expires_at = self._credentials.expires_at
        if expires_at is None:
            return VALID_SECONDS
        seconds = int((expires_at - now).total_seconds() - self._clock.skew)
        if seconds <= 0:
            logger.error("The credentials for S3 expired at %s, and no new ones are available.", expires_at)
            raise Unavailable("The object store cannot be used at the moment; try again.")
        return min(VALID_SECONDS, seconds)

    def _presigned_url(self, key: str, seconds: int) -> str:
        where = {"Bucket": self._bucket, "Key": key}
        with _translate_errors():
            url: str = self._client.generate_presigned_url("get_object", Params=where, ExpiresIn=seconds)
        return url

    async def _in_thread(self, work: Callable[[], T]) -> T:
        assert self._credentials is not None, "The store is used before it is open."
        await self._credentials.current()
        run = partial(asyncio.get_running_loop().run_in_executor, self._threads, work)
        with _translate_errors():
            try:
                return await run()
            except botocore.exceptions.ClientError as problem:
                if problem.response["Error"]["Code"] not in SIGNATURE_CODES or not await self._credentials.renew():
                    raise
            return await run()

    def _write(self, key: str, content: bytes, content_type: str) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=content, ContentType=content_type)

    def _read(self, key: str, max_bytes: int) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
        except botocore.exceptions.ClientError as problem:
            if problem.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        with answer["Body"] as body:
            if answer["ContentLength"] > max_bytes:
                raise BadUserInput(f"The file has more than {max_bytes:,} bytes.")
            content: bytes = body.read()
        return content

    def _delete(self, keys: Collection[str]) -> None:
        # One by one: services other than AWS's differ in the signatures of multi-object deletes.
        for key in keys:
            self._client.delete_object(Bucket=self._bucket, Key=key)


def _client(session: Any, url: str | None) -> Any:
    """Return a client. In AWS its hosts contain the bucket's region, so that browsers need no redirect."""
    config = botocore.config.Config(
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if url is None else "path", "us_east_1_regional_endpoint": "regional"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=THREADS,
        # Not every service supports the newer checksums of AWS.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    region = session.region_name or (None if url is None else "us-east-1")
    if region is None:
        raise StoreMisconfigured("No AWS region: set --region or AWS_REGION.")
    return session.client("s3", endpoint_url=url, region_name=region, config=config)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise botocore's errors as the errors that the tables raise. The log has the details, without keys of files."""
    try:
        yield
    except (botocore.exceptions.ConnectTimeoutError, botocore.exceptions.ReadTimeoutError) as problem:
        raise Timeout("The object store did not respond in time.") from problem
    except botocore.exceptions.ClientError as problem:
        logger.warning("S3 refuses %s: %s", problem.operation_name, problem.response.get("Error", {}).get("Code"))
        raise Unavailable("The object store reports an error at the moment; try again.") from problem
    except botocore.exceptions.BotoCoreError as problem:
        logger.warning("S3 cannot be used: %s", type(problem).__name__)
        raise Unavailable("The object store cannot be reached at the moment; try again.") from problem
