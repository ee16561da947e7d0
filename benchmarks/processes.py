"""Server processes: their start and end, and their resource usage on Linux."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

START_SECONDS = 30.0
STOP_SECONDS = 10.0
CPUCLOCK_SCHED = 2
MEGABYTE = 1024 * 1024


@asynccontextmanager
async def launched(
    command: Sequence[str], is_ready: Callable[[], Awaitable[bool]], **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server until the context exits, and wait for its readiness. `environment` has additional variables."""
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | environment)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await is_ready():
                if process.returncode is not None:
                    raise RuntimeError(f"{command[:3]} ended with {process.returncode} before it was ready.")
                await asyncio.sleep(0.05)
        yield process
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def listens(port: int) -> bool:
    """Return whether a process of this machine listens on a port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of a process since its start, to the nanosecond.

    It uses the clock of clock_getcpuclockid(3), since /proc counts in hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB: proc_pid_statm(5)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
