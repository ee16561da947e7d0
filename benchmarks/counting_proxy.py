"""A proxy in front of the store that counts the calls of contenders while they are checked."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

HOP_BY_HOP = {"Transfer-Encoding", "Content-Length", "Connection", "Keep-Alive"}
# Servers call this service on their own, independent of requests.
STREAMS_SERVICE = "DynamoDBStreams"


class CountingProxy:
    """Forwards requests unchanged. `calls` counts them by operation since `begin`."""

    def __init__(self, store_url: str, session: aiohttp.ClientSession) -> None:
        self._store_url = store_url
        self._session = session
        self.url = ""
        self.calls: Counter[str] = Counter()

    def begin(self) -> None:
        self.calls.clear()

    async def forward(self, request: web.Request) -> web.Response:
        service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
        if operation and not service.startswith(STREAMS_SERVICE):
            self.calls[operation] += 1
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP]
        body = await request.read()
        url = self._store_url + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name not in HOP_BY_HOP]
            return web.Response(status=answer.status, headers=dict(kept), body=await answer.read())


@asynccontextmanager
async def counting(store_url: str) -> AsyncIterator[CountingProxy]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        proxy = CountingProxy(store_url, session)
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", proxy.forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        proxy.url = f"http://{host}:{port}"
        try:
            yield proxy
        finally:
            await runner.cleanup()
