"""Delivery of Live Activity pushes to Apple's push service (APNs) over HTTP/2.

A push is retried, fails, or is rejected, which means that APNs reports its device token as invalid (410 Unregistered).
`LACoordinator` then suspends the session, or removes the token of the device.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

import httpx
import orjson

from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.retry_after import retry_after_seconds
from pipelines.matches.push.apns_credentials import ApnsCredentials, ProviderToken
from pipelines.matches.push.apns_payload import ApnsNotification
from pipelines.matches.push.push_service import Push, PushOutcome, PushSummary, Sent, report_outcome, token_hash

# Reasons that mean the token will never work again. https://developer.apple.com/documentation/usernotifications
REJECTIONS = {
    (410, "Unregistered"),
    (410, "ExpiredToken"),
    (400, "ExpiredToken"),
    (400, "BadDeviceToken"),
    (400, "DeviceTokenNotForTopic"),
}
RETRIED = {429, 500, 502, 503, 504}
EXPIRED_TOKEN = "ExpiredProviderToken"
NO_ANSWER = "NoAnswer"
BACKOFF = Backoff(initial=0.5, maximum=8.0, attempts=4)
REFUSED_PAUSE_SECONDS = 60.0
# A connection that cannot be opened, breaks, or is closed by the server (GOAWAY): httpx opens another by itself.
POOL_HANDLED_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.RemoteProtocolError)
CONNECTIONS = 4
IDLE_SECONDS = 300.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApnsLimits:
    """The limits of sending. A push is attempted until `backoff` ends or `total_seconds` have passed."""

    #: Pushes in flight, over all matches.
    concurrent: int = 100
    connect_seconds: float = 5.0
    answer_seconds: float = 10.0
    total_seconds: float = 30.0
    backoff: Backoff = BACKOFF


class ApnsPushService:
    """The push service APNs over a few connections, one object per process.

    `verify` is for servers with a private certificate.
    """

    def __init__(
        self,
        credentials: ApnsCredentials,
        now: Callable[[], datetime],
        *,
        limits: ApnsLimits = ApnsLimits(),
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        _filter_client_logs()
        self._credentials = credentials
        self._now = now
        self._limits = limits
        self._verify = verify
        self._token = ProviderToken(credentials, now)
        self._slots = asyncio.Semaphore(limits.concurrent)
        self._client: _SharedClient | None = None
        self._refused_until = float("-inf")
        self._refusal = ""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        summary = PushSummary()
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for push in pushes:
                await self._slots.acquire()
                task = asyncio.create_task(self._send_and_report(push, summary))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                # A task that is cancelled before it starts runs none of its code, but it runs this callback.
                task.add_done_callback(lambda _: self._slots.release())
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        finally:
            # If the iterator fails, the pushes that it yielded before are still sent.
            await asyncio.gather(*tasks, return_exceptions=True)
        return summary

    async def send(self, token: str, notification: ApnsNotification) -> Sent:
        """Send one push, with retries."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._refused_until:
            return Sent(PushOutcome.FAILED, self._refusal)
        deadline = loop.time() + self._limits.total_seconds
        delays = self._limits.backoff.delays()
        retries = 0
        while True:
            response = await self._post(token, notification)
            if (outcome := response.outcome) is not None:
                return Sent(outcome, None if outcome is PushOutcome.DELIVERED else response.reason, retries)
            delay = next(delays, None)
            if delay is None:
                return Sent(PushOutcome.FAILED, response.reason, retries)
            delay = max(delay, response.retry_after)
            if loop.time() + delay >= deadline:
                return Sent(PushOutcome.FAILED, response.reason, retries)
            retries += 1
            await asyncio.sleep(delay)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.http.aclose()
            self._client = None

    async def _send_and_report(self, push: Push, summary: PushSummary) -> None:
        sent = await self.send(push.token, push.notification)
        summary.add(sent)
        if sent.outcome is not PushOutcome.DELIVERED:
            logger.debug("Push to %s: %s, %s", token_hash(push.token), sent.outcome.value, sent.reason)
        await report_outcome(push, sent)

    async def _post(self, token: str, notification: ApnsNotification) -> "_ApnsResponse":
        provider_token = self._token.current()
        async with self._shared_client() as client:
            try:
                with _redacted_logs():
                    async with asyncio.timeout(self._limits.answer_seconds):
                        response = await client.http.post(
                            f"{self._credentials.url}/3/device/{quote(token, safe='')}",
                            content=notification.body,
                            headers=self._headers(provider_token, notification),
                        )
            except Exception as problem:
                # A breaking connection raises some errors besides httpx's own.
                if not isinstance(problem, POOL_HANDLED_ERRORS):
                    self._retire(client, problem)
                return _ApnsResponse(0, NO_ANSWER)
        apns_response = _ApnsResponse.of(response, self._now())
        if apns_response.status == 403:
            return self._refused(apns_response, provider_token)
        return apns_response

    def _headers(self, provider_token: str, notification: ApnsNotification) -> dict[str, str]:
        headers = {
            "authorization": f"bearer {provider_token}",
            "apns-push-type": "liveactivity",
            "apns-topic": self._credentials.topic,
            "apns-priority": str(notification.priority),
            "apns-expiration": str(notification.expiration),
        }
        if notification.collapse_id is not None:
            headers["apns-collapse-id"] = notification.collapse_id
        return headers

    def _refused(self, response: "_ApnsResponse", provider_token: str) -> "_ApnsResponse":
        """Renew an expired provider token. Any other refusal needs an operator, so sending pauses."""
        if response.reason == EXPIRED_TOKEN:
            self._token.renew(provider_token)
            return response
        self._refusal = response.reason
        self._refused_until = asyncio.get_running_loop().time() + REFUSED_PAUSE_SECONDS
        logger.error(
            "APNs refused the credentials (%s); sending pauses for %d seconds. Check APNS_KEY_FILE, APNS_KEY_ID, "
            "APNS_TEAM_ID and APNS_BUNDLE_ID",
            response.reason,
            REFUSED_PAUSE_SECONDS,
        )
        return response

    def _shared_client(self) -> "_SharedClient":
        if self._client is None:
            self._client = _SharedClient(self._new_client())
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        limits = self._limits
        return httpx.AsyncClient(
            http1=False,
            http2=True,
            verify=self._verify,
            trust_env=False,
            timeout=httpx.Timeout(limits.answer_seconds, connect=limits.connect_seconds),
            limits=httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=IDLE_SECONDS),
        )

    def _retire(self, client: "_SharedClient", problem: Exception) -> None:
        """Use a new client for later requests.

        httpcore does not reset the stream of an abandoned request; after a hundred of them the connection would
        accept no more.
        """
        if client is self._client:
            logger.warning("The connection to APNs failed (%s); opening another", type(problem).__name__)
            self._client = None
        client.retired = True


class _SharedClient:
    """A client with a count of its users. Once retired, it is closed by its last user."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.retired = False
        self._users = 0

    async def __aenter__(self) -> "_SharedClient":
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self.retired and not self._users:
            await self.http.aclose()


@dataclass(frozen=True, slots=True)
class _ApnsResponse:
    """A response of APNs; status 0 if none arrived. `retry_after` is in seconds."""

    status: int
    reason: str
    retry_after: float = 0.0

    @classmethod
    def of(cls, response: httpx.Response, now: datetime) -> "_ApnsResponse":
        return cls(
            response.status_code,
            _reason(response),
            retry_after_seconds(response.headers.get("retry-after"), now) or 0.0,
        )

    @property
    def outcome(self) -> PushOutcome | None:
        """The outcome, or None if the push should be retried."""
        if self.status == 200:
            return PushOutcome.DELIVERED
        if (self.status, self.reason) in REJECTIONS:
            return PushOutcome.REJECTED
        is_retryable = self.status in RETRIED or self.status == 0 or self.reason == EXPIRED_TOKEN
        return None if is_retryable else PushOutcome.FAILED


def _reason(response: httpx.Response) -> str:
    try:
        reason = orjson.loads(response.content)["reason"]
    except (ValueError, TypeError, KeyError):
        return f"Status{response.status_code}"
    return str(reason)[:64]


# During a request these loggers would show tokens: in URLs, and in headers as they are encoded.
_FILTERED_LOGGERS = ("httpx", "httpcore.http2", "httpcore.connection", "hpack.hpack", "hpack.table")
_sending: ContextVar[bool] = ContextVar("sending", default=False)


@contextmanager
def _redacted_logs() -> Iterator[None]:
    before = _sending.set(True)
    try:
        yield
    finally:
        _sending.reset(before)


def _is_not_ours(_: logging.LogRecord) -> bool:
    return not _sending.get()


def _filter_client_logs() -> None:
    for name in _FILTERED_LOGGERS:
        logging.getLogger(name).addFilter(_is_not_ours)
