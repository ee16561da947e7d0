"""A minimal TCP load balancer: round robin over the targets that are ready."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

import aiohttp

PROBE_SECONDS = 0.1


class Balancer:
    """Distributes new connections over the `targets` (URLs) whose `/readyz` returns 200.

    Established connections stay with their target. If no target is ready, connections go to any target that accepts
    them, as with other balancers: the cause may be a slow probe.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = list(targets)
        self.ready: list[str] = []
        self._turn = 0
        self._change = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._probing = asyncio.create_task(self._probe())
        await self.wait_for_ready(len(self.targets))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._probing.cancel()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._probing, *self._tasks, return_exceptions=True)

    async def wait_for_ready(self, ready: int) -> None:
        """Wait until `ready` targets are ready."""
        async with asyncio.timeout(30), self._change:
            await self._change.wait_for(lambda: len(self.ready) == ready)

    async def _probe(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
            while True:
                found = await asyncio.gather(*[_is_ready(session, target) for target in self.targets])
                async with self._change:
                    self.ready = [target for target, ready in zip(self.targets, found, strict=True) if ready]
                    self._change.notify_all()
                await asyncio.sleep(PROBE_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A separate task: the server would log its cancellation as an error.
        task = asyncio.create_task(self._proxy(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._turn += 1
            targets = self.ready or self.targets
            turn = self._turn % len(targets)
            for target in (*targets[turn:], *targets[:turn]):
                url = urlsplit(target)
                try:
                    upstream, to_upstream = await asyncio.open_connection(url.hostname, url.port)
                except OSError:
                    continue
                await asyncio.gather(_copy(reader, to_upstream), _copy(upstream, writer))
                return
        finally:
            writer.close()


async def _is_ready(session: aiohttp.ClientSession, target: str) -> bool:
    try:
        async with session.get(f"{target}/readyz") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()
