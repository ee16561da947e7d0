"""The measured gateway with tokens that have a verified email, which identifies users of the photo library."""

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
    """Run a gateway like `benchmarks.server.serving`. `sign` takes emails, and files are in a temporary folder."""
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
