"""The servers that are compared with the gateway: see benchmarks/peers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from benchmarks.contenders import SECRET, Contender, RunningServer
from benchmarks.processes import free_port, launched, listens
from benchmarks.server import SECRET_VARIABLE

FOLDER = Path(__file__).resolve().parent / "peers"
# V8 compiles code that has run often: after a thousand requests a server still takes twice its final CPU.
NODE_WARM_UP = 8
NODE_VARIABLES = {"NODE_ENV": "production", "NODE_NO_WARNINGS": "1"}
INSTALL = ("npm", "ci", "--prefix", str(FOLDER), "--no-fund", "--no-audit", "--loglevel=error")


class PeersMissing(Exception):
    """The servers in Node cannot be installed; the message says why."""


@asynccontextmanager
async def _serving(command: Sequence[str], *options: str, store_url: str) -> AsyncIterator[RunningServer]:
    """Run a server until the context exits. Its command gets the port, the store's URL and the options."""
    port = free_port()
    arguments = [*command, str(port), store_url, *options]
    async with launched(arguments, partial(listens, port), **{SECRET_VARIABLE: SECRET}, **NODE_VARIABLES) as process:
        yield RunningServer(f"http://127.0.0.1:{port}", process.pid, {})


def _contender(name: str, command: Sequence[str], *options: str, warm_up: int = 1) -> Contender:
    def start(store_url: str) -> AbstractAsyncContextManager[RunningServer]:
        return _serving(command, *options, store_url=store_url)

    return Contender(name, start, warm_up)


def _node(name: str, server: str, client: str) -> Contender:
    return _contender(name, ("node", str(FOLDER / server)), client, warm_up=NODE_WARM_UP)


def _python(name: str, module: str, *options: str) -> Contender:
    return _contender(name, (sys.executable, "-m", f"benchmarks.peers.{module}"), *options)


APOLLO = _node("Apollo Server + AWS SDK", "apollo.js", "sdk")
YOGA = _node("Yoga + graphql-jit + AWS SDK", "yoga.js", "sdk")
YOGA_OWN = _node("Yoga + graphql-jit + own client", "yoga.js", "own")
FLOOR = _python("by hand, own client", "floor", "protocol")
PEERS = (
    APOLLO,
    YOGA,
    _node("Mercurius (jit) + AWS SDK", "mercurius.js", "sdk"),
    YOGA_OWN,
    _python("Strawberry + boto3 in threads", "strawberry_server", "boto3"),
    _python("Strawberry, tuned + aiobotocore", "strawberry_server", "aiobotocore", "tuned"),
    _python("Strawberry, tuned + own client", "strawberry_server", "own", "tuned"),
    _python("by hand, aiohttp client", "floor", "aiohttp"),
    FLOOR,
)


async def install() -> None:
    """Install the servers in Node from their lock file, unless they are installed. Raises `PeersMissing`."""
    installed, lock = FOLDER / "node_modules" / ".package-lock.json", FOLDER / "package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    try:
        process = await asyncio.create_subprocess_exec(*INSTALL, stdout=asyncio.subprocess.DEVNULL)
    except OSError as problem:
        raise PeersMissing(f"npm is needed to install the servers in {FOLDER}: {problem}") from None
    if await process.wait():
        raise PeersMissing(f"the servers in {FOLDER} could not be installed")
