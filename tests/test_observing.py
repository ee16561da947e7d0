"""What operators see of operations: log lines, figures and spans."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from conftest import Served, call_name
from graphql import GraphQLError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from datastore.errors import NotFound
from datastore.keyspace.earthquakes import EARTHQUAKES
from edge.answers import failure
from edge.observing import operation_log
from edge.observing.operation_log import JsonLines
from edge.observing.tracing import OperationTracing, exporting
from edge.operations import Caller, Operation, Transport
from edge.requests import MOST_ERROR_IDS, Report
from edge.settings import Misconfigured, Settings, from_environment
from resolvers.access import Role

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
QUAKES = "query Newest { earthquakes(first: 2) { nodes { place } } }"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings(
        secret=settings.secret, port=settings.port, poll_interval=0.02, metrics_token="a-token-for-figures-only"
    )


class Lines(logging.Handler):
    """The lines that were logged of operations, as JSON would have them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.told: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger(operation_log.LOGGER)
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def spans(served: Served) -> InMemorySpanExporter:
    """The spans of what is served from now on."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    prefix = served.gateway.open_store()._prefix
    served.gateway.edge.runner._tracing = OperationTracing(provider, prefix)
    return exporter


async def test_each_operation_has_one_line(served: Served, lines: Lines) -> None:
    answer = await served.ask(QUAKES, user="ada@example.com", role=Role.ADMIN)
    (line,) = lines.told
    units = sum(call.units for call in answer.calls)
    assert {name: line[name] for name in ("name", "type", "transport", "caller", "stage", "calls", "units")} == {
        "name": "Newest",
        "type": "query",
        "transport": "http",
        "caller": "admin",
        "stage": "execution",
        "calls": len(answer.calls),
        "units": units,
    }
    assert units > 0
    assert line["patterns"] == ["QUAKE-2"]
    assert line["cost"] == round(served.reports[-1].estimate, 1)
    assert line["bytes"] == len(json.dumps({"data": answer.data}, separators=(",", ":")))
    assert (line["retries"], line["message"], line["level"]) == (0, "operation", "INFO")
    assert len(line["document"]) == 16
    assert "ada" not in json.dumps(line)
    assert "first" not in json.dumps(line)


async def test_a_refused_operation_has_a_line_too(served: Served, lines: Lines) -> None:
    await served.ask("{ nope }")
    await served.ask("{ earthquakes { nodes ")
    await served.ask('{ watches(userId: "bob") { id } }', user="ada")
    told = [(line["stage"], line["codes"], line["caller"], line.get("type")) for line in lines.told]
    assert told == [
        ("validation", ["BAD_USER_INPUT"], "anonymous", None),
        ("parsing", ["BAD_USER_INPUT"], "anonymous", None),
        ("execution", ["FORBIDDEN"], "user", "query"),
    ]


async def test_an_unexpected_error_is_found_by_its_id(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("resolvers.context.Context.teams", property(fail))
    answer = await served.ask('{ team(id: "1") { name } }')
    assert answer.errors is not None
    assert lines.told[0]["errorIds"] == [answer.errors[0]["extensions"]["errorId"]]
    assert lines.told[0]["codes"] == ["INTERNAL"]


async def test_what_breaks_an_operation_is_no_success(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of all fields, too."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("edge.execution.execute", fail)
    assert (await served.ask(QUAKES)).codes == ["INTERNAL"]
    assert lines.told[0]["codes"] == ["INTERNAL"]
    labels = (("code", "INTERNAL"), ("field", "earthquakes"), ("transport", "http"), ("type", "query"))
    assert (await figures(served, Authorization="Bearer a-token-for-figures-only"))[
        "gateway_operations_total", labels
    ] == 1


def test_what_is_kept_of_errors_is_bounded() -> None:
    """A subscription may fail at each event, and never end."""
    report = Report(Operation("subscription { a }", None), Caller(None), Transport.WEBSOCKET)
    for number in range(3 * MOST_ERROR_IDS):
        for error in (ValueError(f"{number}"), NotFound("x")):
            report.add(failure(GraphQLError("x", original_error=error)))
    assert report.codes == ["INTERNAL", "NOT_FOUND"]
    assert len(report.error_ids) == MOST_ERROR_IDS


async def test_a_subscription_has_one_line_when_it_is_over(served: Served, lines: Lines) -> None:
    listener = await served.listen("subscription Live { earthquakeDetected { place } }")
    await served.settle(EARTHQUAKES)
    assert not lines.told
    await listener.socket.close()
    async with asyncio.timeout(5):
        while not lines.told:  # noqa: ASYNC110 - it is logged when the server has noticed
            await asyncio.sleep(0.005)
    (line,) = lines.told
    assert (line["name"], line["type"], line["transport"]) == ("Live", "subscription", "websocket")


def test_text_lines_say_the_same(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.makeLogRecord({"msg": "plain %s", "args": ("words",), "levelname": "WARNING", "name": "x"})
    assert json.loads(JsonLines().format(record))["message"] == "plain words"
    try:
        raise ValueError("ada@example.com is wrong")
    except ValueError as error:
        failed = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, error, error.__traceback__)})
    told = json.loads(JsonLines().format(failed))
    assert "ValueError" in told["trace"]
    assert "ada@example.com" not in told["trace"]


async def figures(served: Served, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample that the gateway tells, by name and labels."""
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/plain; version=")
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_figures_of_operations_and_calls(served: Served) -> None:
    answer = await served.ask(QUAKES)
    await served.ask(QUAKES)
    await served.ask("{ nope }")
    await served.ask('{ watches(userId: "bob") { id } }', user="ada")
    async with served.http.delete(f"{served.url}/graphql") as response:
        assert response.status == 405
    told = await figures(served, authorization="Bearer a-token-for-figures-only")

    def of(name: str, **labels: str) -> float:
        return told[name, tuple(sorted(labels.items()))]

    where = {"transport": "http", "type": "query"}
    assert of("gateway_operations_total", field="earthquakes", code="OK", **where) == 2
    assert of("gateway_operations_total", field="watches", code="FORBIDDEN", **where) == 1
    assert of("gateway_operation_duration_seconds_count", field="earthquakes", **where) == 2
    assert of("gateway_operations_refused_total", stage="validation", code="BAD_USER_INPUT") == 1
    assert of("gateway_http_refusals_total", status="405", code="BAD_USER_INPUT") == 1
    queries = [call for call in answer.calls if call.operation == "Query"]
    assert {call_name(call) for call in queries} == {"Query earthquake-events.TimeOrderedIndex"}
    labels = {"operation": "Query", "table": "earthquake-events", "index": "TimeOrderedIndex"}
    assert of("gateway_dynamodb_calls_total", **labels) == 2 * len(queries)
    assert of("gateway_dynamodb_units_total", **labels) == 2 * sum(call.units for call in queries)
    assert of("gateway_operation_units_count", type="query") == 3
    assert told["process_resident_memory_bytes", ()] > 0


@pytest.mark.parametrize(("role", "status"), [(None, 401), (Role.USER, 403), (Role.ADMIN, 200), (Role.SYSTEM, 200)])
async def test_figures_are_for_those_who_may_see_them(served: Served, role: Role | None, status: int) -> None:
    headers = served.headers("ada", role) if role else {}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        assert response.status == status
        if status >= 400:
            (error,) = (await response.json())["errors"]
            assert error["extensions"]["code"] == {401: "UNAUTHENTICATED", 403: "FORBIDDEN"}[status]


async def test_a_wrong_token_sees_no_figures(served: Served) -> None:
    for wrong in ("Bearer a-token-for-figures-onlY", "Basic YTpi", "Bearer é"):
        async with served.http.get(f"{served.url}/metrics", headers={"authorization": wrong}) as response:
            assert response.status == 401
            (error,) = (await response.json())["errors"]
            neither = "This is neither the metrics token nor a JWT that counts: the token is not a well-formed JWT."
            assert (error["message"] == neither) is wrong.startswith("Bearer a")


@pytest.mark.parametrize(
    "environment",
    [
        {"GATEWAY_METRICS_TOKEN": "short"},
        {"GATEWAY_METRICS_TOKEN": "with spaces in between"},
        {"GATEWAY_LOG_FORMAT": "xml"},
    ],
)
def test_settings_that_do_not_do(environment: dict[str, str]) -> None:
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
def test_traces_are_sent_where_opentelemetrys_variables_say(environment: dict[str, str], sends: bool) -> None:
    assert from_environment(environment)["traces"] is sends


def by_name(spans: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


async def test_a_span_for_the_operation_and_one_for_each_call(
    served: Served, spans: InMemorySpanExporter, lines: Lines
) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    body = {"query": QUAKES, "operationName": "Newest"}
    async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
        assert response.status == 200
    found = by_name(spans)
    calls = served.reports[-1].latest
    assert {name: len(those) for name, those in found.items()} == {
        "graphql query": 1,
        "DynamoDB.Query": len(calls),
    }
    (operation,) = found["graphql query"]
    assert operation.parent is not None
    assert f"{operation.context.trace_id:032x}" == TRACE
    assert operation.attributes is not None
    assert operation.attributes["graphql.operation.name"] == "Newest"
    assert operation.attributes["gateway.capacity_units"] == sum(call.units for call in calls)
    for span in found["DynamoDB.Query"]:
        assert span.parent == operation.context
        assert span.attributes is not None
        assert span.attributes["aws.dynamodb.table_names"] == ("earthquake-events",)
        assert span.attributes["gateway.patterns"] == ("QUAKE-2",)
        assert span.start_time is not None
        assert operation.end_time is not None
        assert span.start_time <= operation.end_time
    assert lines.told[0]["traceId"] == TRACE


async def test_errors_mark_the_span_and_nobodys_text_is_in_it(served: Served, spans: InMemorySpanExporter) -> None:
    await served.ask('{ watches(userId: "a secret name") { id } }', user="ada")
    await served.ask('{ nope(text: "a secret name") }')
    failed, refused = spans.get_finished_spans()
    assert (failed.name, refused.name) == ("graphql query", "graphql refused")
    assert (failed.status.description, refused.status.description) == ("FORBIDDEN", "BAD_USER_INPUT")
    assert "secret" not in failed.to_json() + refused.to_json()


@pytest.mark.parametrize("traceparent", ["", "00-0-0-00", "ff-" + TRACE + "-00f067aa0ba902b7-01", "x" * 5000])
async def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(
    served: Served, spans: InMemorySpanExporter, traceparent: str
) -> None:
    async with served.http.post(
        f"{served.url}/graphql", json={"query": "{ __typename }"}, headers={"traceparent": traceparent}
    ) as response:
        assert response.status == 200
    (span,) = spans.get_finished_spans()
    assert span.parent is None


@pytest.fixture
async def collector() -> AsyncIterator[tuple[str, asyncio.Queue[ExportTraceServiceRequest]]]:
    """A collector of traces that speaks OTLP over HTTP."""
    received: asyncio.Queue[ExportTraceServiceRequest] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        assert request.path == "/v1/traces"
        received.put_nowait(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", received
    await runner.cleanup()


async def test_spans_reach_a_collector(
    served: Served,
    collector: tuple[str, asyncio.Queue[ExportTraceServiceRequest]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    tracing = exporting()
    served.gateway.edge.runner._tracing = tracing
    await served.ask(QUAKES)
    await asyncio.to_thread(tracing.close)
    (resource,) = (await received.get()).resource_spans
    names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    assert names["service.name"] == "dynamodb-graphql-gateway"
    assert {span.name for scope in resource.scope_spans for span in scope.spans} == {"graphql query", "DynamoDB.Query"}
