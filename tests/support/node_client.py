"""Runs the node scripts of tests/clients: the public npm clients, spoken to in lines of JSON.

A script imports the clients by their names, reads what it is given from `process.argv[2]`, and says with
`console.log(JSON.stringify(...))` what came of it: one value on each line. It may read lines of JSON from its standard
input, for what a test tells it while it runs.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
NODE = shutil.which("node")


class NodeScript:
    """A script that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self, seconds: float = 20) -> Any:
        """The next thing that it says; a script that fails instead fails the test, with its trace."""
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
            if not line:
                pytest.fail(f"The script ended with {await self._process.wait()}: {await self._complaint()}")
        return json.loads(line)

    async def everything(self, seconds: float = 30) -> list[Any]:
        """What it says from here to its end, which has to be a good one."""
        async with asyncio.timeout(seconds):
            out, complaint = await self._process.communicate()
        assert self._process.returncode == 0, complaint.decode()
        return [json.loads(line) for line in out.splitlines()]

    async def tell(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        await self._process.stdin.drain()

    async def _complaint(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()


@asynccontextmanager
async def running(script: str, **given: Any) -> AsyncIterator[NodeScript]:
    """`tests/clients/<script>`, killed in the end if it has not ended by itself. What it says is at most 16 MB."""
    if NODE is None or not (CLIENTS / "node_modules" / "graphql-ws").is_dir():
        pytest.fail("The npm clients are missing: npm ci --prefix tests/clients")
    process = await asyncio.create_subprocess_exec(
        NODE,
        CLIENTS / script,
        json.dumps(given),
        cwd=CLIENTS,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield NodeScript(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run(script: str, **given: Any) -> list[Any]:
    """All that a script says, from its beginning to its end."""
    async with running(script, **given) as client:
        return await client.everything()
