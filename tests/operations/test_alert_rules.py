"""The alert rules, run by promtool: each fires on its fault, and none in a healthy installation.

Each also fires by a real fault, in `tests/proofs/test_alerts_of_*.py`.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.operations import rules
from tests.support.prometheus import (
    BY_FAULTS_OF_A_DEPLOYMENT,
    BY_FAULTS_OF_A_GATEWAY,
    BY_FAULTS_OF_A_STORE,
    BY_FAULTS_OF_PIPELINES,
)
from tests.support.store_engines import ROOT

RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
SCENARIOS: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "operations" / "alert_rules.yaml").read_text())
INTERVAL = "30s"


@pytest.fixture
def promtool() -> str:
    """Return the path of Prometheus's tool, of Debian's package prometheus."""
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("REQUIRE_PROMETHEUS"):
            pytest.fail("promtool is needed.")
        pytest.skip("promtool is needed.")
    return found


def expectations(scenario: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the expectations of a scenario: an alert, a time, and whether it fires then."""
    if "silent" in scenario:
        return [(rule["alert"], scenario["silent"], False) for rule in rules()]
    return [
        (expected["alert"], expected[state], state == "fires")
        for expected in scenario["alerts"]
        for state in ("silent", "fires")
        if state in expected
    ]


def rule_test(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario in the form of promtool's rule tests."""
    return {
        "name": scenario["name"],
        "interval": INTERVAL,
        "input_series": scenario["series"],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) > bool 0 or vector(0)',
                "eval_time": time,
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for alert, time, fires in expectations(scenario)
        ],
    }


def run(*arguments: str | Path) -> None:
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_and_the_configuration_are_valid(promtool: str) -> None:
    run(promtool, "check", "rules", RULES)
    run(promtool, "check", "config", RULES.with_name("prometheus.yaml"))


@pytest.mark.proof
def test_each_alert_fires_on_its_fault_and_none_in_a_healthy_installation(promtool: str, tmp_path: Path) -> None:
    file = tmp_path / "rules_test.yaml"
    tests = [rule_test(scenario) for scenario in SCENARIOS]
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": INTERVAL, "tests": tests}))
    run(promtool, "test", "rules", file)


def test_there_is_a_scenario_for_each_alert() -> None:
    firing = {alert for scenario in SCENARIOS for alert, _, fires in expectations(scenario) if fires}
    assert firing == {rule["alert"] for rule in rules()}
    assert [scenario["name"] for scenario in SCENARIOS if "silent" in scenario] == ["a healthy installation"]


def test_each_alert_is_in_one_test_with_a_real_fault() -> None:
    groups = (BY_FAULTS_OF_A_DEPLOYMENT, BY_FAULTS_OF_A_GATEWAY, BY_FAULTS_OF_A_STORE, BY_FAULTS_OF_PIPELINES)
    assert sorted(alert for group in groups for alert in group) == sorted(rule["alert"] for rule in rules())
