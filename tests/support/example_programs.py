"""Runs the programs of examples/, each in a process of its own, and reads what they print."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.support.served import Served
from tests.support.store_engines import ROOT

EXAMPLES = ROOT / "examples"
PROGRAMS = {"node": shutil.which("node"), "python": sys.executable, "bash": shutil.which("bash")}
SECONDS = 50.0


class ExampleProgram:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """Return the next line that it prints. If it ends before, the test fails with its error output."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(SECONDS):
            line = await self._process.stdout.readline()
            if not line:
                pytest.fail(f"The program ended: {(await self._process.stderr.read()).decode()}")
        return line.decode().rstrip("\n")

    async def lines(self, number: int) -> list[str]:
        return [await self.line() for _ in range(number)]

    async def end(self) -> tuple[int | None, str, str]:
        """Wait for the end of the program. Return its status, and its remaining output and errors."""
        async with asyncio.timeout(SECONDS):
            out, errors = await self._process.communicate()
        return self._process.returncode, out.decode(), errors.decode()


@asynccontextmanager
async def running_example(served: Served, *command: str, user: str | None = None) -> AsyncIterator[ExampleProgram]:
    """Run a program of examples/ against a gateway, with the token of a user. Kill it at the end if it still runs."""
    program = PROGRAMS[command[0]]
    if program is None or not (EXAMPLES / "node_modules" / "graphql-ws").is_dir():
        pytest.fail("The packages of the examples are missing: npm ci --prefix examples")
    token = {} if user is None else {"API_TOKEN": served.token(user)}
    process = await asyncio.create_subprocess_exec(
        program,
        *command[1:],
        cwd=EXAMPLES,
        env={**os.environ, "NO_COLOR": "1", "API_URL": f"{served.url}/graphql", **token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # a shell script has children, which are killed with it
    )
    try:
        yield ExampleProgram(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def run_example(served: Served, *command: str, user: str | None = None) -> str:
    """Run a program to its end, which must be successful. Return its output."""
    async with running_example(served, *command, user=user) as program:
        status, out, errors = await program.end()
    assert (status, errors) == (0, "")
    return out
