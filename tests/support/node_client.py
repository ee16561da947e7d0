"""Runs the node scripts of tests/clients, which use the public npm clients and communicate in lines of JSON.

A script imports the clients by name, reads its input from `process.argv[2]`, and writes its results with
`console.log(JSON.stringify(...))`, one value on each line. It may read lines of JSON from its standard input.
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

from tests.support.store_engines import ROOT

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
NODE = shutil.which("node")


class NodeScript:
    """A running script."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self, seconds: float = 50) -> Any:
        """Return the next value that the script writes. If the script fails, the test fails with its trace."""
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
            if not line:
                pytest.fail(f"The script ended with {await self._process.wait()}: {await self._complaint()}")
        return json.loads(line)

    async def everything(self, seconds: float = 50) -> list[Any]:
        """Return the remaining values. The script must succeed."""
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
async def running_script(script: str, **given: Any) -> AsyncIterator[NodeScript]:
    """Run `tests/clients/<script>`, and kill it at the end if it still runs. Its output is at most 16 MB."""
    if NODE is None or not (CLIENTS / "node_modules" / "graphql-ws").is_dir():
        pytest.fail("The npm clients are missing: npm ci --prefix tests/clients")
    process = await asyncio.create_subprocess_exec(
        NODE,
        "--conditions=development",
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


async def run_node_script(script: str, **given: Any) -> list[Any]:
    """Return all values that a script writes."""
    async with running_script(script, **given) as client:
        return await client.everything()


def documented_client() -> str:
    """Return the client in the section on resuming of docs/subscriptions.md, for `resume.js`."""
    page = (ROOT / "docs" / "subscriptions.md").read_text()
    return page.partition("\n```js\n")[2].partition("\n```\n")[0]
