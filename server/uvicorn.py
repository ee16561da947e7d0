"""uvicorn as we run it: on uvloop, on sockets that listen already, stopped by signals that are ours."""

import asyncio
import errno
import gc
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import uvicorn

from server.app import Behind, application
from server.http.protocol import UVICORN_OPTIONS
from server.observability.liveness import end_process
from server.shutdown import ANSWER_SECONDS, EXIT_SECONDS, LAST_ANSWER_SECONDS, WORKER_SECONDS

BACKLOG = 2048
STOPPING = (signal.SIGINT, signal.SIGTERM)
HANG_UP = () if sys.platform == "win32" else (signal.SIGHUP,)
UNKNOWN_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# What is made for a request seldom holds cycles, and a large answer is ten thousand objects at once. With 20,000 such
# an answer took a tenth more CPU than without any collection, with these a twentieth; see docs/benchmarks.md.
GC_THRESHOLDS = (50_000, 20, 10)


async def serve_until_signal(
    behind: Behind,
    sockets: list[socket.socket],
    on_started: Callable[[], Awaitable[None]],
    chance: random.Random,
) -> None:
    """Serve until SIGINT or SIGTERM, or the terminal is closed; what comes early also ends a start that takes its time.

    Then leave in good order, within `EXIT_SECONDS`; a second signal ends the process as it is, but for SIGHUP: whose
    terminal is closed is often sent two. `chance` draws the moments at which clients are to come again.
    """
    server = _Server(behind, on_started, chance)

    def stop(number: int, frame: object) -> None:
        if not server.should_exit:
            end_process_in()
            server.leave()
        elif number in STOPPING:
            os._exit(128 + number)

    with _on_signals(stop):
        await server.run_to_the_end(sockets)


async def serve_until_told(
    behind: Behind,
    sockets: list[socket.socket],
    on_started: Callable[[], Awaitable[None]],
    chance: random.Random,
    line: socket.socket,
) -> None:
    """The same, as a worker: until something is told on the line, or it ends. SIGTERM counts, too.

    A terminal's Ctrl-C goes to all processes at once: the supervisor is who answers it.
    """
    server = _Server(behind, on_started, chance)

    def leave() -> None:
        if not server.should_exit:
            end_process_in(WORKER_SECONDS)
            server.leave()

    with _told_on(line, leave):
        await server.run_to_the_end(sockets)


async def work_until_told(behind: Behind, on_started: Callable[[], Awaitable[None]], line: socket.socket) -> None:
    """The same for a worker that serves nobody."""
    loop, task, is_leaving = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None

    def leave() -> None:
        nonlocal is_leaving
        if not is_leaving:
            is_leaving = True
            end_process_in(WORKER_SECONDS)
            loop.call_soon_threadsafe(task.cancel)

    with _told_on(line, leave), suppress(asyncio.CancelledError):
        async with behind.running():
            await on_started()
            await asyncio.Event().wait()


@contextmanager
def _told_on(line: socket.socket, act: Callable[[], None]) -> Iterator[None]:
    """Have this done when the line ends, or SIGTERM comes; a terminal's signals are another's."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(line)
        act()

    loop.add_reader(line, end)
    with _on_signals(lambda number, _: act() if number == signal.SIGTERM else None):
        yield


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to `serve_until_signal`: it would die of them after a clean stop."""

    def __init__(self, behind: Behind, on_started: Callable[[], Awaitable[None]], chance: random.Random) -> None:
        super().__init__(
            uvicorn.Config(
                application(behind),
                lifespan="off",
                log_level="warning",
                access_log=False,
                **UVICORN_OPTIONS,
            )
        )
        self._behind = behind
        self._on_started = on_started
        self._chance = chance
        self._leaving_since = 0.0

        self._task: asyncio.Task[Any] | None = None

    async def run_to_the_end(self, sockets: list[socket.socket]) -> None:
        """With all that is behind it."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        with suppress(asyncio.CancelledError):
            async with self._behind.running():
                await self.serve(sockets)

    def leave(self) -> None:
        """From now on the process is not ready; a start that takes its time ends. Called once, also by a signal."""
        self._leaving_since = time.monotonic()
        self._behind.edge.begin_leaving()
        self.should_exit = True
        if not self.started and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state.update(self._behind.edge.admission.connections.lifespan_state())
        await super().startup(sockets)
        settle_garbage_collector()
        await self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Go on until nobody is sent here, take no more, tell subscribers where they stand, and answer the others."""
        edge = self._behind.edge
        grace = edge.settings.grace_seconds
        await asyncio.sleep(self._left(grace))
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        answered = min(grace + ANSWER_SECONDS, LAST_ANSWER_SECONDS)
        await edge.end_streams(self._chance, self._left(answered))
        # uvicorn only passes it on: a fraction is as good.
        self.config.timeout_graceful_shutdown = 1.0 + self._left(answered)  # type: ignore[assignment]
        await super().shutdown()

    def _left(self, seconds: float) -> float:
        """Of so many since the signal."""
        return max(0.0, self._leaving_since + seconds - time.monotonic())


@contextmanager
def _on_signals(act: Callable[[int, object], None]) -> Iterator[None]:
    """SIGHUP among them, but where whoever began the process has it ignored, as `nohup` does."""
    hang_up = [number for number in HANG_UP if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, act) for number in (*STOPPING, *hang_up)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_process_in(seconds: float = EXIT_SECONDS) -> None:
    """Whatever hangs: a peer, a job, a thread, the event loop."""

    message = f"The process did not end within {seconds:g} s: it is ended as it is."
    timer = threading.Timer(seconds, end_process, (message, 1))
    timer.daemon = True
    timer.start()


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


def listen(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Sockets that listen, before anything else is begun: a taken port is told at once. Raises `OSError`.

    Where they are `shared` others of this user may listen there, too.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            # `localhost` has an address in each family, and not every machine has both families.
            with _passing_over(UNKNOWN_ADDRESS if sockets else ()):
                sockets.append(_listener(family, address, shared))
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


def _listener(family: socket.AddressFamily, address: Any, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let others take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
