"""A process that does what it is told by lines of text, as who started it and as it itself see it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

STOP_SECONDS = 20.0
ANSWER_BYTES = 64 * 1024 * 1024


class Child:
    """The process, as who started it sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("The measured process has ended.")
        return orjson.loads(answer)


@asynccontextmanager
async def started(module: str, *arguments: str) -> AsyncIterator[Child]:
    """A module of ours in a process of its own, until this ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=ANSWER_BYTES,
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


async def obey(do: Callable[..., Awaitable[object]]) -> None:
    """In the process: until its input ends. A line of input is a command, and has a line of output."""
    reader = asyncio.StreamReader(limit=ANSWER_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        answer = await do(*line.decode().split())
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()
