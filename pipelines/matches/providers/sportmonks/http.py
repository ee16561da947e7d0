"""The HTTP client for SportMonks, with retries and quotas.

The token is part of every URL and does not leave this module.
"""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus

import aiohttp
import msgspec

from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.retry_after import retry_after_seconds
from pipelines.matches.providers.provider import Malformed, ProviderError, ProviderRefused, ProviderUnavailable
from pipelines.matches.providers.sportmonks import BASE_URL
from pipelines.matches.providers.sportmonks.quota import CALLS, Quota

RETRY = Backoff(initial=0.2, maximum=2.0, attempts=3)
LIMITS = aiohttp.ClientTimeout(total=20, connect=5, sock_read=10)
MAX_BODY_BYTES = 16 << 20
MAX_RETRY_AFTER = 86_400.0
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
    """A client for GET requests below one base URL. The caller closes the session.

    No error that it raises holds the token, neither in its text nor in its chain of causes. `now` is the clock of the
    quotas. `sleep` waits some seconds between retries and where the quota paces the calls.
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
        self._failures: dict[str, str] = {}

    async def get(self, path: str, params: Mapping[str, str]) -> bytes | None:
        """Return the body of a 200, or None for a 404 of a path with an id. Raises `ProviderError`."""
        outcome = await self._get_with_retries(path, params)
        self._log_change(path.partition("/")[0], outcome if isinstance(outcome, ProviderError) else None)
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    def _log_change(self, endpoint: str, problem: ProviderError | None) -> None:
        """Log when an endpoint begins to fail, fails for another reason, or recovers; not every failure."""
        failure = None if problem is None else f"{type(problem).__name__}, quota: {problem.retry_after is not None}"
        if failure == self._failures.get(endpoint):
            return
        if problem is None:
            del self._failures[endpoint]
            logger.info("SportMonks: %s answers again", endpoint)
        elif failure is not None:
            self._failures[endpoint] = failure
            logger.warning("SportMonks: %s fails; further failures of this kind are not logged: %s", endpoint, problem)

    async def _get_with_retries(self, path: str, params: Mapping[str, str]) -> bytes | ProviderError | None:
        delays = self._retry.delays(random.random)
        while True:
            outcome = await self._get_once(path, params)
            if not isinstance(outcome, ProviderUnavailable) or outcome.retry_after is not None:
                return outcome
            delay = next(delays, None)
            if delay is None:
                return outcome
            await self._sleep(delay)

    async def _get_once(self, path: str, params: Mapping[str, str]) -> bytes | ProviderError | None:
        """Make one call and return its failure: an error raised in an `except` block would keep its cause, and that
        holds the URL with the token.
        """
        endpoint = path.partition("/")[0]
        quota = self._quota(endpoint)
        wait = quota.take()
        if isinstance(wait, ProviderError):
            return wait
        if wait:
            await self._sleep(wait)
        reply = await self._send(path, params)
        if isinstance(reply, ProviderError):
            return reply
        if (reply.remaining or "").isdecimal():
            quota.observe_remaining(int(reply.remaining or 0))
        if reply.status == 404 and path != endpoint:
            return None
        return self._failure(endpoint, reply) or reply.body

    async def _send(self, path: str, params: Mapping[str, str]) -> _Reply | ProviderError:
        query = {**params, "api_token": self._token}
        try:
            async with self._session.get(
                self._base_url + path,
                params=query,
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                timeout=self._limits,
                allow_redirects=False,  # the target of a redirect would receive the token
                raise_for_status=False,
            ) as response:
                headers = response.headers
                return _Reply(
                    status=response.status,
                    body=self._redacted(await _body(response)),
                    retry_after=headers.get("Retry-After"),
                    remaining=headers.get("X-RateLimit-Remaining"),
                )
        except _TooLarge:
            return Malformed(f"SportMonks {path}: the answer is longer than {MAX_BODY_BYTES} bytes.")
        except TimeoutError:
            reason = "no answer in time"
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection failed ({type(error).__name__})"
        return ProviderUnavailable(f"SportMonks {path}: {reason}.")

    def _failure(self, endpoint: str, reply: _Reply) -> ProviderError | None:
        status = reply.status
        if status == 200:
            return None
        if status == 429:
            seconds = retry_after_seconds(reply.retry_after, self._now())
            return self._quota(endpoint).exhausted(None if seconds is None else min(seconds, MAX_RETRY_AFTER))
        if status >= 500:
            return ProviderUnavailable(f"SportMonks {endpoint}: HTTP {status}.")
        return ProviderRefused(f"SportMonks {endpoint}: HTTP {status}{_reason(reply.body)}.")

    def _redacted(self, body: bytes) -> bytes:
        """Remove the token from a body, which may repeat the URL of the request."""
        for form in {self._token, quote(self._token), quote(self._token, safe=""), quote_plus(self._token)} - {""}:
            body = body.replace(form.encode(), REDACTED)
        return IN_ADDRESS.sub(b"api_token=" + REDACTED, body)

    def _quota(self, endpoint: str) -> Quota:
        if endpoint not in self._quotas:
            self._quotas[endpoint] = Quota(endpoint, now=self._now, calls=self._calls_per_hour)
        return self._quotas[endpoint]


def _reason(body: bytes) -> str:
    """Return the text of an error response in JSON, with a colon before it; else an empty text."""
    try:
        reason: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message"):
        reason = reason.get(name, reason) if isinstance(reason, dict) else reason
    return f": {reason[:200]}" if isinstance(reason, str) and reason else ""


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    if (response.content_length or 0) > MAX_BODY_BYTES:
        raise _TooLarge
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            raise _TooLarge
    return bytes(parts)
