"""A USGS feed, from a name to bytes: files, addresses and the names of USGS's own summary feeds."""

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
# The total covers the time the caller takes between two chunks, so it is generous.
LIMITS = aiohttp.ClientTimeout(total=300, connect=10, sock_read=30)
LONGEST_RETRY_AFTER_S = 60.0
MOST_BYTES = 512 << 20
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK = 64 * 1024
USER_AGENT = "dynamodb-graphql-gateway (USGS feed reader)"


@dataclass(slots=True)
class FeedDownload:
    """A feed being read, once. `size` (bytes) and `sha256` (hex) are those of what was read so far.

    Bytes count as the session hands them over: any Content-Encoding is undone, a .gz file stays as it is. `total` is
    the size to expect when it is known; `retries` counts the requests that had to be repeated.
    """

    parts: AsyncIterator[bytes]
    total: int | None = None
    retries: int = 0
    not_modified: bool = False
    etag: str | None = None
    last_modified: str | None = None
    size: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        return str(self._hash.hexdigest())

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body; raises `FeedError` TOO_LARGE, TIMEOUT, or TRUNCATED when the connection is lost."""
        _refuse_large(self.total)
        async for part in self.parts:
            self.size += len(part)
            _refuse_large(self.size)
            self._hash.update(part)
            yield part


def feed_url(name: str) -> str:
    """The address of a summary feed such as `all_day`; raises `FeedError` BAD_SOURCE for a name USGS has not."""
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

    `etag` and `last_modified` are those of an earlier answer: when nothing changed, `not_modified` is true and there
    are no chunks. What can be repeated is, until the first byte is there. Raises `FeedError`.
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
    answer, retries = await _insist(request, retry.delays(uniform))
    try:
        yield _source_of(answer, retries)
    finally:
        answer.response.close()


# Files


def _is_feed_name(source: str, path: Path) -> bool:
    """A bare word is a feed's name, right or wrong, unless there is a file or it ends as files do."""
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
    """A 200 with its first bytes (none when the body is empty), or a 304."""

    response: aiohttp.ClientResponse
    head: bytes


class _Again(Exception):
    """An attempt failed in a way that may pass: what to raise when there is no more try, and how long to wait."""

    def __init__(self, failure: FeedError, wait: float = 0.0) -> None:
        self.failure = failure
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
            raise FeedError(FeedCode.BAD_SOURCE, f"{self.url} is, or leads to, no http address.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Again(_lost(error, FeedCode.UNREACHABLE)) from error
        try:
            return _FeedResponse(response, await _head(response))
        except BaseException:
            response.close()
            raise

    async def _follow(self, url: URL) -> aiohttp.ClientResponse:
        """The answer after redirects. None may leave the host: it was this host that the caller was allowed to read."""
        for _ in range(MOST_REDIRECTS + 1):
            response = await self.session.get(
                url, headers=self.headers, timeout=self.limits, raise_for_status=False, allow_redirects=False
            )
            if response.status not in REDIRECTS:
                return response
            response.close()
            onward = url.join(URL(response.headers.get("Location", "")))
            if not _is_same_host(url, onward):
                raise FeedError(FeedCode.BAD_SOURCE, f"{self.url} leads to another host: {str(onward)[:200]}")
            url = onward
        raise FeedError(FeedCode.HTTP_STATUS, f"{self.url} redirects without end.")


def _is_same_host(url: URL, onward: URL) -> bool:
    """Whether both are one host's; http may become https, each on its usual port."""
    is_upgrade = (url.scheme, url.port, onward.scheme, onward.port) == ("http", 80, "https", 443)
    return url.host == onward.host and (is_upgrade or (url.scheme, url.port) == (onward.scheme, onward.port))


async def _head(response: aiohttp.ClientResponse) -> bytes:
    if response.status == 304:
        return b""
    if response.status != 200:
        _refuse_status(response)
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise _Again(_lost(error, FeedCode.UNREACHABLE)) from error


async def _insist(request: _Request, delays: Iterator[float]) -> tuple[_FeedResponse, int]:
    """The answer, and how often the request had to be repeated for it."""
    for retries in itertools.count():
        try:
            return await request.attempt(), retries
        except FeedError as failure:
            failure.retries = retries
            raise
        except _Again as again:
            delay = next(delays, None)
            # Waiting less than what was asked for would only be refused again.
            if delay is None or again.wait > LONGEST_RETRY_AFTER_S:
                again.failure.retries = retries
                raise again.failure from again.__cause__
            await asyncio.sleep(max(delay, again.wait))
    raise AssertionError("unreachable")


def _source_of(answer: _FeedResponse, retries: int) -> FeedDownload:
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
        raise FeedError(FeedCode.BAD_SOURCE, f"{url[:200]!r} is no address.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FeedError(FeedCode.BAD_SOURCE, "Only http and https addresses are read.")
    return url


def _headers(etag: str | None, last_modified: str | None) -> dict[str, str]:
    conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {"User-Agent": USER_AGENT} | {name: value for name, value in conditions.items() if value}


def _lost(error: Exception, otherwise: FeedCode) -> FeedError:
    """`asyncio.TimeoutError` is an OSError, and aiohttp's timeouts are both."""
    if isinstance(error, TimeoutError):
        return FeedError(FeedCode.TIMEOUT, "The service did not answer in time.")
    return FeedError(otherwise, f"The connection failed: {type(error).__name__}.")


def _refuse_status(response: aiohttp.ClientResponse) -> NoReturn:
    status = response.status
    if status == 404:
        raise FeedError(FeedCode.NOT_FOUND, f"There is nothing at {response.url} (HTTP 404).")
    code = FeedCode.RATE_LIMITED if status == 429 else FeedCode.HTTP_STATUS
    failure = FeedError(code, f"The service answered with HTTP {status}.")
    if status == 429 or status >= 500:
        raise _Again(failure, _retry_after(response.headers.get("Retry-After", ""), datetime.now(UTC)))
    raise failure


def _retry_after(text: str, now: datetime) -> float:
    """Seconds to wait as Retry-After tells, in seconds or as a date; 0 when it tells nothing."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text).astimezone(UTC) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _refuse_large(size: int | None) -> None:
    if size is not None and size > MOST_BYTES:
        raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MOST_BYTES} bytes.")
