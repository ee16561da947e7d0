"""A gateway as the first process of a container, to which the kernel sends only signals that it handles."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.support.command_line import surroundings
from tests.support.ports import free_port
from tests.support.store_engines import ROOT

# Only root may create a namespace without a namespace of users.
ALONE: tuple[str, ...] = ("unshare", "--pid", "--fork") if sys.platform == "linux" and os.geteuid() == 0 else ()
if ALONE == () and sys.platform == "linux":
    ALONE = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


@pytest.fixture
async def alone() -> tuple[str, ...]:
    if not ALONE or shutil.which(ALONE[0]) is None:
        pytest.skip("unshare is needed.")
    tried = await asyncio.create_subprocess_exec(*ALONE, "true", stderr=asyncio.subprocess.DEVNULL)
    if await tried.wait():
        pytest.skip("A namespace of processes is needed.")
    return ALONE


async def test_the_first_process_can_be_ended_while_it_starts(alone: tuple[str, ...], tmp_path: Path) -> None:
    environment = surroundings(GATEWAY_DATA_DIR=str(tmp_path), GATEWAY_PORT=str(free_port()))
    # The program that creates the namespace waits for the first process, and ends with its status.
    maker = await asyncio.create_subprocess_exec(
        *alone, sys.executable, "-X", "importtime", "gateway.py", "serve",
        cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert maker.stderr is not None
    try:
        async with asyncio.timeout(50):
            while b"typer" not in await maker.stderr.readline():
                pass  # it has started its imports
            os.kill(first_child(maker.pid), signal.SIGTERM)
            await maker.stderr.read()
            assert await maker.wait() == 128 + signal.SIGTERM
    finally:
        if maker.returncode is None:
            os.kill(first_child(maker.pid), signal.SIGKILL)
            await maker.wait()


def first_child(process: int) -> int:
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])
