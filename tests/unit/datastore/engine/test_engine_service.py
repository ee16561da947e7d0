"""`gateway.py engine`: the embedded engine for other processes. test_compose.py tests the processes with it."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from datastore.engine.engine import Engine
from datastore.engine.programs import find_program
from tests.support.command_line import refused_in_a_line, run_command, run_here, serve_process
from tests.support.ports import free_port
from tests.support.store_engines import ROOT


def test_it_listens_on_the_local_or_on_all_addresses(tmp_path: Path) -> None:
    done = run_here("engine", "--host", "192.0.2.1", GATEWAY_DATA_DIR=str(tmp_path))
    refused_in_a_line(done, 2, "must be 127.0.0.1 or 0.0.0.0")


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_here("engine", "--port", str(port), GATEWAY_DATA_DIR=str(tmp_path))
    refused_in_a_line(done, 1, f"port {port} is taken")


@pytest.mark.proof
def test_data_that_another_command_has_open_are_refused(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--no-demo") as gateway:
        done = run_command("engine", "--port", str(free_port()), GATEWAY_DATA_DIR=str(tmp_path))
        assert gateway.get("/readyz")[0] == 200
    refused_in_a_line(done, 1, "Another process has opened the data in")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_a_restarted_engine_listens_on_the_same_address(host: str, tmp_path: Path) -> None:
    port = free_port()
    again = asyncio.Event()

    async def restarted() -> None:
        again.set()

    async with Engine(find_program(ROOT), tmp_path, restarted, listen=(host, port)) as engine:
        os.kill(json.loads((tmp_path / "engine.json").read_text())["pid"], signal.SIGKILL)
        await asyncio.wait_for(again.wait(), 50)
        assert engine.endpoint == f"http://127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port), 2).close()
