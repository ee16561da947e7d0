"""Servers of subscriptions: the gateway and others, each in a separate process that reads the stream of one table."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.processes import free_port, launched, listens
from benchmarks.rivals import FOLDER, NODE_VARIABLES
from benchmarks.server import Server, serving
from datastore.model.access_patterns import Table

OURS = "this gateway"
GRAPHQL_WS, STRAWBERRY = "graphql-ws", "Strawberry"
_NODE = ("node", str(FOLDER / "graphql_ws.js"))
_BARE = (sys.executable, "-m", "benchmarks.peers.bare_sockets")
# Servers that execute for each subscriber, and servers of bare sockets without GraphQL.
OTHERS = {
    GRAPHQL_WS: _NODE,
    f"{GRAPHQL_WS}, graphql-jit": (*_NODE, "--jit"),
    STRAWBERRY: (sys.executable, "-m", "benchmarks.peers.strawberry_sockets"),
    "bare sockets: uvicorn": (*_BARE, "--variant", "asgi"),
    "bare sockets: asyncio": (*_BARE, "--variant", "raw"),
}


@dataclass(frozen=True, slots=True)
class SocketServer:
    """A listening server."""

    port: int
    pid: int
    #: The payload of connection_init.
    payload: dict[str, str]
    #: The gateway; None for other servers.
    gateway: Server | None = None


@asynccontextmanager
async def listening(name: str, store: str, table: Table, interval: float, *options: str) -> AsyncIterator[SocketServer]:
    """Run `OURS` or one of `OTHERS` with a poll interval of the stream in seconds, until the context exits.

    `options` are for the gateway's command line.
    """
    if name == OURS:
        async with serving(store, poll_interval=interval, options=options) as server:
            port = int(server.url.rpartition(":")[2])
            yield SocketServer(port, server.pid, {"Authorization": f"Bearer {server.token}"}, server)
        return
    port = free_port()
    arguments = ("--store", store, "--port", str(port), "--table", table.name, "--interval", str(interval))
    async with launched([*OTHERS[name], *arguments], partial(listens, port), **NODE_VARIABLES) as process:
        yield SocketServer(port, process.pid, {})
