"""One attempt of a request, signed: the store's endpoints, its credentials, the signature and the connections."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache

from datastore.dynamodb.http1 import DeadlineExceeded, HttpLimits, HttpOrigin, HttpResponse, Pool, StartedRequest
from datastore.dynamodb.retry.classify import SignatureRefused
from datastore.dynamodb.sigv4 import CredentialSource, FrozenCredentials, Signer

MAX_ORIGINS = 16
STREAM_OPERATIONS = {"DescribeStream", "GetShardIterator", "GetRecords", "ListStreams"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URLs of a store. They are read at every attempt, because the embedded engine may move to another port."""

    tables: Callable[[], str]
    streams: Callable[[], str]
    region: str


class SignedTransport:
    """The sending of signed requests to a store. It is opened before the first request and closed after the last."""

    def __init__(self, endpoint: Endpoint, credentials: CredentialSource, limits: HttpLimits) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._limits = limits
        self._signer = Signer(endpoint.region)
        # Not shared with later clients: the environment may then name another proxy for the same URL.
        self._origins: dict[str, HttpOrigin] = {}
        self._pool: Pool | None = None
        self._clock: Callable[[], float] = time.monotonic

    def open(self) -> None:
        self._pool = Pool(self._limits)
        self._clock = asyncio.get_running_loop().time

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    @property
    def closed(self) -> bool:
        return self._pool is not None and self._pool.closed

    def send(self, operation: str, body: bytes, deadline: float, fresh: bool = False) -> Awaitable[HttpResponse]:
        """Send a request once. With `fresh` no idle connection is used. `deadline` is in the event loop's time.

        Raises the errors of `Pool.send`, and `DeadlineExceeded` also while waiting for credentials.
        """
        credentials = self._credentials.cached
        if credentials is None:
            return self._send_with_new_credentials(operation, body, deadline, fresh)
        origin, head = self._signed(credentials, operation, body)
        assert self._pool is not None, "The client is used outside its `async with`."
        return self._pool.send(origin, head, body, deadline, fresh=fresh)

    def start(self, operation: str, body: bytes, deadline: float) -> StartedRequest | None:
        """Send a request on an idle connection. Return None if that is not possible without waiting."""
        credentials = self._credentials.cached
        if credentials is None or self._pool is None or not self._pool.has_idle:
            return None
        return self._pool.start(*self._signed(credentials, operation, body), body, deadline)

    def _signed(self, credentials: FrozenCredentials, operation: str, body: bytes) -> tuple[HttpOrigin, bytes]:
        """Return the origin and the head of a request."""
        url = self._endpoint.streams() if operation in STREAM_OPERATIONS else self._endpoint.tables()
        origin = self._origins[url] if url in self._origins else self._new_origin(url)
        return origin, self._signer.request_head(credentials, origin.authority, _target(operation), body)

    def _new_origin(self, url: str) -> HttpOrigin:
        self._origins[url] = origin = HttpOrigin.of(url)
        while len(self._origins) > MAX_ORIGINS:  # the embedded engine has moved often
            del self._origins[next(iter(self._origins))]
        return origin

    async def correct_signature(self, refused: SignatureRefused, deadline: float) -> bool:
        """Correct the clock or the credentials. Return whether a request would now be signed differently."""
        if self._signer.correct_clock(refused.date):
            return True
        try:
            renewed = await self._credentials.renew(deadline - self._clock())
        except TimeoutError as problem:
            raise DeadlineExceeded(sent=False) from problem
        return renewed or self._signer.was_corrected_recently

    async def _send_with_new_credentials(
        self, operation: str, body: bytes, deadline: float, fresh: bool
    ) -> HttpResponse:
        """Wait for credentials, and send the request once."""
        try:
            await self._credentials.current(deadline - self._clock())
        except TimeoutError as problem:
            raise DeadlineExceeded(sent=False) from problem
        return await self.send(operation, body, deadline, fresh)


@cache
def _target(operation: str) -> str:
    return f"{'DynamoDBStreams' if operation in STREAM_OPERATIONS else 'DynamoDB'}_20120810.{operation}"
