"""Prometheus with the alert rules beside real gateways: faults of a deployment make their alerts fire."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import GatewayProcess, run_command, serve_process, surroundings
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.prometheus import (
    BY_FAULTS_OF_A_DEPLOYMENT,
    METRICS_TOKEN,
    prometheus_program,
    running_prometheus,
)
from tests.support.redis_server import RedisServer, redis
from tests.support.repeated_requests import repeated
from tests.support.served import SECRET
from tests.support.small_disk import Disk, disk
from tests.support.until import until_blocking

__all__ = ["disk", "prometheus_program", "redis"]

ENGINE_KEY = "k" * 32
OTHER_SECRET = "another secret, of one gateway only, by mistake"
BAD_CURSOR = '{ earthquakes(first: 1, after: "x") { nodes { eventId } } }'
COSTLY = "{ earthquakes(first: 100) { nodes { eventId } } }"
POST = 'mutation { createPost(input: {text: "%s"}) { postId } }' % ("x" * 400)
JOIN = 'mutation { createUser(input: {name: "Ada"}) { userId } }'


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
            "sparing",
            GATEWAY_ANONYMOUS_BUDGET_UNITS="1",
            GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND="0.001",
            GATEWAY_MAX_CONCURENT="3",
        )
        ports = [int(gateway.url.rpartition(":")[2]) for gateway in (right, secretive, sparing)]
        jobs = {"gateway": ports, "engine": [engine_metrics]}
        prometheus = stack.enter_context(running_prometheus(prometheus_program, tmp_path, jobs))

        prometheus.until_firing("GatewaySecretDiffers", "GatewaySettingsDiffer", "GatewayUnknownVariables")
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
    assert prometheus.fired == BY_FAULTS_OF_A_DEPLOYMENT
