"""uvicorn as we run it: on uvloop, on sockets that listen already, stopped by signals that are ours."""

import asyncio
import errno
import gc
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import uvicorn

from edge.application import Behind, application
from edge.http.protocol import UVICORN_OPTIONS

GRACEFUL_SECONDS = 10
BACKLOG = 2048
UNKNOWN_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# What is made for a request seldom holds cycles, and a large answer is ten thousand objects at once. With 20,000 such
# an answer took a tenth more CPU than without any collection, with these a twentieth; see docs/benchmarks.md.
GC_THRESHOLDS = (50_000, 20, 10)


async def serve_until_signal(
    behind: Behind, sockets: list[socket.socket], on_started: Callable[[], Awaitable[None]]
) -> None:
    """Serve until SIGINT or SIGTERM; one that comes early also ends a start that takes its time."""
    server = _Server(behind, on_started)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop(number: int, frame: object) -> None:
        server.handle_exit(signal.Signals(number), None)
        if not server.started:
            loop.call_soon_threadsafe(task.cancel)

    with _on_signals(stop), suppress(asyncio.CancelledError):
        async with behind.running():
            await server.serve(sockets)


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to `serve_until_signal`: it would die of them after a clean stop."""

    def __init__(self, behind: Behind, on_started: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                application(behind),
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=GRACEFUL_SECONDS,
                **UVICORN_OPTIONS,
            )
        )
        self._behind = behind
        self._on_started = on_started

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state.update(self._behind.edge.admission.connections.told())
        await super().startup(sockets)
        settle_garbage_collector()
        await self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Subscribers are told before their connections go."""
        await asyncio.gather(self._behind.edge.socket.close(), self._behind.edge.http.streams.close())
        await super().shutdown(sockets)


@contextmanager
def _on_signals(act: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.signal(number, act) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def settle_garbage_collector() -> None:
    """What was made up to here stays: it is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen, before anything else is begun: a taken port is told at once. Raises `OSError`."""
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            # `localhost` has an address in each family, and not every machine has both families.
            with _passing_over(UNKNOWN_ADDRESS if sockets else ()):
                sockets.append(_listener(family, address))
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = dict.fromkeys((family, address) for family, *_, address in found)
    return sorted(addresses, key=lambda pair: pair[0] != socket.AF_INET)


@contextmanager
def _passing_over(codes: Collection[int]) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno not in codes:
            raise


def _listener(family: socket.AddressFamily, address: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let others take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
