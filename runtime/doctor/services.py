"""Checks of the services that the settings name: Redis, the key set of tokens, and OpenSearch."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from datastore.database import StoreOptions
from datastore.errors import DomainError, Unauthenticated
from datastore.redis.client import REDIS_AWAY, redis_client
from datastore.search.factory import search_index
from runtime.doctor.findings import Finding, Level
from server.security.jwks import KeySet
from server.settings import Settings

SECONDS = 5.0
# The oldest Redis with the commands of the bus.
LEAST_REDIS = (6, 2)
NO_KEY = "doctor"


async def check_redis(settings: Settings) -> AsyncIterator[Finding]:
    """Check that each Redis answers, and its version."""
    for name, url in {"GATEWAY_REDIS_URL": settings.capacity.redis_url, "GATEWAY_BUS": settings.bus}.items():
        if url is not None:
            yield await _redis(name, url)


async def _redis(name: str, url: str) -> Finding:
    place = _place(url)
    client: Any = redis_client(url, connections=1, seconds=SECONDS, read_seconds=SECONDS)
    try:
        async with asyncio.timeout(SECONDS):
            version = str((await client.info("server"))["redis_version"])
    except (TimeoutError, *REDIS_AWAY) as problem:
        reason = str(problem) or type(problem).__name__
        return Finding(
            Level.ERROR, "Redis", f"{name}: {place} does not answer ({reason}): start it, or correct the URL."
        )
    finally:
        await client.aclose()
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_REDIS:
        return Finding(Level.ERROR, "Redis", f"{name}: {place} has version {version}: 6.2 or newer is needed.")
    return Finding(Level.OK, "Redis", f"{name}: {place} answers, version {version}.")


async def check_key_set(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the key set, with which tokens are verified, can be fetched and has a usable key."""
    if settings.jwks_url is None:
        return
    import aiohttp  # imported late: many gateways fetch no keys

    async with aiohttp.ClientSession() as session:
        try:
            await KeySet(settings.jwks_url, lambda: session, time.time).find(NO_KEY)
        except Unauthenticated:
            pass  # there are keys, and none of this name
        except DomainError:
            text = f"GATEWAY_JWKS_URL: {settings.jwks_url} has no usable keys, as the log says: correct the URL."
            yield Finding(Level.ERROR, "Tokens", text)
            return
    yield Finding(Level.OK, "Tokens", f"GATEWAY_JWKS_URL: {settings.jwks_url} has keys.")


async def check_search(store: StoreOptions, settings: Settings) -> AsyncIterator[Finding]:
    """Check that OpenSearch answers. Raises `DomainError` if it does not."""
    if settings.search_url is None:
        if store.in_aws:
            yield Finding(Level.WARNING, "Search", "There is no search on AWS without GATEWAY_SEARCH_URL.")
        return
    index = search_index(store, settings.search_url)
    try:
        status = await index.status()
    finally:
        await index.aclose()
    place = _place(settings.search_url)
    if status.built_at is None:
        text = f"GATEWAY_SEARCH_URL: {place} has no index: start `pipeline feed`, or run `search rebuild`."
        yield Finding(Level.WARNING, "Search", text)
    else:
        yield Finding(Level.OK, "Search", f"GATEWAY_SEARCH_URL: {place} has {sum(status.entries.values()):,} entries.")


def _place(url: str) -> str:
    """Return the host and port of a URL, or the path of its socket, without user and password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
