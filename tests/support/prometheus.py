"""Prometheus with the alert rules, beside processes in which a test causes real faults.

The rules have no `for`, rates are over ten seconds instead of five minutes, and ages of more than eight seconds fire.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from tests.support.operations import ALERTS
from tests.support.ports import free_port
from tests.support.until import until_blocking

METRICS_TOKEN = "m" * 16
SECONDS = 90.0
MOST_AGE = 8

# The alerts that fire by real faults, by the test that causes the faults.
BY_FAULTS_OF_A_DEPLOYMENT = {
    "CricketPipelineGone",
    "FeedPipelineGone",
    "GatewayBudgetsApart",
    "GatewayBusAway",
    "GatewayDiskFills",
    "GatewayDiskFull",
    "GatewayDown",
    "GatewayFails",
    "GatewayLimitsCallers",
    "GatewayRefusesCursors",
    "GatewayRefusesTokens",
    "GatewaySecretDiffers",
    "GatewaySettingsDiffer",
    "GatewayStoreAway",
    "GatewayUnknownVariables",
}
BY_FAULTS_OF_A_STORE = {
    "GatewayFault",
    "GatewayNearItsFiles",
    "GatewayNearItsSubscriptions",
    "GatewaySheds",
    "GatewaySlow",
    "GatewayStoreRetries",
}
BY_FAULTS_OF_A_GATEWAY = {"GatewayBreaks", "GatewayBusLags", "GatewayBusy", "GatewaySlowSubscribers"}
BY_FAULTS_OF_PIPELINES = {
    "CricketMatchesLate",
    "CricketProviderAway",
    "FeedPipelineBuries",
    "FeedPipelineLags",
    "FeedPipelineLost",
    "SearchIndexBuries",
    "SearchIndexLags",
    "SearchIndexLost",
}


@pytest.fixture
def prometheus_program() -> str:
    """Return the path of Prometheus, which is Debian's package prometheus."""
    found = shutil.which("prometheus")
    if found is None:
        if os.environ.get("REQUIRE_PROMETHEUS"):
            pytest.fail("prometheus is needed.")
        pytest.skip("prometheus is needed.")
    return found


class Prometheus:
    """A running Prometheus. `fired` are the alerts that a test has waited for."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.fired: set[str] = set()

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        with suppress(URLError), urlopen(f"http://127.0.0.1:{self._port}/api/v1/alerts", timeout=10) as response:
            return {alert["labels"]["alertname"] for alert in json.load(response)["data"]["alerts"]}
        return set()

    def until_firing(self, *alerts: str) -> None:
        """Wait until all of these alerts fire."""
        try:
            until_blocking(lambda: set(alerts) <= self.firing(), SECONDS)
        except TimeoutError:
            raise AssertionError(f"These do not fire: {sorted(set(alerts) - self.firing())}") from None
        self.fired |= set(alerts)

    def until_silent(self, *alerts: str) -> None:
        """Wait until none of these alerts fires."""
        until_blocking(lambda: not self.firing() & set(alerts), SECONDS)

    def until_scraped(self, targets: int) -> None:
        """Wait until this number of targets was scraped four times, and the rules were evaluated meanwhile."""
        until_blocking(lambda: self.value("count(count_over_time(up[20s])>3)*min(up)") == targets, SECONDS)

    def value(self, expression: str) -> float:
        """Return the value of an expression with a single result, or 0 without a result."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?query={quote(expression)}"
        with suppress(URLError), urlopen(url, timeout=10) as response:
            for result in json.load(response)["data"]["result"]:
                return float(result["value"][1])
        return 0.0


def quick_rules() -> dict[str, Any]:
    """Return the alert rules without `for`, with short rates and ages."""
    text = re.sub(r"\[5m\]", "[10s]", yaml.safe_dump(ALERTS, width=10_000))
    rules: dict[str, Any] = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            rule["expr"] = re.sub(
                r"(_seconds\)) > (\d+)", lambda age: f"{age[1]} > {min(int(age[2]), MOST_AGE)}", rule["expr"]
            )
    return rules


@contextmanager
def running_prometheus(program: str, folder: Path, jobs: Mapping[str, Sequence[int]]) -> Iterator[Prometheus]:
    """Run Prometheus. `jobs` are the ports of 127.0.0.1 that it scrapes each second, and those of `gateway` get the
    token.
    """
    port = free_port()
    scraped = {"itself": [port], **jobs}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{number}" for number in ports]}]}
            | ({"authorization": {"credentials": METRICS_TOKEN}} if name == "gateway" else {})
            for name, ports in scraped.items()
        ],
    }
    (folder / "rules.yaml").write_text(yaml.safe_dump(quick_rules()))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()
