"""Ports for servers that a test starts.

A port that the kernel proposes may be given to another process, also as the local port of a connection, before the
server binds it. Each process of the tests therefore holds a block of ports outside the kernel's usual range.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import IO

FIRST_PORT, BLOCKS, BLOCK_SIZE = 10_000, 44, 500


def free_port() -> int:
    """Return a port of 127.0.0.1 that no server uses and no other process of the tests is given."""
    _, ports = _block(os.getpid())
    for port in itertools.islice(ports, BLOCK_SIZE):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ports of closed connections count as free
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"All {BLOCK_SIZE} ports of this process are in use.")


@cache
def _block(_pid: int) -> tuple[IO[str], Iterator[int]]:
    """Lock a block until this process ends. Return its lock file and an endless cycle of its ports."""
    for number in range(BLOCKS):
        lock = open(os.path.join(tempfile.gettempdir(), f"test-ports-{number}.lock"), "a")  # noqa: SIM115 - stays open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        first = FIRST_PORT + number * BLOCK_SIZE
        return lock, itertools.cycle(range(first, first + BLOCK_SIZE))
    raise RuntimeError(f"{BLOCKS} processes of the tests hold ports already.")
