"""docs/alerts.md, docs/troubleshooting.md, the dashboard and the alerts, compared with the code."""

import re

from datastore.errors import ErrorCode
from datastore.model.identity import Role
from tests.support.operations import metric_names, named_metrics, rules
from tests.support.served import Served
from tests.support.store_engines import ROOT

ALERTS = (ROOT / "docs" / "alerts.md").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()


async def test_every_metric_in_the_dashboard_and_in_alerts_is_exported_by_a_gateway(served: Served) -> None:
    """The metrics of the bus are tested on a gateway with a bus (test_compose.py), those of the disk on a directory."""
    headers = {"Authorization": f"Bearer {served.token('me', Role.ADMIN)}"}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        page = await response.text()

    assert {"gateway_operations_total", "stream_lag_seconds", "process_open_fds"} <= named_metrics()
    elsewhere = ("gateway_bus_", "gateway_disk_")
    assert {name for name in named_metrics() if not name.startswith(elsewhere)} <= metric_names(page)


def test_every_code_of_an_error_has_a_section_in_the_runbook() -> None:
    runbook = TROUBLESHOOTING.partition("\n## Codes of errors\n")[2].partition("\n## ")[0]
    assert {code.value for code in ErrorCode} <= set(re.findall(r"^### ([A-Z_]+)$", runbook, re.M))


def test_every_alert_is_documented_and_each_documented_alert_exists() -> None:
    section = ALERTS.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    received = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert received == [rule["alert"] for rule in rules()]


def test_every_alert_has_a_summary_and_a_severity() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"].endswith("."), rule["alert"]


def test_an_alert_of_a_single_event_counts_the_first_one_too() -> None:
    """To Prometheus a series that was not there before has not increased."""
    single = [rule["expr"] for rule in rules() if re.search(r"\bincrease\(", rule["expr"])]
    assert len(single) == 6
    for expression in single:
        for figure, window in re.findall(r"increase\((.+?)\[(\w+)\]\)", expression):
            assert f"({figure} unless {figure} offset {window})" in re.sub(r"\s+", " ", expression)
