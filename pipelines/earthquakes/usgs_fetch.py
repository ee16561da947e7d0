"""The download of USGS feeds from files, from URLs, and by the names of USGS's summary feeds."""

import asyncio
import hashlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.earthquakes.usgs_feed import FeedCode, FeedError

SUMMARY = "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/"
SIZES = ("significant", "4.5", "2.5", "1.0", "all")
AGES = ("hour", "day", "week", "month")

RETRY = Backoff(initial=0.5, maximum=10.0, attempts=4)
# The total includes the time that the caller takes between two chunks, so it is generous.
LIMITS = aiohttp.ClientTimeout(total=300, connect=10, sock_read=30)
MAX_RETRY_AFTER_SECONDS = 60.0
MAX_FEED_BYTES = 512 << 20
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK = 64 * 1024
USER_AGENT = "dynamodb-graphql-gateway (USGS feed reader)"


@dataclass(slots=True)
class FeedDownload:
    """A feed that is read once.

    Bytes are counted after the session has decoded any Content-Encoding. A .gz file stays compressed.
    """

    parts: AsyncIterator[bytes]
    #: The expected size in bytes, if it is known.
    total: int | None = None
    #: The number of repeated requests.
    retries: int = 0
    not_modified: bool = False
    etag: str | None = None
    last_modified: str | None = None
    #: The bytes read so far.
    size: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        """The hexadecimal hash of the bytes read so far."""
        return str(self._hash.hexdigest())

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises `FeedError` TOO_LARGE, TIMEOUT, or TRUNCATED when the connection is lost."""
        _refuse_large(self.total)
        async for part in self.parts:
            self.size += len(part)
            _refuse_large(self.size)
            self._hash.update(part)
            yield part


def feed_url(name: str) -> str:
    """Return the URL of a summary feed such as `all_day`. Raises `FeedError` BAD_SOURCE for an unknown name."""
    size, _, age = name.partition("_")
    if size not in SIZES or age not in AGES:
        raise FeedError(
            FeedCode.BAD_SOURCE,
            f"There is no feed {name[:100]!r}. A name is SIZE_AGE, SIZE one of {', '.join(SIZES)}; "
            f"AGE one of {', '.join(AGES)}.",
        )
    return f"{SUMMARY}{name}.geojson"


@asynccontextmanager
async def open_source(
    source: str,
    *,
    session: aiohttp.ClientSession,
    retry: Backoff = RETRY,
    etag: str | None = None,
    last_modified: str | None = None,
    limits: aiohttp.ClientTimeout = LIMITS,
    uniform: Callable[[], float] = random.random,
) -> AsyncIterator[FeedDownload]:
    """Open a feed by name, http(s) URL or file (only for callers that may read the gateway's files).

    `etag` and `last_modified` come from an earlier response: if the feed has not changed, `not_modified` is true and
    there are no chunks. Failures that may pass are retried until the first byte has arrived. Raises `FeedError`.
    """
    path = Path(source)
    if "://" in source:
        url = _checked(source)
    elif await asyncio.to_thread(_is_feed_name, source, path):
        url = feed_url(source)
    else:
        async with _opened_file(path) as opened:
            yield opened
        return
    request = _Request(session, url, _headers(etag, last_modified), limits)
    answer, retries = await _send_with_retries(request, retry.delays(uniform))
    try:
        yield _download_of(answer, retries)
    finally:
        answer.response.close()


# Files


def _is_feed_name(source: str, path: Path) -> bool:
    """Return whether a source is the name of a feed, known or not, and not a file.

    A bare word is a name, unless a file of that name exists or it has the suffix of a file.
    """
    size, _, age = source.partition("_")
    if not source or (size in SIZES and age in AGES):
        return True
    return len(path.parts) == 1 and path.suffix not in (".geojson", ".json", ".gz") and not path.exists()


@asynccontextmanager
async def _opened_file(path: Path) -> AsyncIterator[FeedDownload]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except FileNotFoundError as error:
        raise FeedError(FeedCode.NOT_FOUND, f"There is no file {str(path)!r}.") from error
    except (OSError, ValueError) as error:
        raise FeedError(FeedCode.BAD_SOURCE, f"The file {str(path)!r} cannot be read.") from error
    try:
        yield FeedDownload(_file_parts(file), total=(await asyncio.to_thread(path.stat)).st_size)
    finally:
        await asyncio.to_thread(file.close)


async def _file_parts(file: IO[bytes]) -> AsyncIterator[bytes]:
    while part := await asyncio.to_thread(file.read, CHUNK):
        yield part


# HTTP


@dataclass(frozen=True, slots=True)
class _FeedResponse:
    """A response with status 200 or 304."""

    response: aiohttp.ClientResponse
    #: The first bytes of a 200. They are empty if the body is empty.
    head: bytes


class _Retryable(Exception):
    """A failure of an attempt that may pass."""

    def __init__(self, failure: FeedError, wait: float = 0.0) -> None:
        #: The error to raise when there are no more attempts.
        self.failure = failure
        #: The seconds that the service asks the client to wait.
        self.wait = wait


@dataclass(frozen=True, slots=True)
class _Request:
    session: aiohttp.ClientSession
    url: str
    headers: Mapping[str, str]
    limits: aiohttp.ClientTimeout

    async def attempt(self) -> _FeedResponse:
        try:
            response = await self._follow(URL(self.url))
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
            raise FeedError(FeedCode.BAD_SOURCE, f"{self.url} is not an http URL, or redirects to another.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Retryable(_lost(error, FeedCode.UNREACHABLE)) from error
        try:
            return _FeedResponse(response, await _head(response))
        except BaseException:
            response.close()
            raise

    async def _follow(self, url: URL) -> aiohttp.ClientResponse:
        """Return the response after redirects on the same host: the caller was allowed to read this host only."""
        for _ in range(MAX_REDIRECTS + 1):
            response = await self.session.get(
                url, headers=self.headers, timeout=self.limits, raise_for_status=False, allow_redirects=False
            )
            if response.status not in REDIRECTS:
                return response
            response.close()
            target = url.join(URL(response.headers.get("Location", "")))
            if not _is_same_host(url, target):
                raise FeedError(FeedCode.BAD_SOURCE, f"{self.url} redirects to another host: {str(target)[:200]}")
            url = target
        raise FeedError(FeedCode.HTTP_STATUS, f"{self.url} redirects more than {MAX_REDIRECTS} times.")


def _is_same_host(url: URL, target: URL) -> bool:
    """Return whether a redirect stays on the host and port. http on port 80 may become https on port 443."""
    is_upgrade = (url.scheme, url.port, target.scheme, target.port) == ("http", 80, "https", 443)
    return url.host == target.host and (is_upgrade or (url.scheme, url.port) == (target.scheme, target.port))


async def _head(response: aiohttp.ClientResponse) -> bytes:
    if response.status == 304:
        return b""
    if response.status != 200:
        _refuse_status(response)
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise _Retryable(_lost(error, FeedCode.UNREACHABLE)) from error


async def _send_with_retries(request: _Request, delays: Iterator[float]) -> tuple[_FeedResponse, int]:
    """Return the response and the number of retries."""
    for retries in itertools.count():
        try:
            return await request.attempt(), retries
        except FeedError as failure:
            failure.retries = retries
            raise
        except _Retryable as problem:
            delay = next(delays, None)
            # The service would refuse a request that comes earlier than it asked for.
            if delay is None or problem.wait > MAX_RETRY_AFTER_SECONDS:
                problem.failure.retries = retries
                raise problem.failure from problem.__cause__
            await asyncio.sleep(max(delay, problem.wait))
    raise AssertionError("unreachable")


def _download_of(answer: _FeedResponse, retries: int) -> FeedDownload:
    response = answer.response
    plain = "Content-Encoding" not in response.headers
    return FeedDownload(
        _http_parts(answer),
        total=response.content_length if plain and response.status == 200 else None,
        retries=retries,
        not_modified=response.status == 304,
        etag=response.headers.get("ETag"),
        last_modified=response.headers.get("Last-Modified"),
    )


async def _http_parts(answer: _FeedResponse) -> AsyncIterator[bytes]:
    part = answer.head
    try:
        while part:
            yield part
            part = await answer.response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise _lost(error, FeedCode.TRUNCATED) from error


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise FeedError(FeedCode.BAD_SOURCE, f"{url[:200]!r} is not a URL.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FeedError(FeedCode.BAD_SOURCE, "Only http and https URLs are read.")
    return url


def _headers(etag: str | None, last_modified: str | None) -> dict[str, str]:
    conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {"User-Agent": USER_AGENT} | {name: value for name, value in conditions.items() if value}


def _lost(error: Exception, otherwise: FeedCode) -> FeedError:
    """Return the error for a failed connection: TIMEOUT, or the code `otherwise`."""
    if isinstance(error, TimeoutError):  # aiohttp's timeouts are both: a TimeoutError and its own error
        return FeedError(FeedCode.TIMEOUT, "The service did not answer in time.")
    return FeedError(otherwise, f"The connection failed: {type(error).__name__}.")


def _refuse_status(response: aiohttp.ClientResponse) -> NoReturn:
    status = response.status
    if status == 404:
        raise FeedError(FeedCode.NOT_FOUND, f"{response.url} was not found (HTTP 404).")
    code = FeedCode.RATE_LIMITED if status == 429 else FeedCode.HTTP_STATUS
    failure = FeedError(code, f"The service answered with HTTP {status}.")
    if status == 429 or status >= 500:
        raise _Retryable(failure, _retry_after(response.headers.get("Retry-After", ""), datetime.now(UTC)))
    raise failure


def _retry_after(text: str, now: datetime) -> float:
    """Return the seconds of a Retry-After header, which holds seconds or a date; 0 when it holds neither."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text).astimezone(UTC) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _refuse_large(size: int | None) -> None:
    if size is not None and size > MAX_FEED_BYTES:
        raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MAX_FEED_BYTES} bytes.")
