"""Prometheus with the alert rules beside real gateways: real faults make the alerts fire.

The rules have no `for`, and rates over ten seconds instead of five minutes.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import GatewayProcess, run_command, serve_process, surroundings
from tests.support.forking import Forked
from tests.support.operations import ALERTS
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis
from tests.support.served import SECRET
from tests.support.small_disk import Disk, disk
from tests.support.until import until_blocking

__all__ = ["disk", "redis"]

METRICS_TOKEN, ENGINE_KEY = "m" * 16, "k" * 32
OTHER_SECRET = "another secret, of one gateway only, by mistake"
PAUSE_SECONDS = 0.05
BAD_CURSOR = '{ earthquakes(first: 1, after: "x") { nodes { eventId } } }'
COSTLY = "{ earthquakes(first: 100) { nodes { eventId } } }"
POST = 'mutation { createPost(input: {text: "%s"}) { postId } }' % ("x" * 400)
JOIN = 'mutation { createUser(input: {name: "Ada"}) { userId } }'


class Prometheus:
    """A Prometheus that scrapes the gateways and the engine twice a second."""

    def __init__(self, program: str, folder: Path, gateways: list[int], engine: int) -> None:
        rules = yaml.safe_load(re.sub(r"\[5m\]", "[10s]", yaml.safe_dump(ALERTS, width=10_000)))
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        jobs = [
            self._job("gateway", gateways) | {"authorization": {"credentials": METRICS_TOKEN}},
            self._job("engine", [engine]),
        ]
        times = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config = {"global": times, "rule_files": [str(folder / "rules.yaml")], "scrape_configs": jobs}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._port = free_port()
        command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
        command += [f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    @staticmethod
    def _job(name: str, ports: list[int]) -> dict[str, Any]:
        return {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        with suppress(URLError), urlopen(f"http://127.0.0.1:{self._port}/api/v1/alerts", timeout=10) as response:
            return {alert["labels"]["alertname"] for alert in json.load(response)["data"]["alerts"]}
        return set()

    def until_firing(self, *alerts: str) -> None:
        try:
            until_blocking(lambda: set(alerts) <= self.firing(), 60)
        except TimeoutError:
            raise AssertionError(f"These do not fire: {sorted(set(alerts) - self.firing())}") from None


@pytest.fixture
def prometheus_program() -> str:
    """Return the path of Prometheus, which is Debian's package prometheus."""
    found = shutil.which("prometheus")
    if found is None:
        if os.environ.get("REQUIRE_PROMETHEUS"):
            pytest.fail("prometheus is needed.")
        pytest.skip("prometheus is needed.")
    return found


@contextmanager
def repeated(gateway: GatewayProcess, query: str, token: str | None = None) -> Iterator[None]:
    """Send an operation again and again, whatever the answer, for the duration of a block."""
    ended = threading.Event()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def send() -> None:
        while not ended.wait(PAUSE_SECONDS):
            with suppress(HTTPError, URLError, TimeoutError):
                urlopen(Request(f"{gateway.url}/graphql", json.dumps({"query": query}).encode(), headers), timeout=10)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(20)


@pytest.mark.timeout(400)
def test_real_faults_make_the_alerts_fire(
    prometheus_program: str, redis: RedisServer, disk: Disk, tmp_path: Path
) -> None:
    engine_port, engine_metrics, log = free_port(), free_port(), tmp_path / "engine.log"
    log.touch()
    options = ["engine", "--port", str(engine_port), "--metrics-port", str(engine_metrics)]
    given = surroundings(GATEWAY_DATA_DIR=str(disk.path / "data"), GATEWAY_ENGINE_KEY=ENGINE_KEY)
    store = {"GATEWAY_STORE": f"http://127.0.0.1:{engine_port}", "GATEWAY_ENGINE_KEY": ENGINE_KEY}
    shared = {"GATEWAY_BUS": redis.url, "GATEWAY_REDIS_URL": redis.url, "GATEWAY_METRICS_TOKEN": METRICS_TOKEN}
    token = Tokens(TokenSettings(secret=SECRET)).issue("ada", Role.USER)
    with ExitStack() as stack:
        engine = Forked("gateway.py", options, given, stdout=tmp_path / "out", stderr=log)
        stack.callback(engine.kill)
        until_blocking(lambda: "Clients need the access key" in log.read_text())
        assert run_command("tables", "create", **store).returncode == 0

        def start(name: str, **own: str) -> GatewayProcess:
            settings = store | shared | {"GATEWAY_SECRET": SECRET, "GATEWAY_DEMO": "0"} | own
            return stack.enter_context(serve_process(tmp_path / name, **settings))

        right = start("right")
        right.data(JOIN, token)
        secretive = start("secretive", GATEWAY_SECRET=OTHER_SECRET)
        sparing = start(
            "sparing", GATEWAY_ANONYMOUS_BUDGET_UNITS="1", GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND="0.001"
        )
        ports = [int(gateway.url.rpartition(":")[2]) for gateway in (right, secretive, sparing)]
        prometheus = Prometheus(prometheus_program, tmp_path, ports, engine_metrics)
        stack.callback(prometheus.process.wait)
        stack.callback(prometheus.process.kill)

        prometheus.until_firing("GatewaySecretDiffers", "GatewaySettingsDiffer")
        # No pipeline runs here.
        prometheus.until_firing("CricketPipelineGone", "FeedPipelineGone")
        of_requests = {"GatewayRefusesTokens", "GatewayRefusesCursors", "GatewayLimitsCallers"}
        of_redis, of_disk = {"GatewayBusAway", "GatewayBudgetsApart"}, {"GatewayDiskFull", "GatewayDiskFills"}
        of_store = {"GatewayStoreAway", "GatewayFails"}
        assert not prometheus.firing() & (of_requests | of_redis | of_disk | of_store | {"GatewayDown"})

        with repeated(secretive, COSTLY, token), repeated(right, BAD_CURSOR), repeated(sparing, COSTLY):
            prometheus.until_firing(*of_requests)
        redis.kill()
        prometheus.until_firing(*of_redis)
        disk.fill()
        with repeated(right, POST, token):
            prometheus.until_firing(*of_disk)
        disk.make_room()
        engine.kill()
        with repeated(right, COSTLY, token):
            prometheus.until_firing(*of_store)
        sparing.process.kill()
        prometheus.until_firing("GatewayDown")
