"""A client of several gateways that repeats lost requests at another gateway with the same idempotency key."""

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Mapping
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
LOST = {"message": "lost", "extensions": {"code": "UNAVAILABLE", "mayHaveBeenApplied": True}}
HEADERS_LAST_SECONDS = 40 * 3600.0


class BrokenAnswer(Exception):
    """A response that no gateway may send."""


@dataclass
class Received:
    """The part of a response that the load reads."""

    body: dict[str, Any]

    async def json(self, content_type: str | None = None) -> dict[str, Any]:
        return self.body


class Spread:
    """Posts to the gateways in turn. A lost connection counts as a response.

    Anything else that is not a GraphQL response raises `BrokenAnswer`.
    """

    def __init__(self, http: aiohttp.ClientSession, urls: list[str], seconds: float) -> None:
        self._http = http
        self.urls = urls
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._turn = 0
        self.asked = 0
        self.lost = 0

    @asynccontextmanager
    async def post(self, _: str, *, json: Any, headers: Mapping[str, str]) -> AsyncIterator[Received]:
        self._turn += 1
        url = self.urls[self._turn % len(self.urls)]
        self.asked += 1
        try:
            async with self._http.post(f"{url}/graphql", json=json, headers=headers, timeout=self._timeout) as response:
                body = decode_answer(response.status, await response.read())
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError):
            self.lost += 1
            await asyncio.sleep(0.02)
            body = {"errors": [LOST]}
        yield Received(body)


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
        """Send an operation, mutations with an idempotency key, and repeat it until the response is final."""
        headers = self.headers(user, role, email)
        if query.startswith("mutation"):
            headers["Idempotency-Key"] = str(uuid.UUID(int=self.rng.getrandbits(128)))
        while True:
            async with self.http.post("", json={"query": query, "variables": variables}, headers=headers) as response:
                answer = await response.json()
            errors = answer.get("errors")
            if not errors or not {error["extensions"]["code"] for error in errors} & PASSING:
                return Answer(answer.get("data"), errors, 200)
            self.asked_again += 1
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
