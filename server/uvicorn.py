"""uvicorn as the gateway runs it: on uvloop and listening sockets, with its own signal handling and shutdown."""

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

from server.app import GatewayProcess, application
from server.http.protocol import UVICORN_OPTIONS
from server.observability.liveness import end_process
from server.shutdown import ANSWER_SECONDS, EXIT_SECONDS, LAST_ANSWER_SECONDS, WORKER_SECONDS

BACKLOG = 2048
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
HANG_UP = () if sys.platform == "win32" else (signal.SIGHUP,)
UNAVAILABLE_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# The objects of a request seldom form cycles, and a large response is ten thousand objects at once. With a first
# threshold of 20,000 such a response took a tenth more CPU than without any collection, with this one a twentieth; see
# docs/benchmarks.md.
GC_THRESHOLDS = (50_000, 20, 10)


async def serve_until_signal(
    gateway: GatewayProcess,
    sockets: list[socket.socket],
    on_started: Callable[[], Awaitable[None]],
    rng: random.Random,
) -> None:
    """Serve until SIGINT or SIGTERM, or until the terminal is closed. A signal during the start ends the start.

    Then shut down gracefully, within `EXIT_SECONDS`. A second SIGINT or SIGTERM ends the process at once; a second
    SIGHUP does not, because a closed terminal often sends two. `rng` draws the delays after which clients reconnect.
    """
    server = _Server(gateway, on_started, rng)

    def stop(number: int, frame: object) -> None:
        if not server.should_exit:
            end_process_in()
            server.begin_draining()
        elif number in STOP_SIGNALS:
            os._exit(128 + number)

    with _on_signals(stop):
        await server.serve_gateway(sockets)


async def serve_worker(
    gateway: GatewayProcess,
    sockets: list[socket.socket],
    on_started: Callable[[], Awaitable[None]],
    rng: random.Random,
    channel: socket.socket,
) -> None:
    """Serve as a worker until the supervisor writes to `channel` or closes it, or SIGTERM arrives.

    SIGINT and SIGHUP are ignored: a terminal sends them to all processes, and the supervisor handles them.
    """
    server = _Server(gateway, on_started, rng)

    def stop() -> None:
        if not server.should_exit:
            end_process_in(WORKER_SECONDS)
            server.begin_draining()

    with _on_stop_request(channel, stop):
        await server.serve_gateway(sockets)


async def run_jobs_worker(
    gateway: GatewayProcess, on_started: Callable[[], Awaitable[None]], channel: socket.socket
) -> None:
    """Run the gateway's background jobs, without serving, until the same events as `serve_worker`."""
    loop, task, is_stopping = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None

    def stop() -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            end_process_in(WORKER_SECONDS)
            loop.call_soon_threadsafe(task.cancel)

    with _on_stop_request(channel, stop), suppress(asyncio.CancelledError):
        async with gateway.running():
            await on_started()
            await asyncio.Event().wait()


@contextmanager
def _on_stop_request(channel: socket.socket, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when the channel is readable or closed, and on SIGTERM. Ignore SIGINT and SIGHUP."""
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        loop.remove_reader(channel)
        stop()

    loop.add_reader(channel, on_readable)
    with _on_signals(lambda number, _: stop() if number == signal.SIGTERM else None):
        yield


class _Server(uvicorn.Server):
    """uvicorn's server with the gateway's start and shutdown.

    It captures no signals: after a clean stop uvicorn raises captured signals again, which would end the process.
    """

    def __init__(self, gateway: GatewayProcess, on_started: Callable[[], Awaitable[None]], rng: random.Random) -> None:
        super().__init__(
            uvicorn.Config(
                application(gateway),
                lifespan="off",
                log_config=None,  # its lines have the format of all lines
                log_level="warning",
                access_log=False,
                **UVICORN_OPTIONS,
            )
        )
        self._gateway = gateway
        self._on_started = on_started
        self._rng = rng
        self._draining_since = 0.0
        self._task: asyncio.Task[Any] | None = None

    async def serve_gateway(self, sockets: list[socket.socket]) -> None:
        """Run the gateway, and serve it until the shutdown has ended."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        with suppress(asyncio.CancelledError):
            async with self._gateway.running():
                await self.serve(sockets)

    def begin_draining(self) -> None:
        """Start the shutdown: the process is no longer ready. Cancel a start. Called once, possibly by a signal."""
        self._draining_since = time.monotonic()
        self._gateway.server.begin_draining()
        self.should_exit = True
        if not self.started and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state.update(self._gateway.server.admission.connections.lifespan_state())
        await super().startup(sockets)
        settle_garbage_collector()
        await self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down in four steps.

        Serve until load balancers have noticed that the process is not ready. Stop listening. End the subscriptions
        with their resume ids. Wait for the requests in progress.
        """
        server = self._gateway.server
        grace = server.settings.grace_seconds
        await asyncio.sleep(self._remaining(grace))
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        answer_seconds = min(grace + ANSWER_SECONDS, LAST_ANSWER_SECONDS)
        await server.end_streams(self._rng, self._remaining(answer_seconds))
        # Declared as an int, but uvicorn only passes it to asyncio.
        self.config.timeout_graceful_shutdown = 1.0 + self._remaining(answer_seconds)  # type: ignore[assignment]
        await super().shutdown()

    def _remaining(self, seconds: float) -> float:
        """Return the rest of a duration that began with the shutdown."""
        return max(0.0, self._draining_since + seconds - time.monotonic())


@contextmanager
def _on_signals(act: Callable[[int, object], None]) -> Iterator[None]:
    """Call `act` on SIGINT, SIGTERM and SIGHUP. An ignored SIGHUP stays ignored: `nohup` starts processes with it."""
    hang_up = [number for number in HANG_UP if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, act) for number in (*STOP_SIGNALS, *hang_up)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_process_in(seconds: float = EXIT_SECONDS) -> None:
    """Terminate the process after `seconds`, whatever hangs: a peer, a job, a thread, the event loop."""
    message = f"The process did not end within {seconds:g} s and is terminated."
    timer = threading.Timer(seconds, end_process, (message, 1))
    timer.daemon = True
    timer.start()


def settle_garbage_collector() -> None:
    """Exclude the objects that exist now from garbage collection: they stay for the life of the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops; None on Windows, where uvloop does not run."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def listen(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Return listening sockets for an address. Raises `OSError`.

    It is called before the gateway starts, so that a port in use is reported at once. With `shared`, other processes
    of this user may listen on the same port.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            # `localhost` has an address of each family, and not every machine has both families.
            with _ignoring(UNAVAILABLE_ADDRESS if sockets else ()):
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
def _ignoring(codes: Collection[int]) -> Iterator[None]:
    """Suppress an `OSError` with one of these error numbers."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in codes:
            raise


def _listener(family: socket.AddressFamily, address: Any, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # on Windows another process could then take the port
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
