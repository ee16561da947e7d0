"""Access to the embedded engine: clients with its access key may use it, pages in a browser may not."""

import asyncio
import json
import logging
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.database import StoreOptions, open_database
from datastore.engine import seccomp as engine_seccomp
from datastore.engine.access_key import VARIABLE, authorization, refusal_of
from datastore.engine.engine import Engine
from datastore.engine.listener import MAX_PENDING
from datastore.engine.process import Child
from datastore.engine.programs import find_program
from tests.support.command_line import refused_in_a_line, run_command, run_here
from tests.support.ports import free_port
from tests.support.store_engines import ROOT

KEY = "a-key-that-nobody-could-ever-guess-0123456789"
LIST = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
SIGNED = "20200101/local/dynamodb/aws4_request, SignedHeaders=host;x-amz-date, Signature=0"
UNPORTED = pytest.mark.skipif(platform.machine() not in engine_seccomp.MACHINES, reason="needs Linux's seccomp filters")


@pytest.fixture(params=["gate", "relay"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    """Yield an engine without a port of its own, or one behind the relay for systems without filters."""
    if request.param == "relay":
        monkeypatch.setattr(Child, "confined", False)
    monkeypatch.setenv(VARIABLE, KEY)
    async with Engine(find_program(ROOT), tmp_path) as engine:
        assert engine.key == KEY
        yield engine


def headers(credential: str = KEY, **more: str) -> dict[str, str]:
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}/{SIGNED}"
    return {**LIST, "X-Amz-Date": "20200101T000000Z", "Authorization": authorization} | more


async def raw_answer(engine: Engine, method: str = "POST", **given: Any) -> tuple[int, Any, list[str]]:
    """Send a request on a new connection. Return the response's status, JSON and header names."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, engine.endpoint, **{"data": b"{}", **given}) as response,
    ):
        return response.status, await response.json(content_type=None), [name.lower() for name in response.headers]


def port_of_engine(engine: Engine) -> int:
    return int(engine.endpoint.rpartition(":")[2])


async def test_only_requests_with_the_key_are_answered(engine: Engine) -> None:
    assert (await raw_answer(engine, headers=headers()))[:2] == (200, {"TableNames": []})
    without = [
        LIST,
        headers("local"),
        headers(KEY[:-1]),
        headers(KEY + "0"),
        headers(KEY.upper()),
        headers("x/" + KEY),
        LIST | {"Authorization": f"Bearer {KEY}"},
        LIST | {"Authorization": KEY},
    ]
    for given in without:
        status, refusal, _ = await raw_answer(engine, headers=given)
        assert (status, refusal["__type"].rpartition("#")[2]) == (403, "AccessDeniedException"), given
        assert KEY not in json.dumps(refusal)


async def test_pages_in_browsers_are_refused_also_with_the_key(engine: Engine) -> None:
    """No header allows a browser's page to read the response, or to send another request."""
    preflight = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-amz-target",
    }
    for method, given in (
        ("POST", headers(Origin="https://evil.example")),
        ("POST", headers(origin="null")),
        ("POST", LIST | {"Origin": "http://127.0.0.1:8000"}),
        ("OPTIONS", preflight),
        ("GET", {}),
    ):
        status, _, names = await raw_answer(engine, method, headers=given)
        assert status == 403, given
        assert [name for name in names if name.startswith("access-control-")] == []


async def test_the_key_is_read_from_a_request_in_any_pieces(engine: Engine) -> None:
    body = json.dumps({"ExclusiveStartTableName": "x" * 20_000}).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers().items())
    small = f"POST / HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 2\r\n\r\n{{}}".encode()
    large = f"POST / HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
    for pieces in ([small], [small[at : at + 7] for at in range(0, len(small), 7)], [large], [small + small]):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of_engine(engine))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        for _ in range(2):  # later requests on the connection are not checked
            assert (await reader.readuntil(b"\r\n\r\n")).startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
            await reader.readuntil(b"}")
            if pieces != [small + small]:
                writer.write(small)
        writer.close()
        await writer.wait_closed()


async def test_connections_without_a_key_do_not_block_others(engine: Engine) -> None:
    async with AsyncExitStack() as stack:
        for number in range(MAX_PENDING + 20):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of_engine(engine))
            stack.callback(writer.close)
            if number % 2:
                writer.write(b"POST / HTTP/1.1\r\nAuthorization: AWS4")
        assert (await raw_answer(engine, headers=headers()))[0] == 200


async def test_a_head_without_an_end_is_cut_off(engine: Engine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of_engine(engine))
    writer.write(b"POST / HTTP/1.1\r\nX: " + b"x" * 2**17)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


def tcp_sockets(process: int) -> set[str]:
    """Return the inodes of a process's TCP sockets."""
    links = set()
    for name in os.listdir(f"/proc/{process}/fd"):
        with suppress(FileNotFoundError):  # it has been closed since it was listed
            links.add(os.readlink(f"/proc/{process}/fd/{name}"))
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {f"socket:[{line.split()[9]}]" for line in lines} & links


@UNPORTED
async def test_the_engine_has_no_port_of_its_own(tmp_path: Path) -> None:
    async with Engine(find_program(ROOT), tmp_path):
        if not Child.confined:
            pytest.skip("This system allows no filter.")
        process = json.loads((tmp_path / "engine.json").read_text())["pid"]
        assert await asyncio.to_thread(tcp_sockets, process) == set()
        assert await asyncio.to_thread(tcp_sockets, os.getpid()) != set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
async def test_another_user_of_the_machine_gets_nothing(engine: Engine) -> None:
    script = """
import encodings.idna, os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as connection:
    connection.sendall(sys.argv[2].encode())
    print(connection.recv(1000).split()[1].decode())
"""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers("local").items())
    request = f"POST / HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 2\r\n\r\n{{}}"
    command = [sys.executable, "-c", script, str(port_of_engine(engine)), request]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert done.stdout == "403\n"


@UNPORTED
@pytest.mark.parametrize("lack", ["filter", "memory"])
async def test_a_system_without_filters_uses_the_relay_and_reports_it(
    lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Child, "confined", True)
    if lack == "filter":
        monkeypatch.setattr(engine_seccomp, "FILTER_FLAGS", 1 << 30)
    else:
        monkeypatch.setattr(engine_seccomp, "MEMORY", "/proc/{}/no-mem")
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        async with Engine(find_program(ROOT), tmp_path) as engine:
            assert (await raw_answer(engine, headers=headers(engine.key)))[0] == 200
            assert (await raw_answer(engine, headers=headers("other")))[0] == 403
    warnings = [record.getMessage() for record in caplog.records if "own port" in record.getMessage()]
    assert len(warnings) == 1


async def test_the_key_is_kept_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    keys = []
    for _ in range(2):
        async with Engine(find_program(ROOT), tmp_path) as engine, Engine(find_program(ROOT), tmp_path) as other:
            keys += [engine.key, other.key, (tmp_path / "engine.key").read_text()]
            assert (await raw_answer(other, headers=headers(other.key)))[0] == 200
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64


@pytest.mark.proof
async def test_other_processes_reach_the_engine_of_a_service_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    url = f"http://127.0.0.1:{free_port()}"
    async with Engine(find_program(ROOT), tmp_path, listen=("0.0.0.0", int(url.rpartition(":")[2]))):
        async with open_database(StoreOptions(store=url)) as database:
            assert len(await database.create_tables()) == len(await database.describe_tables())
        done = await asyncio.to_thread(run_command, "tables", "describe", GATEWAY_STORE=url, GATEWAY_ENGINE_KEY=KEY)
        assert (done.returncode, done.stderr) == (0, "")
        for given in ({}, {"GATEWAY_ENGINE_KEY": "k" * 40}):
            done = await asyncio.to_thread(run_command, "tables", "describe", GATEWAY_STORE=url, **given)
            refused_in_a_line(done, 1, "access key is missing or wrong: set GATEWAY_ENGINE_KEY to the engine's")
            done = await asyncio.to_thread(run_command, "dlq", "list", GATEWAY_STORE=url, **given)
            refused_in_a_line(done, 1, "access key is missing or wrong: set GATEWAY_ENGINE_KEY to the engine's")


def test_an_invalid_key_is_reported(tmp_path: Path) -> None:
    words = "GATEWAY_ENGINE_KEY must have 32 to 128 letters, digits, - or _"
    for given in (["--data-dir", tmp_path], ["--store", "http://127.0.0.1:1"]):
        refused_in_a_line(run_here("tables", "describe", *given, GATEWAY_ENGINE_KEY="short"), 1, words)
    (tmp_path / "engine.key").write_text("short")
    refused_in_a_line(run_here("tables", "describe", "--data-dir", tmp_path), 1, "engine.key holds no access key")


def test_a_head_is_parsed_strictly() -> None:
    def head(*lines: str) -> bytes:
        return "\r\n".join(["POST / HTTP/1.1", *lines, "", ""]).encode()

    good = f"authorization: {authorization(KEY)}"
    assert refusal_of(head("Host: x", good), KEY) is None
    for lines in ([good, good], [good, "ORIGIN: x"], [good, "Origin : x"], [f"X-{good}"], [good, "\tOrigin: x"], []):
        assert refusal_of(head(*lines), KEY) is not None, lines
    assert refusal_of(head("Host: x\nOrigin: y", good), KEY) is not None
    assert refusal_of(head("Host: x") + good.encode(), KEY) is not None


SQUATTER = """
import encodings.idna, os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print("ready", flush=True)
taken = 0
while not os.path.exists(sys.argv[2]):
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket() as squatter:
            for option in options:
                squatter.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                squatter.bind(("127.0.0.1", int(sys.argv[1])))
                taken += 1
            except OSError:
                pass
print(taken)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
async def test_no_other_user_gets_the_port_while_the_engine_is_gone(engine: Engine, tmp_path: Path) -> None:
    """Otherwise clients would send the key to that user."""
    record = json.loads((tmp_path / "engine.json").read_text())
    done = Path("/dev/shm") / f"done-{record['pid']}"
    command = [sys.executable, "-c", SQUATTER, str(port_of_engine(engine)), str(done)]
    squatter = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert squatter.stdout is not None
    assert await squatter.stdout.readline() == b"ready\n"
    endpoint = engine.endpoint
    try:
        for restarts in (1, 2):
            os.kill(json.loads((tmp_path / "engine.json").read_text())["pid"], signal.SIGKILL)
            async with asyncio.timeout(50):
                while engine.restarts < restarts:  # noqa: ASYNC110 - it tells no event
                    await asyncio.sleep(0.01)
    finally:
        done.touch()
        taken = await squatter.stdout.read()
        done.unlink()
        await squatter.wait()

    assert (taken, engine.endpoint) == (b"0\n", endpoint)
    assert (await raw_answer(engine, headers=headers()))[0] == 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
async def test_connections_above_the_limit_of_the_engine_wait_for_the_others(engine: Engine, tmp_path: Path) -> None:
    process = json.loads((tmp_path / "engine.json").read_text())["pid"]
    resource.prlimit(process, resource.RLIMIT_NOFILE, (64, 64))
    most = 64 - len(os.listdir(f"/proc/{process}/fd"))
    answered: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of_engine(engine))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers().items())
        writer.write(f"POST / HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 2\r\n\r\n{{}}".encode())
        status = await reader.readline()
        answered.put_nowait(writer)
        return status

    async with asyncio.timeout(50):
        tasks = [asyncio.create_task(ask()) for _ in range(80)]
        held = [await answered.get() for _ in range(most)]
        await asyncio.sleep(0.2)  # in this time the engine finds that it can accept no more
        for writer in held:
            writer.close()
        for _ in range(len(tasks) - len(held)):
            (await answered.get()).close()
        statuses = await asyncio.gather(*tasks)

    assert {status.split()[1] for status in statuses} == {b"200"}
    assert (await raw_answer(engine, headers=headers()))[0] == 200
