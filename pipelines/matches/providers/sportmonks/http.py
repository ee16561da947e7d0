"""HTTP to SportMonks: the token, which is part of every address, stays in here; so do retries and the quota."""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, quote_plus

import aiohttp
import msgspec

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.matches.providers.provider import Malformed, ProviderError, ProviderRefused, ProviderUnavailable
from pipelines.matches.providers.sportmonks.quota import CALLS, Quota

BASE_URL = "https://cricket.sportmonks.com/api/v2.0/"
RETRY = Backoff(initial=0.2, maximum=2.0, attempts=3)
LIMITS = aiohttp.ClientTimeout(total=20, connect=5, sock_read=10)
MOST_BYTES = 16 << 20
LONGEST_RETRY_AFTER = 86_400.0
USER_AGENT = "dynamodb-graphql-gateway (SportMonks reader)"
REDACTED = b"<token>"
IN_ADDRESS = re.compile(rb"api_token=(?!<token>)[^&\s\"'<>\\]*")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes
    retry_after: str | None
    remaining: str | None


class _TooLarge(Exception):
    pass


class SportMonksHttp:
    """GET requests to one base address. No error that leaves this class, and nothing it leads to, holds the token.

    `now` is the time for the quota; `sleep` waits (seconds) between tries and where the quota asks for it.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str,
        *,
        base_url: str = BASE_URL,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        retry: Backoff = RETRY,
        limits: aiohttp.ClientTimeout = LIMITS,
        calls_per_hour: int = CALLS,
    ) -> None:
        self._session = session
        self._token = token
        self._base_url = base_url.rstrip("/") + "/"
        self._now = now
        self._sleep = sleep
        self._retry = retry
        self._limits = limits
        self._calls_per_hour = calls_per_hour
        self._quotas: dict[str, Quota] = {}
        self._troubles: dict[str, str] = {}

    async def get(self, path: str, params: Mapping[str, str]) -> bytes | None:
        """The body of a 200; None for a 404 of what has an id. Raises `ProviderError`."""
        found = await self._tried(path, params)
        self._tell(path.partition("/")[0], found if isinstance(found, ProviderError) else None)
        if isinstance(found, ProviderError):
            raise found
        return found

    def _tell(self, endpoint: str, problem: ProviderError | None) -> None:
        """Log when an endpoint begins to fail, fails otherwise, or answers again; not each time it is asked."""
        trouble = None if problem is None else f"{type(problem).__name__}, quota: {problem.retry_after is not None}"
        if trouble == self._troubles.get(endpoint):
            return
        if problem is None:
            del self._troubles[endpoint]
            logger.info("SportMonks: %s answers again", endpoint)
        elif trouble is not None:
            self._troubles[endpoint] = trouble
            logger.warning("SportMonks: %s fails until further notice: %s", endpoint, problem)

    async def _tried(self, path: str, params: Mapping[str, str]) -> bytes | ProviderError | None:
        delays = self._retry.delays(random.random)
        while True:
            found = await self._once(path, params)
            if not isinstance(found, ProviderUnavailable) or found.retry_after is not None:
                return found
            delay = next(delays, None)
            if delay is None:
                return found
            await self._sleep(delay)

    async def _once(self, path: str, params: Mapping[str, str]) -> bytes | ProviderError | None:
        """Failures are returned: an error raised in an `except` block keeps the one it came from, address and all."""
        endpoint = path.partition("/")[0]
        quota = self._quota(endpoint)
        wait = quota.take()
        if isinstance(wait, ProviderError):
            return wait
        if wait:
            await self._sleep(wait)
        reply = await self._attempt(path, params)
        if isinstance(reply, ProviderError):
            return reply
        if (reply.remaining or "").isdecimal():
            quota.heard(int(reply.remaining or 0))
        if reply.status == 404 and path != endpoint:
            return None
        return self._failure(endpoint, reply) or reply.body

    async def _attempt(self, path: str, params: Mapping[str, str]) -> _Reply | ProviderError:
        query = {**params, "api_token": self._token}
        try:
            async with self._session.get(
                self._base_url + path,
                params=query,
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                timeout=self._limits,
                allow_redirects=False,  # an address elsewhere would be told the token
                raise_for_status=False,
            ) as response:
                told = response.headers
                return _Reply(
                    status=response.status,
                    body=self._redacted(await _body(response)),
                    retry_after=told.get("Retry-After"),
                    remaining=told.get("X-RateLimit-Remaining"),
                )
        except _TooLarge:
            return Malformed(f"SportMonks {path}: the answer is longer than {MOST_BYTES} bytes.")
        except TimeoutError:
            what = "no answer in time"
        except (aiohttp.ClientError, OSError) as error:
            what = f"the connection failed ({type(error).__name__})"
        return ProviderUnavailable(f"SportMonks {path}: {what}.")

    def _failure(self, endpoint: str, reply: _Reply) -> ProviderError | None:
        status = reply.status
        if status == 200:
            return None
        if status == 429:
            return self._quota(endpoint).exhausted(_retry_after(reply.retry_after, self._now()))
        if status >= 500:
            return ProviderUnavailable(f"SportMonks {endpoint}: HTTP {status}.")
        return ProviderRefused(f"SportMonks {endpoint}: HTTP {status}{_reason(reply.body)}.")

    def _redacted(self, body: bytes) -> bytes:
        """An answer may well repeat what it was asked."""
        for form in {self._token, quote(self._token), quote(self._token, safe=""), quote_plus(self._token)} - {""}:
            body = body.replace(form.encode(), REDACTED)
        return IN_ADDRESS.sub(b"api_token=" + REDACTED, body)

    def _quota(self, endpoint: str) -> Quota:
        if endpoint not in self._quotas:
            self._quotas[endpoint] = Quota(endpoint, now=self._now, calls=self._calls_per_hour)
        return self._quotas[endpoint]


def _reason(body: bytes) -> str:
    """What an error says for itself, if it is JSON and says something."""
    try:
        found: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message"):
        found = found.get(name, found) if isinstance(found, dict) else found
    return f": {found[:200]}" if isinstance(found, str) and found else ""


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    if (response.content_length or 0) > MOST_BYTES:
        raise _TooLarge
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > MOST_BYTES:
            raise _TooLarge
    return bytes(parts)


def _retry_after(told: str | None, now: datetime) -> float | None:
    """Seconds, as Retry-After tells in seconds or as a date; None when it tells nothing."""
    if told is None:
        return None
    if told.strip().isdecimal():
        return min(float(told), LONGEST_RETRY_AFTER)
    try:
        seconds = (parsedate_to_datetime(told) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)
