"""MiniStack as the embedded engine if dynoxide is not installed, in a copy of the project without dynoxide."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.engine.engine import Engine
from datastore.engine.process import EngineFailed
from datastore.engine.programs import BINARY, Dynoxide, EngineMissing, MiniStack, find_program, npm_platform
from tests.support.command_line import surroundings
from tests.support.ports import free_port
from tests.support.resuming_clients import EventStreamClient
from tests.support.store_engines import ROOT
from tests.support.usgs_samples import feature, feed_bytes

PYTHON = ROOT / ".venv-ministack" / "bin" / "python"
LEFT_OUT = shutil.ignore_patterns("node_modules", ".*", "__pycache__", "tests", "docs", "benchmarks", "build")
# Each test starts a gateway on MiniStack.
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not PYTHON.exists(), reason="MiniStack is not installed: make .venv-ministack/.ready"),
]
READS = """{
  sightings(area: "Downtown", first: 3) { nodes { description } }
  earthquakes(minMagnitude: 4.5, first: 3) { nodes { place } }
  photos(first: 3) { nodes { thumbnailUrl } }
}"""
HOME = '{ homeFeed(userId: "demo", first: 3) { nodes { post { text } } } }'
REPORT = """mutation {
  reportSighting(input: {area: "Downtown", category: "Cats", description: "A tabby"}) { sightingId }
}"""

CREATE = """mutation {
  createLivestream(
    input: {title: "Storks", streamUrl: "https://example.com/storks", startTime: "2026-06-25T12:00:00Z"}
  ) { livestreamId }
}"""
UPDATE = """mutation {
  updateFixture(id: "%s", input: {round: "Grand final", venue: {name: "The Oval"}}) { round revision }
}"""
WRITTEN = """{
  livestream(id: "%s") { title }
  matches(ids: ["%s"]) { round venue { name } }
}"""
REPORTED = '{ sightings(area: "Downtown", first: 25) { nodes { description } } }'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with MiniStack but without dynoxide."""
    copy = tmp_path_factory.mktemp("clone") / "project"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    (copy / ".venv-ministack").symlink_to(PYTHON.parent.parent)
    return copy


def without_dynoxide(folder: Path, **given: str) -> dict[str, str]:
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "dynoxide").exists())
    found = surroundings(PATH=path, GATEWAY_DATA_DIR=str(folder), **given)
    found.pop(BINARY, None)
    return found


class Ended(Exception):
    """The error that ended a subscription, with its codes and messages."""


class Fallback:
    """Start a gateway from the copy, and stop it at the end."""

    def __init__(self, url: str, log: Path, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._log = log
        self._http = http

    @property
    def output(self) -> str:
        return self._log.read_text()

    def _headers(self, user: str) -> dict[str, str]:
        tokens = [line.split()[-1] for line in self.output.splitlines() if line.startswith(f"{user} token")]
        return {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}

    async def post(self, query: str, user: str = "Demo user") -> Any:
        """Execute an operation as a user of the demo. Return the whole response, with errors."""
        headers = self._headers(user)
        async with self._http.post(f"{self._url}/graphql", json={"query": query}, headers=headers) as response:
            return await response.json(content_type=None)

    async def data(self, query: str, user: str = "Demo user") -> Any:
        answer = await self.post(query, user)
        assert "errors" not in answer, answer
        return answer["data"]

    @asynccontextmanager
    async def listening(self, subscription: str) -> AsyncIterator[AsyncIterator[Any]]:
        """Yield the data of a subscription's events from now on.

        Raises:
            Ended: The subscription sent an error.
        """
        client = EventStreamClient(self._http, f"subscription {{ {subscription} }}", self._headers("Demo user"))
        async with client.connected(self._url) as received:

            async def events() -> AsyncIterator[Any]:
                if "data" in first:
                    yield first["data"]
                async for payload in received:
                    if "errors" in payload:
                        raise Ended([(error["extensions"]["code"], error["message"]) for error in payload["errors"]])
                    if "data" in payload:
                        yield payload["data"]

            first = await anext(received)  # a snapshot, or the start of the subscription
            yield events()


@asynccontextmanager
async def serve_fallback(project: Path, folder: Path, *arguments: str) -> AsyncIterator[Fallback]:
    port, log = free_port(), folder.with_suffix(".log")
    environment = without_dynoxide(folder, GATEWAY_PORT=str(port))
    with log.open("wb") as file:
        command = [sys.executable, "gateway.py", "serve", *arguments]
        process = await asyncio.to_thread(
            subprocess.Popen, command, cwd=project, env=environment, stdout=file, stderr=file
        )
    try:
        async with aiohttp.ClientSession() as http:
            gateway = Fallback(f"http://127.0.0.1:{port}", log, http)
            async with asyncio.timeout(50):
                while "Stop with" not in gateway.output and process.poll() is None:  # noqa: ASYNC110 - over a file
                    await asyncio.sleep(0.05)
            assert process.poll() is None, gateway.output
            yield gateway
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 25) == 0, gateway.output
    finally:
        process.kill()
        process.wait()


def run_gateway(project: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "gateway.py", *arguments]
    environment = without_dynoxide(folder)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=40)


@pytest.mark.timeout(240)
async def test_all_systems_are_served_with_subscriptions_and_the_data_stay(project: Path, tmp_path: Path) -> None:
    """The data survive a kill of the engine, because it has written a file, and a stop of the gateway."""
    folder = tmp_path / "data"
    quake = feature(id="usfallback", time=int(datetime.now(UTC).timestamp() * 1000), mag=6.5)
    (tmp_path / "feed.json").write_bytes(feed_bytes(quake))
    async with serve_fallback(project, folder) as gateway:
        assert gateway.output.count("MiniStack") == 1  # the notice is one line
        found = await gateway.data(READS)
        assert all(connection["nodes"] for connection in found.values()), found
        await report_and_receive(gateway)
        async with gateway.listening('postEngagement(postId: "demo-1") { likeCount }') as events:
            await gateway.data('mutation { likePost(postId: "demo-1") { createdAt } }')
            assert (await anext(events))["postEngagement"]["likeCount"] >= 1
        # The pipeline has handled the demo's posts before the like.
        assert (await gateway.data(HOME))["homeFeed"]["nodes"]
        async with gateway.listening("livestreamChanged { livestreamId }") as events:
            livestream = (await gateway.data(CREATE, "Admin"))["createLivestream"]["livestreamId"]
            while (await anext(events))["livestreamChanged"]["livestreamId"] != livestream:
                pass
        async with gateway.listening("liveScores { isSnapshot updates { matchId version } }") as events:
            assert (await anext(events))["liveScores"]["isSnapshot"]
            while not (await anext(events))["liveScores"]["updates"]:
                pass  # until the demo's matches are polled
        match = (await gateway.data("{ liveMatches { matchId } }"))["liveMatches"][0]["matchId"]
        await gateway.data(UPDATE % match, "System")
        written = await gateway.data(WRITTEN % (livestream, match))
        assert written["matches"] == [{"round": "Grand final", "venue": {"name": "The Oval"}}]
        async with gateway.listening("earthquakeDetected(minMagnitude: 6.4) { eventId }") as events:
            # Run another command on the same data directory.
            done = await asyncio.to_thread(
                run_gateway, project, folder, "ingest", "earthquakes", str(tmp_path / "feed.json")
            )
            assert done.returncode == 0, done.stderr
            while (await anext(events))["earthquakeDetected"]["eventId"] != "usfallback":
                pass
        async with gateway.listening("sightingReported { description }") as events:
            await saved(folder, "usfallback")  # the change written last
            await kill_engine(folder / "engine.json")
            with pytest.raises(Ended, match=r"UNAVAILABLE.*subscribe again"):
                async for _ in events:
                    pass
        assert await data_after_retries(gateway, WRITTEN % (livestream, match)) == written
        await report_and_receive(gateway)
    async with serve_fallback(project, folder, "--no-demo") as gateway:
        found = await gateway.data("{ earthquakes(minMagnitude: 6.4, first: 100) { nodes { eventId } } }")
        assert {"eventId": "usfallback"} in found["earthquakes"]["nodes"]
        assert await gateway.data(WRITTEN % (livestream, match)) == written


@pytest.mark.timeout(120)
async def test_an_engine_in_memory_keeps_nothing_and_starts_empty_after_a_kill(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with serve_fallback(project, folder, "--memory", "--matches", "none") as gateway:
        await report_and_receive(gateway)
        assert not (folder / MiniStack.file).exists()
        await gateway.data(CREATE, "Admin")
        await kill_engine(folder / "memory.json")
        await data_after_retries(gateway, REPORT)  # the tables were created again
        found = await gateway.data(REPORTED)
        assert {"description": "A tabby"} in found["sightings"]["nodes"]
        assert (await gateway.data("{ livestreams(first: 1) { nodes { title } } }"))["livestreams"]["nodes"] == []


async def report_and_receive(gateway: Fallback) -> None:
    """Report a sighting, which a subscriber receives."""
    async with gateway.listening("sightingReported { description }") as events:
        await gateway.data(REPORT)
        while (await anext(events))["sightingReported"]["description"] != "A tabby":
            pass  # a sighting of the demo


async def saved(folder: Path, text: str) -> None:
    """Wait until a text is in the file that the engine writes."""
    async with asyncio.timeout(50):
        while text not in (folder / MiniStack.file).read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


async def kill_engine(record: Path) -> None:
    """Kill the engine that a data directory's record names, and wait until the record names another one."""
    killed = pid_in(record)
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(50):
        while pid_in(record) == killed:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


def pid_in(record: Path) -> int:
    return int(json.loads(record.read_text())["pid"])


async def data_after_retries(gateway: Fallback, query: str) -> Any:
    """Return the data of an operation. Retry while the engine and its tables are not available again."""
    async with asyncio.timeout(50):
        while "errors" in (answer := await gateway.post(query)):
            assert {error["extensions"]["code"] for error in answer["errors"]} <= {"UNAVAILABLE", "INTERNAL"}, answer
            await asyncio.sleep(0.05)
    return answer["data"]


def own_socket(folder: Path) -> Path:
    """Return the path of the socket of the engine with this data directory, from its command line."""
    pid = str(json.loads((folder / "engine.json").read_text())["pid"])
    command = subprocess.run(["ps", "-ww", "-o", "command=", "-p", pid], capture_output=True, text=True, check=True)
    return next(Path(part) for part in command.stdout.split() if part.endswith("/socket"))


async def test_clients_need_the_access_key_and_no_port_is_open(tmp_path: Path) -> None:
    async with Engine(MiniStack(PYTHON), tmp_path) as engine, aiohttp.ClientSession() as http:
        async with http.post(engine.endpoint, headers={"X-Amz-Target": "DynamoDB_20120810.ListTables"}) as response:
            assert response.status == 403
        own = own_socket(tmp_path)
        assert own.parent.stat().st_mode & 0o077 == 0
    assert not own.parent.exists()


async def test_tables_of_another_engine_are_refused(tmp_path: Path) -> None:
    (tmp_path / Dynoxide.file).touch()
    with pytest.raises(EngineFailed, match=r"holds the tables of dynoxide, but the engine here is MiniStack: .*--data"):
        async with Engine(MiniStack(PYTHON), tmp_path):
            pass


async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / MiniStack.file).write_text("{")
    with pytest.raises(EngineFailed, match=r"holds no tables of MiniStack: restore it, or delete it"):
        async with Engine(MiniStack(PYTHON), tmp_path):
            pass


def test_ministack_is_the_engine_only_where_dynoxide_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(BINARY, raising=False)
    with pytest.raises(EngineMissing):
        find_program(tmp_path)
    (tmp_path / ".venv-ministack").symlink_to(PYTHON.parent.parent)
    assert find_program(tmp_path).name == "MiniStack"
    (tmp_path / "dynoxide").touch(mode=0o755)
    assert find_program(tmp_path).name == "dynoxide"


def test_setup_installs_optional_packages_though_npm_is_set_up_to_omit_them(tmp_path: Path) -> None:
    """Without them the page could not be built, and dynoxide would be missing on the platforms that npm has it for."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / name, tmp_path)
    rule = subprocess.run(
        ["make", "-n", "-B", "node_modules/.ready"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    command = next(line.split() for line in rule.stdout.splitlines() if line.startswith("npm ci"))
    environment = {**os.environ, "NPM_CONFIG_OMIT": "optional"}

    done = subprocess.run(
        [*command, "--dry-run", "--loglevel=notice"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    added = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("add ")}
    assert any(name.startswith("@rolldown/binding-") for name in added), done.stdout
    assert ("@dynoxide/linux-x64" in added) == (npm_platform() == "linux-x64")
