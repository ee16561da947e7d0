"""A client of several gateways that repeats lost requests at another gateway with the same idempotency key."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from datastore.database import Database
from datastore.model.identity import Role
from datastore.session.metering import Deadline
from datastore.session.store import Store
from server.security.jwt import Tokens, TokenSettings
from tests.support.process_clock import ProcessClock
from tests.support.served import NOON, SECRET, Answer, Clock, Served

PASSING = {"THROTTLED", "UNAVAILABLE", "TIMEOUT"}
# The client has no response: the request is repeated with the same key.
LOST = {"message": "lost", "extensions": {"code": "UNAVAILABLE", "mayHaveBeenApplied": True}}
HEADERS_LAST_SECONDS = 40 * 3600.0


class BrokenAnswer(Exception):
    """A response that no gateway may send."""


@dataclass
class Received:
    """The part of a response that the load reads. `code` is the status, or the name of the exception without one."""

    body: dict[str, Any]
    code: str

    async def json(self, content_type: str | None = None) -> dict[str, Any]:
        return self.body


class Spread:
    """Posts to the gateways in turn. A lost connection counts as a response.

    Anything else that is not a GraphQL response raises `BrokenAnswer`. With `per_second` requests are evenly spaced, at
    most this number per second.
    """

    per_second: float | None = None
    _next = 0.0

    def __init__(self, http: aiohttp.ClientSession, urls: list[str], seconds: float) -> None:
        self._http = http
        self.urls = urls
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._turn = 0
        self.asked = 0
        self.lost = 0

    @asynccontextmanager
    async def post(self, _: str, *, json: Any, headers: Mapping[str, str]) -> AsyncIterator[Received]:
        if self.per_second is not None:
            self._next = max(self._next + 1 / self.per_second, time.monotonic() - 1)
            await asyncio.sleep(self._next - time.monotonic())
        yield await self.send(json, headers)

    async def send(self, body: Any, headers: Mapping[str, str]) -> Received:
        """Post to the next gateway. The response, or `LOST`."""
        self._turn += 1
        url = self.urls[self._turn % len(self.urls)]
        self.asked += 1
        try:
            async with self._http.post(f"{url}/graphql", json=body, headers=headers, timeout=self._timeout) as response:
                return Received(decode_answer(response.status, await response.read()), str(response.status))
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as problem:
            self.lost += 1
            await asyncio.sleep(0.02)
            return Received({"errors": [LOST]}, type(problem).__name__)


def decode_answer(status: int, content: bytes) -> dict[str, Any]:
    """Return the decoded body of a GraphQL response: with status 200, or with
    another status and temporary errors only.
    """
    try:
        body: dict[str, Any] = json.loads(content)
        codes = {error["extensions"]["code"] for error in body.get("errors", ())}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BrokenAnswer(status, content[:500]) from None
    if not ("data" in body or codes) or (status != 200 and not (codes and codes <= PASSING)):
        raise BrokenAnswer(status, body)
    return body


def leaves_open(errors: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a gateway reported that a mutation may have been applied. It repeats this response for the key."""
    return any(
        error["extensions"].get("mayHaveBeenApplied") and error["extensions"].get("retryable") is False
        for error in errors
    )


class Remote(Served):
    """Gateways in other processes with the interface of `Served`. `store` uses their tables."""

    def __init__(self, http: aiohttp.ClientSession, urls: list[str], clock: ProcessClock, retry_seconds: float) -> None:
        self.url = ""
        self.http: Any = Spread(http, urls, retry_seconds)
        self.clock: Any = clock
        self.database: Database | None = None
        self.rng = random.Random(11)
        self.asked_again = 0
        self._tokens = Tokens(TokenSettings(secret=SECRET), clock=lambda: clock().timestamp())

    def token(self, user: str = "ada", role: Role = Role.USER, email: str | None = None) -> str:
        return self._tokens.issue(user, role, email, HEADERS_LAST_SECONDS)

    def store(self) -> Store:
        assert self.database is not None
        return Store(
            self.database.client,
            prefix=self.database.prefix,
            deadline=Deadline(50),
            token=lambda: uuid.uuid4().hex,
            now=lambda: NOON,
        )

    async def ask(
        self,
        query: str,
        variables: dict[str, Any] | None = None,
        *,
        user: str | None = None,
        role: Role = Role.USER,
        email: str | None = None,
    ) -> Answer:
        """Send an operation, mutations with an idempotency key, and repeat it until the response is final.

        The mutations of the load have ids of the client, or end in the same state however often they are executed. A
        stored response that leaves open whether the mutation was applied is therefore followed by another key.
        """
        headers = self.headers(user, role, email)
        is_open = True
        while True:
            if is_open and query.startswith("mutation"):
                headers["Idempotency-Key"] = str(uuid.UUID(int=self.rng.getrandbits(128)))
            async with self.http.post("", json={"query": query, "variables": variables}, headers=headers) as response:
                answer = await response.json()
            errors = answer.get("errors")
            if not errors or not {error["extensions"]["code"] for error in errors} & PASSING:
                return Answer(answer.get("data"), errors, 200)
            self.asked_again += 1
            is_open = leaves_open(errors)
            await asyncio.sleep(self.rng.uniform(0.02, 0.2))


class Passing(Clock):
    """A clock that runs by itself, for a workload that would set it."""

    def __init__(self, clock: ProcessClock) -> None:
        self._clock = clock

    @property
    def now(self) -> Any:
        return self._clock()

    @now.setter
    def now(self, _: Any) -> None:
        """Ignore the time that the workload sets."""
