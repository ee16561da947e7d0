"""`serve --workers`: several processes on one address."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.support.command_line import GatewayProcess, refused_in_a_line, run_command, run_here, serve_process
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.supervisor import is_running, signals_are_taken
from tests.support.until import until_blocking
from tests.support.workers import QUIET, child_processes, workers

# Four interpreters start slowly on a busy machine.
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
    pytest.mark.timeout(180),
]
ASKED = {"query": "{ areas trending { sightingCount } }"}
UNLIMITED = {"GATEWAY_ANONYMOUS_BUDGET_UNITS": "0"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Run two workers, which some tests replace. At the end, Ctrl-C is sent to all processes, as a terminal does."""
    folder = tmp_path_factory.mktemp("workers") / "data"
    environment = {"GATEWAY_METRICS_PORT": str(free_port()), **UNLIMITED}
    with serve_process(folder, "--workers", "2", *QUIET, **environment) as gateway:
        yield gateway
        there, all_workers = child_processes(gateway), workers(gateway) | workers(gateway, "jobs")
        until_blocking(
            lambda: all(signals_are_taken(worker) for worker in all_workers), 30
        )  # the youngest may still be starting
        for child in all_workers:
            os.kill(child, signal.SIGINT)
            os.kill(child, signal.SIGHUP)
        assert gateway.stop(signal.SIGINT) < 25
        assert gateway.process.returncode == 0
        assert [child for child in there if is_running(child)] == []
        assert "Traceback" not in gateway.output


async def test_no_request_of_a_few_bytes_stops_the_workers(gateway: GatewayProcess) -> None:
    """CONNECT once made a worker read the same head for ever, and four requests stopped both workers."""
    address = urlsplit(gateway.url)
    serving = workers(gateway)
    for _ in range(16):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
        writer.close()

    async with aiohttp.ClientSession() as session:
        for _ in range(16):
            headers = {"Connection": "close"}  # so that both workers get requests
            async with session.get(f"{gateway.url}/healthz", headers=headers) as response:
                assert response.status == 200
    assert workers(gateway) == serving


class KeepAliveLoad:
    """Clients that keep their connections, and repeat a request only if a connection broke."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.answers = 0
        self.broken = 0
        self._url = f"{gateway.url}/graphql"
        self._over = asyncio.Event()

    async def __aenter__(self) -> "KeepAliveLoad":
        self._asking = [asyncio.create_task(self._ask()) for _ in range(8)]
        await self.more(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._asking)

    async def more(self, answers: int) -> None:
        """Wait for this number of further responses."""
        most = self.answers + answers
        async with asyncio.timeout(50):
            while self.answers < most and not any(task.done() for task in self._asking):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _ask(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._over.is_set():
                try:
                    async with session.post(self._url, json=ASKED) as response:
                        assert (response.status, "errors" in await response.json()) == (200, False)
                        self.answers += 1
                    await asyncio.sleep(0.005)  # processes start at the same time, on the same CPUs
                except aiohttp.ClientConnectionError:
                    self.broken += 1


async def until_in_thread(holds: Callable[[], object], seconds: float = 30) -> None:
    await asyncio.to_thread(until_blocking, holds, seconds)


async def wait_for_workers(gateway: GatewayProcess, count: int = 2) -> None:
    """Wait until this number of workers serve and have reported metrics."""
    await until_in_thread(lambda: len(workers(gateway)) == count)


async def test_one_that_is_killed_costs_its_own_connections_and_is_replaced(gateway: GatewayProcess) -> None:
    await wait_for_workers(gateway)
    before = workers(gateway)
    async with KeepAliveLoad(gateway) as load:
        os.kill(min(before), signal.SIGKILL)
        await until_in_thread(lambda: len(workers(gateway) - before) == 1)
        await load.more(200)
    assert 0 < load.broken <= 8
    assert "ended (killed by signal 9); a replacement starts in" in gateway.output
    assert max(before) in workers(gateway)


async def test_all_are_replaced_at_a_sighup_and_no_request_fails(gateway: GatewayProcess) -> None:
    await wait_for_workers(gateway)
    before = workers(gateway) | workers(gateway, "jobs")
    received = gateway.output.count("All workers were replaced")
    async with KeepAliveLoad(gateway) as load:
        gateway.process.send_signal(signal.SIGHUP)
        await until_in_thread(lambda: gateway.output.count("All workers were replaced") > received, 50)
        await load.more(100)
    assert load.broken == 0
    await wait_for_workers(gateway)
    await until_in_thread(lambda: len(workers(gateway, "jobs")) == 1)
    assert not before & set(child_processes(gateway))


async def test_tokens_of_one_worker_are_valid_at_all_and_each_exports_its_own_metrics(gateway: GatewayProcess) -> None:
    await wait_for_workers(gateway)
    token = run_here("token", "--data-dir", gateway.folder).stdout.strip()
    assert {gateway.data("{ me { userId } }", token)["me"]["userId"] for _ in range(8)} == {"demo"}
    assert gateway.output.count("Stop with Ctrl-C") == 1
    assert "read units in each process," in gateway.output


def test_workers_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with serve_process(tmp_path / "data", "--workers", "1", *QUIET) as gateway:
        there = child_processes(gateway)
        assert len(there) == 3  # a serving worker, the one for jobs, and the engine
        gateway.process.kill()
        until_blocking(lambda: not any(is_running(child) for child in there), 25)


def test_a_taken_address_is_reported_although_workers_share_theirs(gateway: GatewayProcess, tmp_path: Path) -> None:
    port = gateway.url.rpartition(":")[2]
    done = run_here("serve", "--workers", "2", "--port", port, "--data-dir", tmp_path)
    refused_in_a_line(done, 1, f"Error: cannot listen on 127.0.0.1:{port}: Address already in use.")


def test_a_worker_assignment_set_by_a_user_is_refused(tmp_path: Path) -> None:
    done = run_command("serve", "--data-dir", tmp_path, WORKER_OF_GATEWAY="1")
    refused_in_a_line(done, 2, "Error: WORKER_OF_GATEWAY is reserved for the processes of `serve --workers`")


def test_several_workers_on_aws_need_a_bus(tmp_path: Path) -> None:
    done = run_here("serve", "--workers", "2", "--store", "aws", "--data-dir", tmp_path, GATEWAY_SECRET=SECRET)
    refused_in_a_line(done, 2, "Error: several workers on AWS need a bus: set --bus or GATEWAY_BUS")


@pytest.mark.parametrize("value", ["0", "-1", "many", "1000"])
def test_an_impossible_number_of_workers_is_reported(value: str, tmp_path: Path) -> None:
    done = run_here("serve", "--workers", value, "--data-dir", tmp_path)
    refused_in_a_line(done, 2, "--workers: must be auto, or a number from 1 to 256.")
