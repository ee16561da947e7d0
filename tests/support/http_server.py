"""An ASGI application behind a real server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from server import asgi
from tests.support.until import until


def on_any_server(app: ASGIApp) -> ASGIApp:
    """Return an application that other servers than the gateway's own may call."""

    async def adapted(scope: Scope, receive: Receive, send: Send) -> None:
        if asgi.is_from_other_server(scope):
            await asgi.serve(app, scope, receive, send)
        else:
            await app(scope, receive, send)

    return adapted


@asynccontextmanager
async def served(app: Any, state: Mapping[str, Any] | None = None, **how: Any) -> AsyncIterator[str]:
    """Serve on a free port. Yield the URL of GraphQL. Check that no connection and no task is left at the end.

    `state` is the lifespan state that the application would set.
    """
    before: set[asyncio.Task[Any] | None] = {*asyncio.all_tasks()}
    config = uvicorn.Config(on_any_server(app), **{"port": 0, "log_config": None, "lifespan": "off", **how})
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state.update(state or {})
    await server.startup()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/graphql"
    for connection in tuple(server.server_state.connections):
        connection.shutdown()
    server.servers[0].close()
    before.add(asyncio.current_task())
    await until(lambda: not server.server_state.connections and asyncio.all_tasks() <= before)
