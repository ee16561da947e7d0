"""A full or read-only disk: it is reported, nothing is acknowledged that is not stored, and the gateway continues once
there is room.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import GatewayProcess, refused_in_a_line, run_command, serve_process, surroundings
from tests.support.forking import Forked
from tests.support.photo_files import COMPLETE, RESERVE, picture, upload_blocking
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.small_disk import MEGABYTE, Disk, disk
from tests.support.until import until_blocking

__all__ = ["disk"]

MOST_POSTS = 3000

JOIN = 'mutation { createUser(input: {name: "Ada"}) { userId } }'
ENTER = 'mutation { createPhotoUser(input: {displayName: "Ada"}) { displayName } }'
POST = "mutation { createPost(input: {text: %s}) { postId } }"
POSTS = """{ postsByAuthor(authorId: "ada", first: 50, after: %s) {
  edges { node { text } } pageInfo { endCursor hasNextPage }
} }"""
FULL = {"code": "UNAVAILABLE", "retryable": True, "retryAfter": 5}


@pytest.fixture
def folder(disk: Disk) -> Path:
    return disk.path / "data"


@pytest.fixture
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    with serve_process(folder, "--no-demo", GATEWAY_SECRET=SECRET) as gateway:
        yield gateway


@pytest.fixture
def token() -> str:
    return Tokens(TokenSettings(secret=SECRET)).issue("ada", Role.USER, email="ada@example.com")


def posts(gateway: GatewayProcess, token: str) -> list[str]:
    """Return the texts of all of ada's posts."""
    texts: list[str] = []
    after = "null"
    while True:
        page = gateway.data(POSTS % after, token)["postsByAuthor"]
        texts += [edge["node"]["text"] for edge in page["edges"]]
        if not page["pageInfo"]["hasNextPage"]:
            return texts
        after = json.dumps(page["pageInfo"]["endCursor"])


def post_until_full(gateway: GatewayProcess, token: str, kind: str) -> tuple[list[str], dict[str, Any]]:
    """Return the texts of the acknowledged posts, and the error of the first failed one."""
    acknowledged: list[str] = []
    for number in range(MOST_POSTS):
        text = f"{kind} {number} " + "x" * 400
        answer = gateway.ask(POST % json.dumps(text), token)
        if "errors" in answer:
            return acknowledged, answer["errors"][0]
        acknowledged.append(text)
    raise AssertionError("The disk is never full.")


@pytest.mark.timeout(120)
def test_a_full_disk_is_reported_loses_nothing_and_needs_no_restart(
    disk: Disk, gateway: GatewayProcess, folder: Path, token: str
) -> None:
    engine = json.loads((folder / "engine.json").read_text())
    gateway.data(JOIN, token)
    gateway.data(POST % '"before"', token)
    disk.fill()
    acknowledged, error = post_until_full(gateway, token, "full")

    assert error["extensions"] == FULL
    assert error["message"] == "The store has no room left to write; nothing was written. Try again later."
    assert sorted(posts(gateway, token)) == sorted(["before", *acknowledged])
    assert store_state(gateway) == "disk full"
    assert gateway.output.count("Free space on its disk") == 1

    disk.make_room()
    gateway.data(POST % '"after"', token)
    assert sorted(posts(gateway, token)) == sorted(["before", *acknowledged, "after"])
    assert json.loads((folder / "engine.json").read_text()) == engine
    assert "Traceback" not in gateway.output


@pytest.mark.timeout(120)
def test_a_mutation_with_a_key_is_done_once_there_is_room(disk: Disk, gateway: GatewayProcess, token: str) -> None:
    gateway.data(JOIN, token)
    disk.fill()
    acknowledged, _ = post_until_full(gateway, token, "full")
    keyed = {"query": POST % '"keyed"'}
    refused = post_with_key(gateway, token, keyed)
    assert refused["errors"][0]["extensions"] == {"code": "UNAVAILABLE", "retryable": True}
    disk.make_room()
    done = [post_with_key(gateway, token, keyed) for _ in range(2)]
    assert done[0] == done[1]
    assert "errors" not in done[0]
    assert sorted(posts(gateway, token)) == sorted([*acknowledged, "keyed"])


def post_with_key(gateway: GatewayProcess, token: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", "Idempotency-Key": "one"}
    try:
        with urlopen(Request(f"{gateway.url}/graphql", json.dumps(body).encode(), headers), timeout=20) as response:
            answer: dict[str, Any] = json.load(response)
    except HTTPError as problem:
        with problem:
            answer = json.load(problem)
    return answer


@pytest.mark.timeout(120)
def test_an_upload_that_is_not_stored_creates_no_photo(
    disk: Disk, gateway: GatewayProcess, folder: Path, token: str
) -> None:
    gateway.data(ENTER, token)
    first, second = (gateway.data(RESERVE, token)["createPhoto"] for _ in range(2))
    assert upload_blocking(second["original"]) == 204
    large = picture() + bytes(MEGABYTE)
    for left in (0, MEGABYTE // 2, MEGABYTE - 5000):
        disk.fill(all_but=left)
        assert upload_blocking(first["original"], large) == 503
        assert list((folder / "objects").rglob("*.part")) == []
        answer = gateway.ask(COMPLETE % json.dumps(first["imageId"]), token)
        assert answer["errors"][0]["extensions"]["code"] in ("NOT_FOUND", "CONFLICT", "BAD_USER_INPUT"), answer
        disk.make_room()
    disk.fill()
    answer = gateway.ask(COMPLETE % json.dumps(second["imageId"]), token)
    assert answer["errors"][0]["extensions"]["code"] == "UNAVAILABLE"
    assert "mayHaveBeenApplied" not in answer["errors"][0]["extensions"]

    disk.make_room()
    assert upload_blocking(first["original"]) == 204
    for reserved in (first, second):
        assert gateway.data(COMPLETE % json.dumps(reserved["imageId"]), token)["completePhoto"] is not None
    assert "Traceback" not in gateway.output


@pytest.mark.parametrize("command", [["serve"], ["token"], ["tables", "describe"]])
def test_a_start_on_a_full_disk_ends_with_one_line_and_does_not_prevent_the_next(
    command: list[str], disk: Disk, folder: Path
) -> None:
    disk.fill()
    done = run_command(*command, GATEWAY_DATA_DIR=str(folder))
    words = f"The data directory {folder} cannot be used: No space left on device. Make room on its disk"
    refused_in_a_line(done, 1 if command[0] == "tables" else 2, words)
    disk.make_room()
    done = run_command("tables", "create", GATEWAY_DATA_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    disk.fill()
    done = run_command("tables", "describe", GATEWAY_DATA_DIR=str(folder))
    refused_in_a_line(done, 1, "The disk is full: free some space.")
    disk.make_room()
    assert run_command("tables", "describe", GATEWAY_DATA_DIR=str(folder)).returncode == 0


def test_a_start_on_a_read_only_disk_ends_with_one_line(disk: Disk, folder: Path) -> None:
    assert run_command("tables", "create", GATEWAY_DATA_DIR=str(folder)).returncode == 0
    disk.make_read_only()
    for command, status in ((["serve"], 2), (["token"], 2), (["tables", "describe"], 1)):
        done = run_command(*command, GATEWAY_DATA_DIR=str(folder))
        refused_in_a_line(done, status, f"The data directory {folder} cannot be used: Read-only file system")


@pytest.mark.timeout(120)
def test_an_engine_that_dies_on_a_full_disk_restarts_and_writes_once_there_is_room(
    disk: Disk, gateway: GatewayProcess, folder: Path, token: str
) -> None:
    gateway.data(JOIN, token)
    disk.fill()
    os.kill(json.loads((folder / "engine.json").read_text())["pid"], signal.SIGKILL)
    until_blocking(lambda: "The embedded engine is gone (killed by signal 9)" in gateway.output)
    disk.make_room()
    until_blocking(lambda: gateway.get("/readyz")[0] == 200)
    gateway.data(POST % '"after"', token)
    assert posts(gateway, token) == ["after"]
    done = run_command("tables", "describe", GATEWAY_DATA_DIR=str(folder))
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(120)
def test_a_full_disk_of_an_engine_service_is_named_in_the_logs_the_readiness_and_the_metrics(
    disk: Disk, folder: Path, tmp_path: Path, token: str
) -> None:
    """The gateway knows only what the engine answers; the engine sees its own disk."""
    port, metrics_port, log = free_port(), free_port(), tmp_path / "engine.log"
    environment = {"GATEWAY_DATA_DIR": str(folder), "GATEWAY_ENGINE_KEY": "k" * 32}
    log.touch()
    options = ["engine", "--port", str(port), "--metrics-port", str(metrics_port)]
    engine = Forked("gateway.py", options, surroundings(**environment), stdout=tmp_path / "out", stderr=log)
    store = ["--store", f"http://127.0.0.1:{port}"]
    scraped = {"GATEWAY_ENGINE_KEY": "k" * 32, "GATEWAY_SECRET": SECRET, "GATEWAY_METRICS_TOKEN": "m" * 16}
    try:
        until_blocking(lambda: "Clients need the access key" in log.read_text())
        assert run_command("tables", "create", *store, GATEWAY_ENGINE_KEY="k" * 32).returncode == 0
        with serve_process(tmp_path / "elsewhere", *store, "--no-demo", **scraped) as gateway:
            assert gauge_value(gateway, "gateway_store_disk_full") == 0
            gateway.data(JOIN, token)
            disk.fill()
            _, error = post_until_full(gateway, token, "full")

            assert error["extensions"] == FULL
            assert store_state(gateway) == "disk full"
            assert gauge_value(gateway, "gateway_store_disk_full") == 1
            assert gateway.output.count("Free space on its disk") == 1
            until_blocking(lambda: f"The disk of {folder} is full: free some space." in log.read_text())
            assert engine_disk_space(metrics_port)[0] < MEGABYTE

            disk.make_room()
            gateway.data(POST % '"after"', token)
            assert store_state(gateway) == "ok"
            assert gauge_value(gateway, "gateway_store_disk_full") == 0
            assert engine_disk_space(metrics_port)[0] > MEGABYTE
            until_blocking(lambda: f"The disk of {folder} has enough space again." in log.read_text())
    finally:
        engine.kill()


def gauge_value(gateway: GatewayProcess, name: str) -> float:
    with urlopen(Request(f"{gateway.url}/metrics", headers={"Authorization": "Bearer " + "m" * 16})) as response:
        return sample_value(response.read().decode(), name)


def engine_disk_space(port: int) -> tuple[float, float]:
    """Return the free bytes and the size of the disk, by the engine's metrics."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        page = response.read().decode()
    return sample_value(page, "gateway_disk_free_bytes"), sample_value(page, "gateway_disk_size_bytes")


def sample_value(page: str, name: str) -> float:
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).rpartition(" ")[2])


def store_state(gateway: GatewayProcess) -> str:
    """Return the state of the store in `/readyz`, which has to be 200."""
    status, _, body = gateway.get("/readyz")
    assert status == 200
    return str(json.loads(body)["store"])
