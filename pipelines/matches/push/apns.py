"""Delivery of Live Activity pushes to Apple's push service (APNs) over HTTP/2."""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import httpx
import orjson

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.matches.push.apns_credentials import ApnsCredentials, ProviderToken
from pipelines.matches.push.apns_payload import ApnsNotification
from pipelines.matches.push.push_delivery import Push, PushOutcome, PushSummary, Sent, hashed, settled

# A token that will never work again. https://developer.apple.com/documentation/usernotifications
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
# A connection that cannot be opened, that breaks, or is closed by the server (GOAWAY): httpx opens another by itself.
LEFT_TO_THE_POOL = (httpx.ConnectError, httpx.ConnectTimeout, httpx.RemoteProtocolError)
CONNECTIONS = 4
IDLE_SECONDS = 300.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApnsLimits:
    """`concurrent` sends over all matches at once. A push is tried `backoff.tries` times, within `most_seconds`."""

    concurrent: int = 100
    connect_seconds: float = 5.0
    answer_seconds: float = 10.0
    most_seconds: float = 30.0
    backoff: Backoff = BACKOFF


class ApnsDelivery:
    """Sends over one connection, or a few; one per process. `verify` is for servers with a certificate of their own."""

    def __init__(
        self,
        credentials: ApnsCredentials,
        now: Callable[[], datetime],
        *,
        limits: ApnsLimits = ApnsLimits(),
        verify: ssl.SSLContext | bool = True,
        chance: Callable[[], float] = random.random,
    ) -> None:
        _keep_tokens_out_of_logs()
        self._credentials = credentials
        self._now = now
        self._limits = limits
        self._verify = verify
        self._chance = chance
        self._token = ProviderToken(credentials, now)
        self._places = asyncio.Semaphore(limits.concurrent)
        self._line: _Line | None = None
        self._refused_until = float("-inf")
        self._refusal = ""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        summary = PushSummary()
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for push in pushes:
                await self._places.acquire()
                task = asyncio.create_task(self._send_and_settle(push, summary))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                # A task that is cancelled before it begins runs none of its code, but this.
                task.add_done_callback(lambda _: self._places.release())
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        finally:
            # If the iterator fails, what it gave before is sent all the same.
            await asyncio.gather(*tasks, return_exceptions=True)
        return summary

    async def send(self, token: str, notification: ApnsNotification) -> Sent:
        """One push, tried again while that makes sense."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._refused_until:
            return Sent(PushOutcome.FAILED, self._refusal)
        give_up_at = loop.time() + self._limits.most_seconds
        delays = self._limits.backoff.delays(self._chance)
        retries = 0
        while True:
            answer = await self._ask(token, notification)
            if (outcome := answer.outcome) is not None:
                return Sent(outcome, None if outcome is PushOutcome.DELIVERED else answer.reason, retries)
            delay = next(delays, None)
            if delay is None:
                return Sent(PushOutcome.FAILED, answer.reason, retries)
            delay = max(delay, answer.retry_after)
            if loop.time() + delay >= give_up_at:
                return Sent(PushOutcome.FAILED, answer.reason, retries)
            retries += 1
            await asyncio.sleep(delay)

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.aclose()
            self._line = None

    async def _send_and_settle(self, push: Push, summary: PushSummary) -> None:
        sent = await self.send(push.token, push.notification)
        summary.add(sent)
        if sent.outcome is not PushOutcome.DELIVERED:
            logger.debug("Push to %s: %s, %s", hashed(push.token), sent.outcome.value, sent.reason)
        await settled(push, sent)

    async def _ask(self, token: str, notification: ApnsNotification) -> "_ApnsResponse":
        provider_token = self._token.current()
        async with self._open_line() as line:
            try:
                with _quiet():
                    async with asyncio.timeout(self._limits.answer_seconds):
                        response = await line.client.post(
                            f"{self._credentials.url}/3/device/{quote(token, safe='')}",
                            content=notification.body,
                            headers=self._headers(provider_token, notification),
                        )
            except Exception as problem:
                # Beside httpx's own errors: some faults of a connection that breaks reach us as they are.
                if not isinstance(problem, LEFT_TO_THE_POOL):
                    self._retire(line, problem)
                return _ApnsResponse(0, NO_ANSWER)
        answer = _ApnsResponse.of(response, self._now())
        if answer.status == 403:
            return self._refused(answer, provider_token)
        return answer

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

    def _refused(self, answer: "_ApnsResponse", provider_token: str) -> "_ApnsResponse":
        """Our own token was refused: a new one helps if it was too old, else only a person can."""
        if answer.reason == EXPIRED_TOKEN:
            self._token.renew(provider_token)
            return answer
        self._refusal = answer.reason
        self._refused_until = asyncio.get_running_loop().time() + REFUSED_PAUSE_SECONDS
        logger.error("APNs refuses our credentials (%s); nothing is sent for a minute", answer.reason)
        return answer

    def _open_line(self) -> "_Line":
        if self._line is None:
            self._line = _Line(self._new_client())
        return self._line

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

    def _retire(self, line: "_Line", problem: Exception) -> None:
        """Begin a new line for those that come next.

        A request that was given up leaves its stream open, as httpcore resets none; with a hundred of them the
        connection would take no more.
        """
        if line is self._line:
            logger.warning("The connection to APNs fails (%s); a new one is opened", type(problem).__name__)
            self._line = None
        line.retired = True


class _Line:
    """A client and those who use it: once retired, it is closed when the last of them is done."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.retired = False
        self._users = 0

    async def __aenter__(self) -> "_Line":
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self.retired and not self._users:
            await self.client.aclose()


@dataclass(frozen=True, slots=True)
class _ApnsResponse:
    """What APNs said; status 0 when it said nothing. `retry_after` is in seconds."""

    status: int
    reason: str
    retry_after: float = 0.0

    @classmethod
    def of(cls, response: httpx.Response, now: datetime) -> "_ApnsResponse":
        return cls(response.status_code, _reason(response), _retry_after(response, now))

    @property
    def outcome(self) -> PushOutcome | None:
        """None when it should be tried again."""
        if self.status == 200:
            return PushOutcome.DELIVERED
        if (self.status, self.reason) in REJECTIONS:
            return PushOutcome.REJECTED
        again = self.status in RETRIED or self.status == 0 or self.reason == EXPIRED_TOKEN
        return None if again else PushOutcome.FAILED


def _reason(response: httpx.Response) -> str:
    try:
        reason = orjson.loads(response.content)["reason"]
    except (ValueError, TypeError, KeyError):
        return f"Status{response.status_code}"
    return str(reason)[:64]


def _retry_after(response: httpx.Response, now: datetime) -> float:
    """Seconds, given as such or as a date."""
    text = response.headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (moment.astimezone(UTC) - now).total_seconds())


# What these log while we send shows tokens: URLs, and headers as they are encoded.
_TALKATIVE = ("httpx", "httpcore.http2", "httpcore.connection", "hpack.hpack", "hpack.table")
_sending: ContextVar[bool] = ContextVar("sending", default=False)


@contextmanager
def _quiet() -> Iterator[None]:
    before = _sending.set(True)
    try:
        yield
    finally:
        _sending.reset(before)


def _is_not_ours(_: logging.LogRecord) -> bool:
    return not _sending.get()


def _keep_tokens_out_of_logs() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_ours)
