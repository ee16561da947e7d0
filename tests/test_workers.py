"""`serve --workers`: several processes on one address, and what becomes of them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from command_line import Process, _until, refused_in_a_line, run_here, serving, serving_anew
from conftest import SECRET, free_port

from runtime import Part
from workers import Address, Slot, Worker

# Four interpreters that start on a busy machine take their time.
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
    pytest.mark.timeout(180),
]
# What they do in the background is tested elsewhere.
QUIET = ("--matches", "none", "--no-feed-pipeline")
ONE = ("--workers", "1", "--no-demo", *QUIET)
ASKED = {"query": "{ areas trending(windowHours: 1) { score } }"}
UNLIMITED = {"GATEWAY_ANONYMOUS_BUDGET_UNITS": "0"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Two, which are replaced in some tests. In the end SIGTERM leaves nothing behind."""
    port = str(free_port())
    with serving(
        tmp_path_factory.mktemp("workers") / "data", "--workers", "2", *QUIET, GATEWAY_METRICS_PORT=port, **UNLIMITED
    ) as gateway:
        yield gateway
        there = children(gateway)
        gateway.stop(signal.SIGTERM)
        assert gateway.process.returncode == 0
        assert [child for child in there if runs(child)] == []


def children(gateway: Process) -> list[int]:
    """All processes that it has started, the engine among them."""
    pid = gateway.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(gateway: Process, part: str = "serving") -> set[int]:
    """Those whose environment says so: in a process that has just begun there is nothing to read yet."""
    found = set()
    for child in children(gateway):
        try:
            told = Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        if f'"part": "{part}"'.encode() in told:
            found.add(child)
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Load:
    """Clients that keep their connections, and ask again only where a connection broke."""

    def __init__(self, gateway: Process) -> None:
        self.answers = 0
        self.broken = 0
        self._url = f"{gateway.url}/graphql"
        self._over = asyncio.Event()

    async def __aenter__(self) -> "Load":
        self._asking = [asyncio.create_task(self._ask()) for _ in range(8)]
        await self.more(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._asking)

    async def more(self, answers: int) -> None:
        """Returns after so many more answers."""
        most = self.answers + answers
        async with asyncio.timeout(30):
            while self.answers < most and not any(task.done() for task in self._asking):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _ask(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._over.is_set():
                try:
                    async with session.post(self._url, json=ASKED) as response:
                        assert (response.status, "errors" in await response.json()) == (200, False)
                        self.answers += 1
                except aiohttp.ClientConnectionError:
                    self.broken += 1


async def until(holds: object, seconds: float = 30) -> None:
    await asyncio.to_thread(_until, holds, seconds)  # type: ignore[arg-type]


async def ready(gateway: Process, count: int = 2) -> None:
    """As many serve, each of which has told figures of its own."""
    await until(lambda: len(workers(gateway)) == count)


async def test_one_that_is_killed_costs_its_own_connections_and_is_replaced(gateway: Process) -> None:
    await ready(gateway)
    before = workers(gateway)
    async with Load(gateway) as load:
        os.kill(min(before), signal.SIGKILL)
        await until(lambda: len(workers(gateway) - before) == 1)
        await load.more(200)
    assert 0 < load.broken <= 8
    assert "ended (killed by signal 9); another begins in" in gateway.told
    assert max(before) in workers(gateway)


async def test_all_are_replaced_at_a_sighup_and_no_request_fails(gateway: Process) -> None:
    await ready(gateway)
    before = workers(gateway) | workers(gateway, "jobs")
    told = gateway.told.count("All workers were replaced")
    async with Load(gateway) as load:
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: gateway.told.count("All workers were replaced") > told, 50)
        await load.more(100)
    assert load.broken == 0
    await ready(gateway)
    await until(lambda: len(workers(gateway, "jobs")) == 1)
    assert not before & set(children(gateway))


async def test_tokens_of_one_are_good_for_all_and_each_tells_its_own_figures(gateway: Process) -> None:
    await ready(gateway)
    token = gateway.token()
    assert {gateway.data("{ me { userId } }", token)["me"]["userId"] for _ in range(8)} == {"demo"}
    assert gateway.told.count("Demo user token") == 1
    assert "read units in each process," in gateway.told


def test_a_terminals_interrupt_which_goes_to_all_ends_them_once(tmp_path: Path) -> None:
    with serving_anew(tmp_path / "data", *ONE) as gateway:
        there = children(gateway)
        assert len(there) == 3  # one that serves, one for jobs, and the engine
        began = time.monotonic()
        for child in workers(gateway) | workers(gateway, "jobs"):
            os.kill(child, signal.SIGINT)
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.wait(25) == 0
        assert time.monotonic() - began < 25
        assert [child for child in there if runs(child)] == []
        assert "Traceback" not in gateway.told


def test_workers_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with serving_anew(tmp_path / "data", *ONE) as gateway:
        there = children(gateway)
        gateway.process.kill()
        _until(lambda: not any(runs(child) for child in there), 25)


def test_a_taken_address_is_told_although_workers_share_theirs(gateway: Process, tmp_path: Path) -> None:
    port = gateway.url.rpartition(":")[2]
    done = run_here("serve", "--workers", "2", "--port", port, "--data-dir", tmp_path)
    refused_in_a_line(done, 1, f"Error: cannot listen on 127.0.0.1:{port}: Address already in use.")


def test_several_workers_on_aws_need_a_bus(tmp_path: Path) -> None:
    done = run_here("serve", "--workers", "2", "--store", "aws", "--data-dir", tmp_path, GATEWAY_SECRET=SECRET)
    refused_in_a_line(done, 2, "Error: several workers on AWS need a bus: set --bus or GATEWAY_BUS")


@pytest.mark.parametrize("told", ["0", "-1", "many", "1000"])
def test_a_number_of_workers_that_cannot_be_is_told(told: str, tmp_path: Path) -> None:
    done = run_here("serve", "--workers", told, "--data-dir", tmp_path)
    refused_in_a_line(done, 2, "--workers: must be auto, or a number from 1 to 256.")


# A process that is ready at once, and leaves when its supervisor has it leave.
READY_AT_ONCE = """
import json, os, socket
line = socket.socket(fileno=json.loads(os.environ["WORKER_OF_GATEWAY"])["line"])
line.sendall(b"ready\\n")
line.recv(1)
"""


async def test_a_worker_that_dies_while_its_successor_begins_has_one_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.FIRST_DELAY", 0.0)
    started, begins, may_begin = list[Worker](), asyncio.Event(), asyncio.Event()

    async def start() -> Worker:
        if started:
            begins.set()
            await may_begin.wait()
        started.append(await Worker.start([sys.executable, "-c", READY_AT_ONCE], Part.SERVING, 1))
        return started[-1]

    slot = Slot(start, Address("127.0.0.1", free_port(), []))
    assert await slot.fill()
    keeping, renewing = asyncio.create_task(slot.keep()), asyncio.create_task(slot.renew())
    await begins.wait()
    started[0].kill()
    await started[0].wait()
    for _ in range(10):
        await asyncio.sleep(0)  # its end is noticed
    may_begin.set()
    assert await renewing
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(started) == 2
    assert slot.worker is started[1]
    keeping.cancel()
    await asyncio.gather(keeping, *[worker.end(5) for worker in started], return_exceptions=True)
