"""Stands in for a worker, with nothing to import: it notes that it began, is ready, and leaves when it is told to.

It is ready once the folder has no file of the name `hang`; with `deaf` it does not leave. Once it is ready it sends
heartbeats, but with `silent-` and its process's number.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time

folder = sys.argv[1]
given = json.loads(os.environ["WORKER_OF_GATEWAY"])
line = socket.socket(fileno=given["line"])


def there(name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def note(what: str) -> None:
    with open(os.path.join(folder, "notes"), "a") as notes:
        notes.write(f"{what} {given['part']} {os.getpid()}\n")


def may_leave() -> bool:
    if not select.select([line], [], [], 0.01)[0]:
        return False
    note("told")
    return not there("deaf")


def beat() -> None:
    if not there(f"silent-{os.getpid()}"):
        with contextlib.suppress(OSError):  # the buffer is full, or the supervisor has gone
            line.send(b".", socket.MSG_DONTWAIT)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("began")
while there("hang"):
    if may_leave():
        sys.exit(0)
    time.sleep(0.01)
line.sendall(b"ready\n")
note("ready")
while not may_leave():
    beat()
    time.sleep(0.01)
