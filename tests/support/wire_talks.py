"""The wire client and a server that follows a script, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from botocore.credentials import Credentials

from datastore.dynamodb.client import Client, Endpoint
from datastore.dynamodb.http1 import HttpLimits
from datastore.dynamodb.http1.connection import HttpConnection
from datastore.dynamodb.http1.types import HttpResponse
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.dynamodb.sigv4 import CredentialSource
from tests.support.wire_server import Script, Server, ServerTalk, serve_script, whole_answer

ONCE = Backoff(attempts=1)
QUICK = Backoff(initial=0.001, maximum=0.004, attempts=4)
# Whoever has to wait for this, waits in vain.
NEVER = Backoff(initial=10**6, maximum=10**6)
# A busy machine takes longer than in production to open a connection.
PATIENT = HttpLimits(connect_seconds=50, silence_seconds=50)
# Calls wait as long as it takes for the probe after a failure.
PATIENT_BREAKER = BreakerConfig(wait_seconds=50, probe_timeout=50, slow_seconds=50)
LARGE = {"TableName": "t", "number": 1, "text": "x" * 2_000_000}


def client_at(url: str, *, backoff: Backoff = QUICK, limits: HttpLimits = PATIENT) -> Client:
    credentials = CredentialSource(Credentials("local", "local"))
    endpoint = Endpoint(lambda: url, lambda: url, "local")
    return Client(endpoint, credentials, backoff=backoff, limits=limits, breaker_config=PATIENT_BREAKER)


def change_limits(limits: HttpLimits, **seconds: float) -> None:
    """Change limits that are in use, from the next request on."""
    for name, value in seconds.items():
        object.__setattr__(limits, name, value)


@asynccontextmanager
async def talking(
    script: Script,
    *,
    backoff: Backoff = QUICK,
    limits: HttpLimits = PATIENT,
) -> AsyncIterator[tuple[Client, Server]]:
    async with serve_script(script) as server, client_at(server.url, backoff=backoff, limits=limits) as client:
        yield client, server


class Opened(HttpConnection):
    """Of those that were asked over, `most` were open at once: counted here, for a server hears later of an end."""

    there: ClassVar[set[HttpConnection]]
    most: ClassVar[int]

    def send(self, head: bytes, body: bytes, deadline: float) -> asyncio.Future[HttpResponse]:
        self.there.difference_update([one for one in self.there if one.closing])
        self.there.add(self)
        type(self).most = max(self.most, len(self.there))
        return super().send(head, body, deadline)


def count_connections(monkeypatch: pytest.MonkeyPatch) -> type[Opened]:
    """Have them counted from now on."""
    counted = type("Counted", (Opened,), {"there": set(), "most": 0})
    monkeypatch.setattr("datastore.dynamodb.http1.pool.HttpConnection", counted)
    return counted


async def call_numbered(client: Client, number: int = 0, operation: str = "GetItem", **options: Any) -> Any:
    return (await client.call(operation, {"TableName": "t", "number": number}, **options))["number"]


async def one_answer(talk: ServerTalk) -> None:
    """The next request is read, and its connection closed instead of an answer."""
    await talk.say(whole_answer(await talk.asked()))
    await talk.asked()
