"""The embedded engine as a process: its owner, the data that survive a kill, and its error messages."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

from datastore.engine import engine as module
from datastore.engine import process as engine_process
from datastore.engine.directory import EngineDirectory
from datastore.engine.engine import Engine
from datastore.engine.process import EngineFailed
from datastore.engine.programs import Dynoxide, EngineMissing, find_binary, npm_platform
from tests.support.supervisor import is_running
from tests.support.until import until
from tests.support.wire_server import ServerTalk, serve_script

ROOT = Path(__file__).parents[4]

OWNER = """
import asyncio, pathlib, sys
from datastore.engine.engine import Engine
from datastore.engine.programs import Dynoxide

async def own():
    async with Engine(Dynoxide(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])) as engine:
        print(engine.endpoint, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(own())
"""


@pytest.fixture(scope="module")
def binary() -> Dynoxide:
    try:
        return Dynoxide(find_binary(ROOT))
    except EngineMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def owner(binary: Dynoxide, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield another command that has started the engine of `tmp_path`. It ends when its stdin closes."""
    command = [sys.executable, "-c", OWNER, str(binary.binary), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        yield process
        process.kill()


@pytest.fixture
def left(binary: Dynoxide, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield an engine without an owner, as remains on a system that does not end a child with its parent."""
    free = next(filter(engine_process.is_free, random.sample(module.PORTS, 200)))
    command = [str(binary.binary), "serve", "--port", str(free), "--db-path", str(tmp_path / "engine.sqlite")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"listening on" in process.stderr.readline()
        record = {"endpoint": f"http://127.0.0.1:{free}", "pid": process.pid, "key": "of an engine that is gone"}
        (tmp_path / "engine.json").write_text(json.dumps(record))
        yield process
        process.kill()


def dynamodb(engine: Engine) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=engine.endpoint,
        region_name="local",
        aws_access_key_id=engine.key,
        aws_secret_access_key="local",
    )


async def make_table(engine: Engine) -> None:
    await asyncio.to_thread(
        dynamodb(engine).create_table,
        TableName="birds",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


async def put_bird(engine: Engine, key: str) -> None:
    await asyncio.to_thread(dynamodb(engine).put_item, TableName="birds", Item={"pk": {"S": key}})


async def bird_keys(engine: Engine) -> set[str]:
    found = await asyncio.to_thread(dynamodb(engine).scan, TableName="birds")
    return {item["pk"]["S"] for item in found["Items"]}


async def tables(engine: Engine) -> list[str]:
    found = await asyncio.to_thread(dynamodb(engine).list_tables)
    return list(found["TableNames"])


def pid(folder: Path) -> int:
    return int(json.loads((folder / "engine.json").read_text())["pid"])


def port_of_endpoint(endpoint: str) -> int:
    return int(endpoint.rsplit(":", 1)[1])


async def is_answering(engine: Engine) -> bool:
    return await engine_process.answers(engine.endpoint, engine.key)


async def test_commands_that_name_the_same_folder_share_an_engine_in_memory(binary: Dynoxide, tmp_path: Path) -> None:
    async with Engine(binary, tmp_path, memory=True) as engine:
        await make_table(engine)
        await put_bird(engine, "wren")
        async with Engine(binary, tmp_path, memory=True) as other, Engine(binary, tmp_path) as stored:
            assert (other.endpoint, other.attached) == (engine.endpoint, True)
            assert await bird_keys(other) == {"wren"}
            assert (stored.endpoint != engine.endpoint, stored.attached) == (True, False)
        assert await bird_keys(engine) == {"wren"}
    async with Engine(binary, tmp_path, memory=True) as anew:
        await make_table(anew)
        assert await bird_keys(anew) == set()


async def test_starts_in_memory_and_stops(binary: Dynoxide) -> None:
    async with Engine(binary) as engine:
        await make_table(engine)
        assert await tables(engine) == ["birds"]
        assert not engine.attached
    assert not await is_answering(engine)


async def test_data_survives_the_process(binary: Dynoxide, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there yet"
    async with Engine(binary, folder) as engine:
        await make_table(engine)
        await put_bird(engine, "wren")
    assert not (folder / "engine.json").exists()
    async with Engine(binary, folder) as engine:
        assert await bird_keys(engine) == {"wren"}


async def test_two_folders_have_two_engines(binary: Dynoxide, tmp_path: Path) -> None:
    async with Engine(binary, tmp_path / "a") as one, Engine(binary, tmp_path / "b") as other, Engine(binary) as third:
        assert len({one.endpoint, other.endpoint, third.endpoint}) == 3


async def test_second_command_attaches(binary: Dynoxide, tmp_path: Path) -> None:
    async with Engine(binary, tmp_path) as first:
        await make_table(first)
        async with Engine(binary, tmp_path) as second:
            assert (second.endpoint, second.attached) == (first.endpoint, True)
            await put_bird(second, "wren")
        assert await bird_keys(first) == {"wren"}


async def test_many_commands_at_once_share_one_engine(binary: Dynoxide, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        engines = [Engine(binary, tmp_path) for _ in range(6)]
        await asyncio.gather(*(stack.enter_async_context(engine) for engine in engines))
        assert len({engine.endpoint for engine in engines}) == 1
        assert [engine.attached for engine in engines].count(False) == 1


async def test_attached_takes_over_when_the_owner_ends(
    binary: Dynoxide, tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    restarted = asyncio.Event()

    async def on_restart() -> None:
        restarted.set()

    async with Engine(binary, tmp_path, on_restart) as engine:
        endpoint = engine.endpoint
        await make_table(engine)
        await put_bird(engine, "wren")
        owner.communicate()
        await asyncio.wait_for(restarted.wait(), 50)
        assert (engine.endpoint, engine.attached, engine.restarts) == (endpoint, False, 1)
        assert await bird_keys(engine) == {"wren"}


async def test_moves_when_its_port_is_lost(binary: Dynoxide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This tests a system on which ports cannot be reserved."""

    def refused(*_: object, **__: object) -> socket.socket:
        raise EngineFailed("Two sockets cannot have one port here.")

    monkeypatch.setattr(module, "bound", refused)
    monkeypatch.setattr(module, "FIRST_DELAY", 0.5)
    async with Engine(binary, tmp_path) as engine, Engine(binary, tmp_path) as follower:
        lost = engine.endpoint
        os.kill(pid(tmp_path), signal.SIGKILL)
        await until(lambda: engine_process.is_free(port_of_endpoint(lost)))
        with socket.create_server(("127.0.0.1", port_of_endpoint(lost))):
            await until(lambda: engine.restarts == 1)
            assert engine.endpoint != lost
            await until(lambda: follower.endpoint == engine.endpoint)
            assert await is_answering(follower)


async def test_killed_engine_is_restarted_on_the_same_port(binary: Dynoxide) -> None:
    restarted = asyncio.Event()

    async def on_restart() -> None:
        await make_table(engine)
        restarted.set()

    async with Engine(binary, on_restart=on_restart) as engine:
        endpoint = engine.endpoint
        assert engine._running is not None
        for restart in (1, 2):
            os.kill(engine._running.pid, signal.SIGKILL)
            await asyncio.wait_for(restarted.wait(), 50)
            restarted.clear()
            assert (engine.endpoint, engine.restarts) == (endpoint, restart)
            assert await tables(engine) == ["birds"]


async def test_engine_that_keeps_dying_is_restarted_ever_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(module, "MAX_DELAY", 0.04)
    sick = tmp_path / "dynoxide"
    sick.write_text("#!/bin/sh\necho listening on\necho error: disk full\n")
    sick.chmod(0o755)
    async with Engine(Dynoxide(sick)) as engine:
        await until(lambda: engine.restarts >= 4)
    assert [record.args for record in caplog.records][:4] == [
        ("disk full", delay) for delay in (0.01, 0.02, 0.04, 0.04)
    ]


async def test_engine_that_served_for_a_second_is_restarted_as_soon_as_the_first_time(
    binary: Dynoxide, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(binary) as engine:
        for restart in (1, 2, 3):
            assert engine._running is not None
            engine._answers_since -= 1.1
            os.kill(engine._running.pid, signal.SIGKILL)
            await until(lambda restart=restart: engine.restarts == restart)  # type: ignore[misc]
    assert [record.args for record in caplog.records] == [("killed by signal 9", 0.1)] * 3


async def test_failing_callback_does_not_end_the_watch(binary: Dynoxide) -> None:
    async def on_restart() -> None:
        raise RuntimeError("no tables today")

    async with Engine(binary, on_restart=on_restart) as engine:
        for restart in (1, 2):
            assert engine._running is not None
            os.kill(engine._running.pid, signal.SIGKILL)
            await until(lambda restart=restart: engine.restarts == restart)  # type: ignore[misc]
        assert await is_answering(engine)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the engine stays until it is ended")
async def test_killed_owner_leaves_no_engine(binary: Dynoxide, tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    orphan = pid(tmp_path)
    assert is_running(orphan)
    owner.kill()
    await until(lambda: not is_running(orphan))
    async with Engine(binary, tmp_path) as engine:
        assert not engine.attached
        assert pid(tmp_path) != orphan


async def test_attached_takes_over_from_a_killed_owner(
    binary: Dynoxide, tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    async with Engine(binary, tmp_path) as engine:
        endpoint, orphan = engine.endpoint, pid(tmp_path)
        await make_table(engine)
        owner.kill()
        await until(lambda: engine.restarts == 1)
        assert engine.endpoint == endpoint
        assert await tables(engine) == ["birds"]
        if sys.platform == "linux":
            assert pid(tmp_path) != orphan


async def test_engine_left_behind_is_ended_and_its_port_taken(
    binary: Dynoxide, tmp_path: Path, left: subprocess.Popen[bytes]
) -> None:
    endpoint = json.loads((tmp_path / "engine.json").read_text())["endpoint"]
    async with Engine(binary, tmp_path) as engine:
        assert left.wait(1) == 0
        assert (engine.attached, engine.endpoint) == (False, endpoint)
        assert pid(tmp_path) != left.pid
        assert await is_answering(engine)


async def test_a_stale_record_of_another_engine_is_ignored(binary: Dynoxide, tmp_path: Path) -> None:
    async with Engine(binary, tmp_path / "theirs") as other_engine:
        own_folder = tmp_path / "ours"
        own_folder.mkdir()
        (own_folder / "engine.json").write_bytes((tmp_path / "theirs" / "engine.json").read_bytes())
        async with Engine(binary, own_folder) as engine:
            assert engine.endpoint != other_engine.endpoint
        assert await is_answering(other_engine)


async def test_engine_that_ignores_sigterm_is_killed(binary: Dynoxide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "STOP_SECONDS", 0.2)
    async with Engine(binary) as engine:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of_endpoint(engine.endpoint))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.05)
    assert not await is_answering(engine)
    writer.close()


async def test_ctrl_c_at_the_terminal_spares_the_engine(binary: Dynoxide) -> None:
    async with Engine(binary) as engine:
        assert engine._running is not None
        assert os.getpgid(engine._running.pid) != os.getpgrp()


async def test_a_corrupt_file_is_reported_in_one_line(binary: Dynoxide, tmp_path: Path) -> None:
    (tmp_path / "engine.sqlite").write_bytes(b"not a database " * 500)
    with pytest.raises(
        EngineFailed, match=r"did not start on .*engine\.sqlite: .*not a valid SQLite database"
    ) as failure:
        async with Engine(binary, tmp_path):
            pass
    assert "\n" not in str(failure.value)
    (tmp_path / "engine.sqlite").unlink()
    async with Engine(binary, tmp_path) as engine:  # the failed engine released the lock
        assert not engine.attached


async def test_an_unusable_folder_and_program_are_reported(binary: Dynoxide, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineFailed, match=r"data directory .*file cannot be used: Not a directory\."):
        async with Engine(binary, tmp_path / "file"):
            pass
    with pytest.raises(EngineFailed, match="cannot be run: Permission denied"):
        async with Engine(Dynoxide(tmp_path / "file")):
            pass


async def test_an_owner_that_never_answers_is_reported(
    binary: Dynoxide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "START_SECONDS", 0.2)
    silent = EngineDirectory(tmp_path)
    silent.open()
    assert silent.acquire()
    with pytest.raises(EngineFailed, match=r"engine\.lock is held, but the engine of its owner does not answer"):
        async with Engine(binary, tmp_path):
            pass
    silent.close()


async def test_a_probe_ends_although_a_peer_sends_its_response_slowly() -> None:
    """Another process may have the port of an engine that has ended."""

    async def send_slowly(talk: ServerTalk) -> None:
        while True:
            await talk.say(b"H", pause=0.05)

    async with asyncio.timeout(20), serve_script(send_slowly) as server:
        assert not await engine_process.answers(server.url, "key")


def test_binary_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("DYNOXIDE_BINARY", raising=False)
    with pytest.raises(EngineMissing, match=r"not installed: .*npm ci.*github\.com/nubo-db/dynoxide.*--store aws"):
        find_binary(tmp_path)
    packaged = tmp_path / "node_modules/@dynoxide" / npm_platform() / "dynoxide"
    for program in (tmp_path / "bin" / "dynoxide", packaged, tmp_path / "named"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
        if program.name == "named":
            monkeypatch.setenv("DYNOXIDE_BINARY", str(program))
        assert find_binary(tmp_path) == program


def test_named_binary_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOXIDE_BINARY", "/nowhere/dynoxide")
    with pytest.raises(EngineMissing, match="DYNOXIDE_BINARY names /nowhere/dynoxide, which is not a file"):
        find_binary(tmp_path)
