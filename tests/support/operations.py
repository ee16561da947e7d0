"""The metrics in the dashboard and the alerts, and those of a gateway."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.store_engines import ROOT

ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "gateway.json").read_text())
_NAMED = re.compile(r"\b(?:gateway|stream|cricket|process)_[a-z_]+")
_STRINGS = re.compile(r'"[^"]*"|\{[^}]*\}')


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])


def named_metrics() -> set[str]:
    """Return the metrics in the dashboard and in alerts."""
    return {name for expression in expressions() for name in _NAMED.findall(_STRINGS.sub("", expression))}


def metric_names(page: str) -> set[str]:
    """Return the names of the metrics in Prometheus's text format."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    endings = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + ending for name, kind in kinds.items() for ending in endings.get(kind, ("",))}
