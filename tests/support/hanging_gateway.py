"""`gateway.py` with two additional paths, `/spin` and `/backtrack`, that never return to the event loop.

`SILENT_SECONDS` is how long a supervisor waits for a worker's heartbeat. With `PIPELINE_SPINS` the pipelines hang, too.
"""

import os
import re
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

import runtime.cli.processes
import runtime.jobs
import runtime.supervisor.heartbeats
import runtime.supervisor.worker_process
import server.uvicorn
from gateway import cli
from runtime.supervisor.worker_env import VARIABLE
from server.app import GatewayProcess, application
from tests.support.spinning import spin


def backtrack() -> None:
    """Hold the interpreter lock, so that no other thread of the process runs."""
    re.match(r"(a+)+$", "a" * 64 + "b")


HANGING = {"/spin": spin, "/backtrack": backtrack}


class Hanging:
    """An application that hangs on a request for one of the paths."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._application = application(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in HANGING:
            HANGING[scope["path"]]()
        await self._application(scope, receive, send)


class Spinning:
    """A pipeline that never returns to the event loop."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def run(self) -> None:
        spin()


def main() -> None:
    vars(server.uvicorn)["application"] = Hanging
    runtime.cli.processes.PROGRAM = Path(__file__)
    if silent := os.environ.get("SILENT_SECONDS"):
        runtime.supervisor.heartbeats.SILENT_SECONDS = float(silent)
    if os.environ.get("PIPELINE_SPINS"):
        vars(runtime.jobs)["Consumer"] = vars(runtime.jobs)["CricketPipeline"] = Spinning
    if VARIABLE in os.environ:
        runtime.supervisor.worker_process.run_worker()
    else:
        cli()


if __name__ == "__main__":
    main()
