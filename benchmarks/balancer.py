"""A balancer as small as can be: TCP to those that are ready, in turn, however they are asked."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

import aiohttp

LOOK_EVERY_SECONDS = 0.1


class Balancer:
    """Connections go to the `targets`, URLs, whose `/readyz` says 200; those that are made stay where they are.

    Where none does they go to any that takes them, as balancers do: it may be who asks that is slow.
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
        self._looking = asyncio.create_task(self._look())
        await self.seen(len(self.targets))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._looking, *self._tasks, return_exceptions=True)

    async def seen(self, ready: int) -> None:
        """Returns when it knows so many to be ready."""
        async with asyncio.timeout(30), self._change:
            await self._change.wait_for(lambda: len(self.ready) == ready)

    async def _look(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
            while True:
                found = await asyncio.gather(*[_is_ready(session, target) for target in self.targets])
                async with self._change:
                    self.ready = [target for target, ready in zip(self.targets, found, strict=True) if ready]
                    self._change.notify_all()
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # As a task of our own: the server would tell of its cancellation as of a fault.
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._turn += 1
            targets = self.ready or self.targets
            turn = self._turn % len(targets)
            for target in (*targets[turn:], *targets[:turn]):
                url = urlsplit(target)
                try:
                    there, to_there = await asyncio.open_connection(url.hostname, url.port)
                except OSError:
                    continue
                await asyncio.gather(_pass_on(reader, to_there), _pass_on(there, writer))
                return
        finally:
            writer.close()


async def _is_ready(session: aiohttp.ClientSession, target: str) -> bool:
    try:
        async with session.get(f"{target}/readyz") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()
