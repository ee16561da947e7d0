"""A supervisor without a store, with workers of `worker_stand_in.py`.

Arguments: a folder, the count, the port, a terminal. With `nohup` as a fifth argument it outlives the terminal.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import runtime.supervisor.heartbeats
import runtime.supervisor.slot
import runtime.supervisor.worker
from runtime.supervisor.supervisor import Supervisor

STAND_IN = Path(__file__).with_name("worker_stand_in.py")
# A hanging worker is killed after these seconds.
START_SECONDS = 5.0
LEAVE = {"LEAVE_SECONDS": 0.3, "ALL_SECONDS": 0.6}


class NoStore:
    """The part of a gateway that a supervisor uses. It opens once the folder has no file `opening`."""

    def __init__(self, folder: Path) -> None:
        self._opening = folder / "opening"

    @asynccontextmanager
    async def running(self, *, jobs: bool) -> AsyncIterator[None]:
        assert not jobs
        while self._opening.exists():  # noqa: ASYNC110 - another process's file tells no event
            await asyncio.sleep(0.01)
        yield


def take_terminal(terminal: str) -> None:
    os.setsid()
    os.close(os.open(terminal, os.O_RDWR))  # makes it the session's terminal


def main(folder: str, count: str, port: str, terminal: str = "", *rest: str) -> None:
    runtime.supervisor.worker.START_SECONDS = float(os.environ.get("START_SECONDS", START_SECONDS))
    runtime.supervisor.slot.FIRST_DELAY = 0.01
    if silent := os.environ.get("SILENT_SECONDS"):
        runtime.supervisor.heartbeats.SILENT_SECONDS = float(silent)
        runtime.supervisor.heartbeats.BEAT_SECONDS = runtime.supervisor.worker.STACKS_SECONDS = float(silent) / 20
    leave = dict.fromkeys(LEAVE, float(os.environ["LEAVE_SECONDS"])) if "LEAVE_SECONDS" in os.environ else LEAVE
    for module in (runtime.supervisor.slot, runtime.supervisor.supervisor):
        vars(module).update(leave)
    if terminal:
        take_terminal(terminal)
    if "nohup" in rest:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    served = Path(folder, "served")

    async def started() -> None:
        served.touch()  # noqa: ASYNC240

    command = [sys.executable, "-S", "-E", str(STAND_IN), folder]
    gateway: Any = NoStore(Path(folder))
    supervisor = Supervisor(command, int(count), "127.0.0.1", int(port))
    sys.exit(0 if asyncio.run(supervisor.run(gateway, started)) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
