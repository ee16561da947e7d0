"""A stand-in for a worker that imports nothing: it records its start, reports that it is ready, and leaves when told.

It is ready once the folder has no file `hang`. With the file `deaf` it does not leave. Once it is ready it sends
heartbeats, except with a file `silent-` followed by its process id.
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


def append_note(what: str) -> None:
    with open(os.path.join(folder, "notes"), "a") as notes:
        notes.write(f"{what} {given['part']} {os.getpid()}\n")


def may_leave() -> bool:
    if not select.select([line], [], [], 0.01)[0]:
        return False
    append_note("signalled")
    return not there("deaf")


def beat() -> None:
    if not there(f"silent-{os.getpid()}"):
        with contextlib.suppress(OSError):  # the buffer is full, or the supervisor has gone
            line.send(b".", socket.MSG_DONTWAIT)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
append_note("began")
while there("hang"):
    if may_leave():
        sys.exit(0)
    time.sleep(0.01)
line.sendall(b"ready\n")
append_note("ready")
while not may_leave():
    beat()
    time.sleep(0.01)
