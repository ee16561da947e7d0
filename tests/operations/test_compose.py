"""compose.yaml without Docker: each service's own command and environment, as processes of this machine."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml

from datastore.change_streams.relay.lua import MAX_BYTES
from datastore.model.identity import Role
from deploy.rehearse import instructions
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import surroundings
from tests.support.forking import Forked
from tests.support.operations import metric_names, named_metrics
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.store_engines import ROOT

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
LISTENING = {
    "engine": 8001,
    "redis": 6379,
    "bus": 6379,
    "gateway-1": 8000,
    "gateway-2": 8000,
    "feed-pipeline": 9100,
    "earthquake-pipeline": 9100,
}
GIVEN = {"GATEWAY_SECRET": SECRET, "GATEWAY_ENGINE_KEY": "k" * 40}
READY_SECONDS = 40.0

REPORT = """mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: "Asleep"}) { area } }"""
REPORTED = "subscription { sightingReported { area description } }"
JOIN = """mutation { createUser(input: {name: "Ada"}) { userId } }"""
POST = """mutation { createPost(input: {text: "Good morning"}) { postId } }"""
SEARCH = '{ searchPosts(query: "morn") { nodes { postId } } }'
LIKE = "mutation ($post: ID!) { likePost(postId: $post) { postId } }"
LIKES = "query ($post: ID!) { post(id: $post) { likeCount } }"


def of_the_image() -> dict[str, str]:
    """Return the environment that the Dockerfile sets, without the paths in the image."""
    text = " ".join(rest for name, rest in instructions((ROOT / "Dockerfile").read_text()) if name == "ENV")
    pairs = dict(pair.split("=", 1) for pair in text.split())
    return {name: value for name, value in pairs.items() if name not in ("PATH", "GATEWAY_DATA_DIR")}


class Composed:
    """The services on ports of this machine, with data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Forked | subprocess.Popen[bytes]] = {}
        self.ports = {name: free_port() for name in LISTENING}

    def here(self, name: str, text: str) -> str:
        """Return the text for this machine, on which all services have one address."""
        for other, port in LISTENING.items():
            text = text.replace(f"//{other}:{port}", f"//127.0.0.1:{self.ports[other]}")
        own = str(LISTENING.get(name, ""))
        if own and (text == own or f"127.0.0.1:{own}" in text):
            text = text.replace(own, str(self.ports[name]))
        for variable, value in GIVEN.items():
            if text.startswith(f"${{{variable}:"):
                text = value
        return "" if text.startswith("${") else text

    def environment(self, name: str) -> dict[str, str]:
        set_by_both = of_the_image() | {key: str(value) for key, value in SERVICES[name].get("environment", {}).items()}
        volume = next(iter(SERVICES[name].get("volumes", [f"{name}:/data"]))).partition(":")[0]
        received = {key: self.here(name, value) for key, value in set_by_both.items()}
        if name.endswith("-pipeline"):
            del received["GATEWAY_PORT"]  # set by chance
        given = {
            "GATEWAY_DATA_DIR": str(self._folder / volume),
            "GATEWAY_DRAIN_SECONDS": "0",
        }  # no balancer has to notice
        return surroundings(**received, **given)

    async def start(self, name: str) -> None:
        """Start a service after those that it depends on."""
        if name in self._processes:
            return
        for needed, how in SERVICES[name].get("depends_on", {}).items():
            await self.start(needed)
            if how["condition"] == "service_healthy":
                await self._healthy(needed)
            else:
                assert how["condition"] == "service_completed_successfully"
                await self._completed(needed)
        self._processes[name] = self._process(name)

    def _process(self, name: str) -> Forked | subprocess.Popen[bytes]:
        command = [self.here(name, part) for part in SERVICES[name]["command"]]
        path = self._folder / f"{name}.log"
        if command[0] != "redis-server":
            return Forked("gateway.py", command, self.environment(name), stdout=path, stderr=path)
        command += ["--port", str(self.ports[name]), "--dir", str(self._folder)]
        with path.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    async def _healthy(self, name: str) -> None:
        kind, program, *rest = (self.here(name, part) for part in SERVICES[name]["healthcheck"]["test"])
        assert kind == "CMD"
        here = {"python": [sys.executable], "redis-cli": [program, "-p", str(self.ports[name])]}
        check = [*here[program], *rest]
        async with asyncio.timeout(READY_SECONDS):
            while await self._status(check, self.environment(name)):
                assert self._processes[name].poll() is None, self.log(name)
                await asyncio.sleep(0.1)

    async def _status(self, command: list[str], environment: dict[str, str]) -> int:
        quiet = subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=quiet, stderr=quiet)
        return await process.wait()

    async def _completed(self, name: str) -> None:
        assert await asyncio.to_thread(self._processes[name].wait, READY_SECONDS) == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def stop(self) -> dict[str, int]:
        """Stop the services by SIGTERM, the last started first. Return their exit statuses."""
        statuses = {}
        for name, process in reversed(self._processes.items()):
            process.send_signal(signal.SIGTERM)
            statuses[name] = process.wait(30)
        return statuses

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    if shutil.which("redis-server") is None:
        if os.environ.get("REQUIRE_REDIS") == "1":
            pytest.fail("redis-server is needed.")
        pytest.skip("redis-server is needed.")
    composed = Composed(tmp_path)
    yield composed
    composed.kill()


async def data(session: aiohttp.ClientSession, url: str, token: str, query: str, **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    async with session.post(f"{url}/graphql", json=body, headers={"Authorization": f"Bearer {token}"}) as response:
        answer = await response.json()
    assert "errors" not in answer, answer
    return answer["data"]


async def event_stream(session: aiohttp.ClientSession, url: str, token: str, query: str) -> AsyncIterator[Any]:
    """Yield None once the stream has begun, then the data of each event."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with session.post(f"{url}/graphql", json={"query": query}, headers=headers) as response:
        assert response.status == 200
        yield None
        async for line in response.content:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))["data"]


@pytest.mark.timeout(120)
def test_the_bus_has_a_redis_that_evicts_nothing_and_room_for_ten_tables() -> None:
    environment = SERVICES["gateway-1"]["environment"]
    assert environment["GATEWAY_BUS"] != environment["GATEWAY_REDIS_URL"]
    command = SERVICES[urlsplit(environment["GATEWAY_BUS"]).hostname]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    # A fifth more than the payload was measured (docs/resources.md), plus as much in flight as one table has.
    assert int(options["--maxmemory"].removesuffix("mb")) * 2**20 > (10 * 1.2 + 2) * MAX_BYTES


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_limits_of_its_log_its_memory_and_its_cpus(name: str) -> None:
    service = SERVICES[name]
    assert service["logging"]["driver"] == "json-file"
    options = service["logging"]["options"]
    assert int(options["max-size"].removesuffix("m")) * int(options["max-file"]) <= 100
    assert 0 < service["cpus"] <= 2
    unit = {"m": 1, "g": 1024}
    megabytes = int(service["mem_limit"][:-1]) * unit[service["mem_limit"][-1]]
    command = service["command"]
    if "--maxmemory" in command:
        assert megabytes >= 2 * int(command[command.index("--maxmemory") + 1].removesuffix("mb"))


@pytest.mark.proof
async def test_two_gateways_a_pipeline_redis_and_the_engine_work_together(composed: Composed) -> None:
    for name in ("gateway-1", "gateway-2", "feed-pipeline", "earthquake-pipeline"):
        await composed.start(name)
    one, two = composed.url("gateway-1"), composed.url("gateway-2")
    token = Tokens(TokenSettings(secret=SECRET)).issue("ada", Role.USER)
    async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
        for url in (one, two):
            await until_ready(session, url)

        heard = event_stream(session, two, token, REPORTED)
        await anext(heard)
        reporting = asyncio.create_task(report_until_done(session, one, token))
        event = await anext(heard)
        reporting.cancel()
        assert event == {"sightingReported": {"area": "Downtown", "description": "Asleep"}}
        await heard.aclose()  # type: ignore[attr-defined]

        await data(session, one, token, JOIN)
        post = (await data(session, one, token, POST))["createPost"]["postId"]
        await data(session, two, token, LIKE, post=post)
        while (await data(session, one, token, LIKES, post=post))["post"]["likeCount"] != 1:  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.05)
        for url in (one, two):
            while (await data(session, url, token, SEARCH))["searchPosts"]["nodes"] != [{"postId": post}]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        assert named_metrics() <= metric_names(await metrics_page(session, two))

    statuses = composed.stop()
    assert set(statuses.values()) == {0}, statuses


async def metrics_page(session: aiohttp.ClientSession, url: str) -> str:
    token = Tokens(TokenSettings(secret=SECRET)).issue("me", Role.ADMIN)
    async with session.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}) as response:
        return await response.text()


async def until_ready(session: aiohttp.ClientSession, url: str) -> None:
    while True:
        with suppress(aiohttp.ClientConnectionError):
            async with session.get(f"{url}/readyz") as response:
                if response.status == 200:
                    return
        await asyncio.sleep(0.1)


async def report_until_done(session: aiohttp.ClientSession, url: str, token: str) -> None:
    """Report repeatedly: there is no signal that a stream of events is attached."""
    while True:
        await data(session, url, token, REPORT)
        await asyncio.sleep(0.2)


def test_containers_can_write_nowhere_but_to_their_volumes_and_have_no_rights() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_nothing_is_published_beyond_this_machine_and_the_engine_not_at_all() -> None:
    published = {name: port for name, service in SERVICES.items() for port in service.get("ports", [])}
    assert published == {"gateway-1": "127.0.0.1:8000:8000", "gateway-2": "127.0.0.1:8001:8000"}
