"""Metrics of operations, the permission to read them, and the settings of metrics and traces."""

import asyncio
from collections import Counter
from itertools import permutations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from datastore.dynamodb.calls import Call
from datastore.dynamodb.requests import PreparedRequest
from datastore.model.identity import Role
from server.observability.operation_metrics import OperationMetrics
from server.settings import Misconfigured, Settings, from_environment
from tests.support.observability import QUAKES, metric_samples
from tests.support.served import Served, call_name
from tests.support.store_engines import ROOT

PROTOCOL = "graphql-transport-ws"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings(
        secret=settings.secret, port=settings.port, poll_interval=0.02, metrics_token="a-token-for-figures-only"
    )


async def test_metrics_of_operations_and_calls(served: Served) -> None:
    answer = await served.ask(QUAKES)
    await served.ask(QUAKES)
    await served.ask("{ nope }")
    await served.ask('{ watches(userId: "bob") { id } }', user="ada")
    async with served.http.delete(f"{served.url}/graphql") as response:
        assert response.status == 405
    values = await metric_samples(served, authorization="Bearer a-token-for-figures-only")

    def of(name: str, **labels: str) -> float:
        return values[name, tuple(sorted(labels.items()))]

    where = {"transport": "http", "type": "query"}
    assert of("gateway_operations_total", field="earthquakes", code="OK", **where) == 2
    assert of("gateway_operations_total", field="watches", code="FORBIDDEN", **where) == 1
    assert of("gateway_operation_duration_seconds_count", field="earthquakes", **where) == 2
    assert of("gateway_operations_refused_total", stage="validation", code="BAD_USER_INPUT") == 1
    assert of("gateway_http_refusals_total", status="405", code="BAD_USER_INPUT") == 1
    queries = [call for call in answer.calls if call_name(call) == "Query earthquake-events.TimeOrderedIndex"]
    assert queries
    labels = {"operation": "Query", "table": "earthquake-events", "index": "TimeOrderedIndex"}
    assert of("gateway_dynamodb_calls_total", **labels) == 2 * len(queries)
    assert of("gateway_dynamodb_units_total", **labels) == 2 * sum(call.units for call in queries)
    assert of("gateway_operation_units_count", type="query") == 3
    assert values["process_resident_memory_bytes", ()] > 0


async def test_metrics_of_the_executor(served: Served) -> None:
    async def executions() -> Counter[str]:
        values = await metric_samples(served, authorization="Bearer a-token-for-figures-only")
        assert values["gateway_compiled_operations", ()] >= 1
        assert values["gateway_compiled_fields", ()] <= 20_000
        assert values["gateway_compiled_evictions_total", ()] == 0
        found = [
            (dict(labels), value) for (name, labels), value in values.items() if name == "gateway_executions_total"
        ]
        return Counter({labels["reason"] or labels["executor"]: int(value) for labels, value in found})

    await served.ask("{ areas }")
    await served.ask("{ areas }")
    before = await executions()
    for _ in range(3):
        await served.ask("{ areas }")
    await served.ask("{ __typename __schema { queryType { name } } }")
    await served.ask("{ __typename __schema { queryType { name } } }")

    assert await executions() - before in (
        {"compiled": 3, "introspection": 2},
        {"compiled": 3, "introspection": 1, "not_executed_often_enough": 1},
    )


def test_the_order_of_tables_in_a_batch_creates_no_further_labels() -> None:
    metrics = OperationMetrics(CollectorRegistry(), "p-")
    for tables in permutations(["p-feed", "p-teams", "p-leagues"]):
        metrics.observe_call(Call("BatchGetItem", PreparedRequest(b"", tables)))
    assert len(metrics._of_calls) == 1


async def test_operations_without_an_execution_count_as_refused(served: Served) -> None:
    """Invalid variables and a refused Idempotency-Key: no field was resolved."""
    unfit = {"query": "query ($n: Int) { earthquakes(first: $n) { nodes { place } } }", "variables": {"n": "x"}}
    followed = {"query": "subscription ($m: Float) { earthquakeDetected(minMagnitude: $m) { place } }"}
    keyed = {"query": 'mutation { ingestEarthquakes(feed: "all_hour") { fetched } }'}
    for body, headers in (
        (unfit, {}),
        (followed | {"variables": {"m": "x"}}, {"accept": "text/event-stream"}),
        (keyed, {"idempotency-key": "k"}),
    ):
        async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
            await response.read()
    assert [(report.stage.value, report.events) for report in served.reports] == [
        ("selection", 0),
        ("selection", 0),
        ("admission", 0),
    ]
    values = await metric_samples(served, authorization="Bearer a-token-for-figures-only")
    refused = "gateway_operations_refused_total"
    assert values[refused, (("code", "BAD_USER_INPUT"), ("stage", "selection"))] == 2
    assert values[refused, (("code", "UNAUTHENTICATED"), ("stage", "admission"))] == 1
    assert "gateway_operations_total" not in {name for name, _ in values}


async def test_refusals_below_the_endpoints_are_counted(served: Served) -> None:
    upgrade = "GET /graphql HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    opening = upgrade + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    for sent, status in (
        ("nonsense\r\n\r\n", 400),
        (f"GET /graphql?query={'a' * 40_000} HTTP/1.1\r\nHost: here\r\n\r\n", 414),
        (f"GET /graphql HTTP/1.1\r\nHost: here\r\nX: {'a' * 40_000}\r\n\r\n", 431),
        (f"{opening}Origin: https://elsewhere.example\r\n\r\n", 403),
        (f"{opening}X: {'a' * 10_000}\r\n\r\n", 431),
        (f"{upgrade}Sec-WebSocket-Version: 12\r\n\r\n", 400),
    ):
        assert await raw_status(served, sent) == status
    admission = served.gateway.server.admission
    for places in (admission.websockets, admission.connections._quota):
        places.limit = 1
        places.add("others")
        assert await raw_status(served, f"{opening}\r\n") == 503
        places.limit = 0
    values = await metric_samples(served, authorization="Bearer a-token-for-figures-only")
    counted = {labels: value for (name, labels), value in values.items() if name == "gateway_http_refusals_total"}
    bad = "BAD_USER_INPUT"
    assert counted == {
        (("code", code), ("status", status)): value
        for code, status, value in (
            *((bad, "400", 2), (bad, "414", 1), (bad, "431", 2)),
            *(("FORBIDDEN", "403", 1), ("UNAVAILABLE", "503", 2)),
        )
    }


async def raw_status(served: Served, sent: str) -> int:
    """Return the status of the response to these bytes on a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.settings.port)
    writer.write(sent.encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def test_sockets_that_the_server_closes_are_counted(served: Served) -> None:
    url = served.url.replace("http", "ws") + "/graphql"
    async with served.http.ws_connect(url) as nobody, served.http.ws_connect(url, protocols=[PROTOCOL]) as broken:
        await broken.send_str("[]")
        await asyncio.gather(nobody.receive(), broken.receive())
    large = await served.http.ws_connect(url, protocols=[PROTOCOL])
    await large.send_str("x" * 70_000)
    await large.receive()
    left = await served.http.ws_connect(url, protocols=[PROTOCOL])
    await left.close()
    remaining = await served.http.ws_connect(url, protocols=[PROTOCOL])
    await served.gateway.server.socket.close()
    await remaining.receive()
    registry = served.gateway.metrics.registry
    codes = ("4406", "4400", "1009", "1001")

    def counted(code: str) -> float:
        return registry.get_sample_value("gateway_websocket_closed_total", {"code": code}) or 0

    async with asyncio.timeout(50):
        while sum(map(counted, codes)) < len(codes):  # noqa: ASYNC110 - counted when the connection has ended
            await asyncio.sleep(0.005)
    assert [counted(code) for code in (*codes, "1000", "1005", "1006")] == [1, 1, 1, 1, 0, 0, 0]


async def test_every_metric_is_documented(served: Served) -> None:
    """Metrics that only grow are counters, without a series for the time of their creation."""
    await served.ask(QUAKES)
    docs = (ROOT / "docs" / "observability.md").read_text()
    headers = {"authorization": "Bearer a-token-for-figures-only"}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        assert response.headers["cache-control"] == "no-store"
        families = list(text_string_to_metric_families(await response.text()))
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert {"gateway_operations_shed_total", "gateway_unregistered_operations_total"} <= names
    assert not [name for name in names if name.endswith("_created")]
    ours = {name for name in names if not name.startswith("process_")}
    assert {name for name in ours if f"`{name}`" not in docs} == set()


@pytest.mark.parametrize(("role", "status"), [(None, 401), (Role.USER, 403), (Role.ADMIN, 200), (Role.SYSTEM, 200)])
async def test_metrics_require_a_role(served: Served, role: Role | None, status: int) -> None:
    headers = served.headers("ada", role) if role else {}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        assert response.status == status
        if status >= 400:
            (error,) = (await response.json())["errors"]
            assert error["extensions"]["code"] == {401: "UNAUTHENTICATED", 403: "FORBIDDEN"}[status]


async def test_a_wrong_token_is_refused(served: Served) -> None:
    for wrong in ("Bearer a-token-for-figures-onlY", "Basic YTpi", "Bearer é"):
        async with served.http.get(f"{served.url}/metrics", headers={"authorization": wrong}) as response:
            assert response.status == 401
            (error,) = (await response.json())["errors"]
            neither = "This is neither the metrics token nor a valid JWT: the token is not a well-formed JWT."
            assert (error["message"] == neither) is wrong.startswith("Bearer a")


@pytest.mark.parametrize(
    "environment",
    [
        {"GATEWAY_METRICS_TOKEN": "short"},
        {"GATEWAY_METRICS_TOKEN": "with spaces in between"},
        {"GATEWAY_LOG_FORMAT": "xml"},
    ],
)
def test_invalid_settings_of_metrics_and_logs_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match=next(iter(environment))):
        from_environment(environment)


@pytest.mark.parametrize(
    ("environment", "sends"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_opentelemetrys_variables_enable_traces(environment: dict[str, str], sends: bool) -> None:
    assert from_environment(environment)["traces"] is sends
