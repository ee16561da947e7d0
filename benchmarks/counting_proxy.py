"""Stands before a store while contenders are checked, and counts what they ask of it."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

NOT_HANDED_ON = {"Transfer-Encoding", "Content-Length", "Connection", "Keep-Alive"}
# What a server asks for of its own accord, beside what requests are answered from.
OF_STREAMS = "DynamoDBStreams"


class CountingProxy:
    """Hands requests on as they are. `calls` counts them by operation since `begin`."""

    def __init__(self, store_url: str, session: aiohttp.ClientSession) -> None:
        self._store_url = store_url
        self._session = session
        self.url = ""
        self.calls: Counter[str] = Counter()

    def begin(self) -> None:
        self.calls.clear()

    async def hand_on(self, request: web.Request) -> web.Response:
        service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
        if operation and not service.startswith(OF_STREAMS):
            self.calls[operation] += 1
        headers = [(name, value) for name, value in request.headers.items() if name not in NOT_HANDED_ON]
        body = await request.read()
        url = self._store_url + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name not in NOT_HANDED_ON]
            return web.Response(status=answer.status, headers=dict(kept), body=await answer.read())


@asynccontextmanager
async def counting(store_url: str) -> AsyncIterator[CountingProxy]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        proxy = CountingProxy(store_url, session)
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", proxy.hand_on)
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
