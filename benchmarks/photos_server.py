"""The measured gateway for those whose tokens have a verified email, by which the photo library knows its users."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from benchmarks.data import NOON
from benchmarks.server import SECRET_VARIABLE, Server, free_port, started, stop
from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings


@asynccontextmanager
async def serving_photos(store_url: str) -> AsyncIterator[Server]:
    """As `benchmarks.server.serving`, but `sign` takes emails. Files are in a folder that goes when this ends."""
    port, secret = free_port(), secrets.token_urlsafe(48)
    tokens = Tokens(TokenSettings(secret=secret), clock=NOON.timestamp)

    def sign(email: str) -> str:
        return tokens.issue(email.partition("@")[0], Role.USER, email)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.server", "--store", store_url, "--port", str(port)),
        env=os.environ | {SECRET_VARIABLE: secret},
    )
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await started(http, f"http://127.0.0.1:{port}", process)
            yield Server(f"http://127.0.0.1:{port}", process.pid, "", http, sign)
    finally:
        await stop(process)
