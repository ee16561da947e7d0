"""Signs of life that a worker sends to its supervisor, and how the supervisor listens to them."""

import asyncio
import socket
import time
from collections.abc import Callable

from server.observability.liveness import Silence

BEAT = b"."
BEAT_SECONDS = 1.0
# A worker that was silent for so long is killed.
SILENT_SECONDS = 10.0
_READ_BYTES = 65_536


def send_heartbeats(line: socket.socket) -> None:
    """Send one each `BEAT_SECONDS` from the running event loop, until the supervisor is gone.

    `line` does not block. While its buffer is full, because the supervisor stands still, nothing is sent: the
    heartbeats in the buffer say enough.
    """
    loop = asyncio.get_running_loop()

    def beat() -> None:
        try:
            line.send(BEAT)
        except BlockingIOError:
            pass
        except OSError:
            return
        loop.call_later(BEAT_SECONDS, beat)

    beat()


async def silence(line: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
    """Return once nothing came for `SILENT_SECONDS`. What comes is read and dropped. `line` does not block.

    All that is pending is read before the time is looked at, and a caller that stood still itself starts anew
    (`Silence`).
    """
    silent = Silence(SILENT_SECONDS, clock())
    while not silent.is_over_limit(clock(), heard=_read_all(line)):  # noqa: ASYNC110 - it measures time
        await asyncio.sleep(BEAT_SECONDS)


def _read_all(line: socket.socket) -> bool:
    """Empty the buffer of the line. Return whether there was anything in it."""
    heard = False
    try:
        while read := line.recv(_READ_BYTES):
            heard = True
            if len(read) < _READ_BYTES:
                break
    except OSError:
        pass  # nothing is pending, or the worker has closed its end
    return heard
