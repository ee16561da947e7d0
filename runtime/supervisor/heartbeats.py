"""Heartbeats that a worker sends to its supervisor, and the supervisor's detection of their absence.

`worker.Worker` kills a worker without heartbeats.
"""

import asyncio
import socket
import time
from collections.abc import Callable

from server.observability.liveness import Silence

BEAT = b"."
BEAT_SECONDS = 1.0
# The supervisor kills a worker that sends no heartbeat for this time.
SILENT_SECONDS = 10.0
_READ_BYTES = 65_536


def send_heartbeats(channel: socket.socket) -> None:
    """Send a heartbeat each `BEAT_SECONDS` from the running event loop, until the supervisor has ended.

    `channel` is non-blocking. While its buffer is full, because the supervisor is suspended, no heartbeat is sent: the
    heartbeats in the buffer are sufficient.
    """
    loop = asyncio.get_running_loop()

    def beat() -> None:
        try:
            channel.send(BEAT)
        except BlockingIOError:
            pass
        except OSError:
            return
        loop.call_later(BEAT_SECONDS, beat)

    beat()


async def silence(channel: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
    """Return once no heartbeat has arrived for `SILENT_SECONDS`. `channel` is non-blocking; its contents are discarded.

    All pending heartbeats are read before each check of the time. The measurement restarts when the calling process
    was suspended itself (`Silence`).
    """
    silent = Silence(SILENT_SECONDS, clock())
    while not silent.is_over_limit(clock(), heard=_read_all(channel)):  # noqa: ASYNC110 - it measures time
        await asyncio.sleep(BEAT_SECONDS)


def _read_all(channel: socket.socket) -> bool:
    """Empty the buffer of the channel. Return whether it held anything."""
    heard = False
    try:
        while read := channel.recv(_READ_BYTES):
            heard = True
            if len(read) < _READ_BYTES:
                break
    except OSError:
        pass  # nothing is pending, or the worker has closed its end
    return heard
