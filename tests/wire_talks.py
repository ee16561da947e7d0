"""The wire client and a server that follows a script, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from botocore.credentials import Credentials
from wire_server import Script, Server, Talk, answer, serving

from datastore.backoff import Backoff
from datastore.client import Client, Endpoint
from datastore.signing import CredentialSource
from datastore.wire import Limits

ONCE = Backoff(tries=1)
QUICK = Backoff(first=0.001, most=0.004, tries=4)
# Whoever has to wait for this, waits in vain.
NEVER = Backoff(first=10**6, most=10**6)
LARGE = {"TableName": "t", "number": 1, "text": "x" * 2_000_000}


def client_at(url: str, *, backoff: Backoff = QUICK, limits: Limits = Limits()) -> Client:  # noqa: B008 - frozen
    credentials = CredentialSource(Credentials("local", "local"))
    return Client(Endpoint(lambda: url, lambda: url, "local"), credentials, backoff=backoff, limits=limits)


@asynccontextmanager
async def talking(
    script: Script,
    *,
    backoff: Backoff = QUICK,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> AsyncIterator[tuple[Client, Server]]:
    async with serving(script) as server, client_at(server.url, backoff=backoff, limits=limits) as client:
        yield client, server


async def ask(client: Client, number: int = 0, operation: str = "GetItem", **options: Any) -> Any:
    return (await client.call(operation, {"TableName": "t", "number": number}, **options))["number"]


async def one_answer(talk: Talk) -> None:
    """The next request is read, and its connection closed instead of an answer."""
    await talk.say(answer(await talk.asked()))
    await talk.asked()
