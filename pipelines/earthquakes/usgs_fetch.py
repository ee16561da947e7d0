"""The download of USGS feeds from files, from URLs, and by the names of USGS's summary feeds."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import aiohttp
from yarl import URL

from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.retry_after import retry_after_seconds
from pipelines.earthquakes.usgs_feed import AGES, SIZES, FeedCode, FeedError, feed_url

RETRY = Backoff(initial=0.5, maximum=10.0, attempts=4)
# The total includes the time that the caller takes between two chunks, so it is generous.
LIMITS = aiohttp.ClientTimeout(total=300, connect=10, sock_read=30)
MAX_RETRY_AFTER_SECONDS = 60.0
MAX_FEED_BYTES = 512 << 20
MAX_REDIRECTS = 5
CHUNK = 64 * 1024
USER_AGENT = "dynamodb-graphql-gateway (USGS feed reader)"


@dataclass(slots=True)
class FeedDownload:
    """A feed that is read once.

    Bytes are counted after the session has decoded any Content-Encoding. A .gz file stays compressed.
    """

    read: Callable[[], Awaitable[bytes]]
    #: The part that was read before.
    part: bytes = b""
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
        while part := self.part or await self.read():
            self.part = b""
            self.size += len(part)
            _refuse_large(self.size)
            self._hash.update(part)
            yield part


@asynccontextmanager
async def open_source(
    source: str,
    *,
    session: aiohttp.ClientSession,
    retry: Backoff = RETRY,
    etag: str | None = None,
    last_modified: str | None = None,
    limits: aiohttp.ClientTimeout = LIMITS,
) -> AsyncIterator[FeedDownload]:
    """Open a feed by name, http(s) URL or file (only for callers that may read the gateway's files).

    `etag` and `last_modified` come from an earlier response: if the feed has not changed, `not_modified` is true and
    there are no chunks. Failures that may pass are retried until the first byte has arrived. Raises `FeedError`.
    """
    path = Path(source)
    if "://" not in source and not await asyncio.to_thread(_is_feed_name, source, path):
        with await asyncio.to_thread(_opened, path) as file:
            read = partial(asyncio.to_thread, file.read, CHUNK)
            yield FeedDownload(read, total=os.fstat(file.fileno()).st_size)
        return
    url = source if "://" in source else feed_url(source)
    conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    headers = {"User-Agent": USER_AGENT} | {name: value for name, value in conditions.items() if value}
    attempt = partial(_first_part, session, url, headers, limits)
    response, first, retries = await _with_retries(attempt, retry.delays())
    with closing(response):
        plain = response.status == 200 and "Content-Encoding" not in response.headers
        yield FeedDownload(
            partial(_next_part, url, response),
            first,
            total=response.content_length if plain else None,
            retries=retries,
            not_modified=response.status == 304,
            etag=response.headers.get("ETag"),
            last_modified=response.headers.get("Last-Modified"),
        )


def _is_feed_name(source: str, path: Path) -> bool:
    """Return whether a source is the name of a feed, known or not, and not a file.

    A bare word is a name, unless a file of that name exists or it has the suffix of a file.
    """
    size, _, age = source.partition("_")
    if not source or (size in SIZES and age in AGES):
        return True
    return len(path.parts) == 1 and path.suffix not in (".geojson", ".json", ".gz") and not path.exists()


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise FeedError(FeedCode.NOT_FOUND, f"There is no file {str(path)!r}.") from error
    except (OSError, ValueError) as error:
        raise FeedError(FeedCode.BAD_SOURCE, f"The file {str(path)!r} cannot be read.") from error


async def _with_retries(
    attempt: Callable[[], Awaitable[tuple[aiohttp.ClientResponse, bytes]]], delays: Iterator[float]
) -> tuple[aiohttp.ClientResponse, bytes, int]:
    """Return the result of the first attempt that succeeds, and the number of retries."""
    for retries in itertools.count():
        try:
            return *await attempt(), retries
        except FeedError as failure:
            failure.retries = retries
            delay = next(delays, None)
            # The service would refuse a request that comes earlier than it asked for.
            if failure.wait is None or delay is None or failure.wait > MAX_RETRY_AFTER_SECONDS:
                raise
            pause = max(delay, failure.wait)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


async def _first_part(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], limits: aiohttp.ClientTimeout
) -> tuple[aiohttp.ClientResponse, bytes]:
    """Return a response with status 200 or 304, and the first bytes of its body, which are empty if the body is."""
    with _feed_errors(url, FeedCode.UNREACHABLE):
        target = URL(url)
        if target.scheme not in ("http", "https"):  # aiohttp also opens WebSockets
            raise aiohttp.NonHttpUrlClientError(target)
        response = await session.get(
            target,
            headers=headers,
            timeout=limits,
            raise_for_status=False,
            max_redirects=MAX_REDIRECTS + 1,  # aiohttp counts the redirect that it refuses
            middlewares=(_same_host_only(target),),
        )
        try:
            _check_status(response)
            return response, await response.content.readany()
        except BaseException:
            response.close()
            raise


def _same_host_only(url: URL) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that refuses redirects to another host: the caller was allowed to read this host only."""

    async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        nonlocal url
        if not _is_same_host(url, request.url):
            raise FeedError(FeedCode.BAD_SOURCE, f"{url} redirects to another host: {str(request.url)[:200]}")
        url = request.url
        return await handler(request)

    return middleware


def _is_same_host(url: URL, target: URL) -> bool:
    """Return whether a redirect stays on the host and port. http on port 80 may become https on port 443."""
    is_upgrade = (url.scheme, url.port, target.scheme, target.port) == ("http", 80, "https", 443)
    return url.host == target.host and (is_upgrade or (url.scheme, url.port) == (target.scheme, target.port))


def _check_status(response: aiohttp.ClientResponse) -> None:
    """Raise `FeedError` for a status other than 200 and 304, with a time to wait if a retry may succeed."""
    status = response.status
    if status in (200, 304):
        return
    if status == 404:
        raise FeedError(FeedCode.NOT_FOUND, f"{response.url} was not found (HTTP 404).")
    code = FeedCode.RATE_LIMITED if status == 429 else FeedCode.HTTP_STATUS
    may_pass = status == 429 or status >= 500
    wait = retry_after_seconds(response.headers.get("Retry-After"), datetime.now(UTC)) or 0.0 if may_pass else None
    raise FeedError(code, f"The service answered with HTTP {status}.", wait=wait)


async def _next_part(url: str, response: aiohttp.ClientResponse) -> bytes:
    with _feed_errors(url, FeedCode.TRUNCATED):
        return await response.content.readany()


@contextmanager
def _feed_errors(url: str, lost: FeedCode) -> Iterator[None]:
    """Raise the errors of aiohttp as `FeedError`. `lost` is the code for a lost connection."""
    try:
        yield
    except aiohttp.TooManyRedirects as error:
        raise FeedError(FeedCode.HTTP_STATUS, f"{url} redirects more than {MAX_REDIRECTS} times.") from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
        raise FeedError(FeedCode.BAD_SOURCE, f"{url[:200]} is not an http URL, or redirects to another.") from error
    except TimeoutError as error:  # before ClientError: aiohttp's timeouts are both
        raise FeedError(FeedCode.TIMEOUT, "The service did not answer in time.", wait=0.0) from error
    except (aiohttp.ClientError, OSError) as error:
        raise FeedError(lost, f"The connection failed: {type(error).__name__}.", wait=0.0) from error


def _refuse_large(size: int | None) -> None:
    if size is not None and size > MAX_FEED_BYTES:
        raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MAX_FEED_BYTES} bytes.")
