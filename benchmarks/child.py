"""Child processes controlled by lines of text: the parent's side and the child's side."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

STOP_SECONDS = 20.0
MAX_LINE_BYTES = 64 * 1024 * 1024


class Child:
    """The parent's handle of a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, command: str) -> Any:
        """Send a command. Return the child's response. Raises `RuntimeError` if the child has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("The measured process has ended.")
        return orjson.loads(answer)


@asynccontextmanager
async def started(module: str, *arguments: str) -> AsyncIterator[Child]:
    """Run a module in a child process until the context exits."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
    )
    try:
        yield Child(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def serve_commands(handle: Callable[..., Awaitable[object]]) -> None:
    """Handle commands in the child until its input ends. Each line of input is a command with one line of response."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        answer = await handle(*line.decode().split())
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()
