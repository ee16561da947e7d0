"""Log lines and spans of operations, as operators see them."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from graphql import GraphQLError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from datastore.errors import NotFound
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.identity import Role
from server.admission.callers import Caller
from server.documents.persisted.manifest import sha256_of
from server.documents.request import GraphQLParams
from server.observability import operation_log
from server.observability.log_lines import JsonLines
from server.observability.tracing import OperationTracing, otlp_tracing
from server.operations.outcome import failure
from server.operations.report import MAX_ERROR_IDS, MAX_REQUESTED_ID, Report
from server.operations.request import Transport
from server.settings import Settings
from tests.support.observability import QUAKES, metric_samples
from tests.support.served import Served

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings(
        secret=settings.secret, port=settings.port, poll_interval=0.02, metrics_token="a-token-for-figures-only"
    )


class Lines(logging.Handler):
    """A handler that keeps the lines of operations, decoded from JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.logged: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(json.loads(self.format(record)))


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
    """Record the spans of all operations from now on."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    prefix = served.gateway.open_store().prefix
    served.gateway.server.runner.billing.tracing = OperationTracing(provider, prefix)
    return exporter


async def test_each_operation_has_one_line(served: Served, lines: Lines) -> None:
    answer = await served.ask(QUAKES, user="ada@example.com", role=Role.ADMIN)
    (line,) = lines.logged
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
    # The query reads the statistics to find the days without events.
    assert line["patterns"] == ["QUAKE-2", "QUAKE-6", "QUAKE-P5"]
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
    received = [(line["stage"], line["codes"], line["caller"], line.get("type")) for line in lines.logged]
    assert received == [
        ("validation", ["BAD_USER_INPUT"], "anonymous", None),
        ("parsing", ["BAD_USER_INPUT"], "anonymous", None),
        ("execution", ["FORBIDDEN"], "user", "query"),
    ]


async def test_refused_operations_can_be_identified(served: Served, lines: Lines) -> None:
    """The line has the hash of the text, or without a text the beginning of the id."""
    unknown = "9" * 64
    await served.ask("{ nope }")
    for body in (
        {"documentId": "ada@example.com asks\tfor " + "x" * 200},
        {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": unknown}}},
        {"extensions": {"persistedQuery": [unknown]}},
        {"query": "query A { __typename } query B { __typename }"},
    ):
        async with served.http.post(f"{served.url}/graphql", json=body) as response:
            assert "errors" in await response.json()
    invalid, named, by_hash, malformed, ambiguous = lines.logged
    assert (invalid["document"], "documentId" in invalid) == (sha256_of("{ nope }")[:16], False)
    assert len(named["documentId"]) == MAX_REQUESTED_ID
    assert " asks?for xxx" in named["documentId"]
    assert "ada" not in named["documentId"]
    assert (by_hash["documentId"], by_hash["codes"]) == (unknown, ["PERSISTED_QUERY_NOT_FOUND"])
    assert not {"document", "documentId"} & malformed.keys()
    assert ambiguous["document"] == sha256_of("query A { __typename } query B { __typename }")[:16]


async def test_a_too_expensive_operation_is_logged_with_its_estimate(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.gateway.server.documents, "max_cost", 1.0)
    answer = await served.ask(QUAKES)
    assert answer.errors is not None
    (line,) = lines.logged
    estimate = answer.errors[0]["extensions"]["estimate"]
    assert (line["cost"], line["name"], line["type"], line["stage"]) == (estimate, "Newest", "query", "selection")
    assert estimate > 1


async def test_an_unexpected_error_is_found_by_its_id(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("resolvers.shared.context.Context.teams", property(fail))
    answer = await served.ask('{ team(id: "1") { name } }')
    assert answer.errors is not None
    assert lines.logged[0]["errorIds"] == [answer.errors[0]["extensions"]["errorId"]]
    assert lines.logged[0]["codes"] == ["INTERNAL"]


async def test_an_error_outside_of_all_fields_is_counted(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error occurs in the runner."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("server.operations.runner.execute_operation", fail)
    assert (await served.ask(QUAKES)).codes == ["INTERNAL"]
    assert lines.logged[0]["codes"] == ["INTERNAL"]
    labels = (("code", "INTERNAL"), ("field", "earthquakes"), ("transport", "http"), ("type", "query"))
    assert (await metric_samples(served, Authorization="Bearer a-token-for-figures-only"))[
        "gateway_operations_total", labels
    ] == 1


def test_the_errors_of_a_report_are_limited() -> None:
    """A subscription may fail at each event and never end."""
    report = Report(GraphQLParams("subscription { a }", None), Caller(None), Transport.WEBSOCKET)
    for number in range(3 * MAX_ERROR_IDS):
        for error in (ValueError(f"{number}"), NotFound("x")):
            report.add(failure(GraphQLError("x", original_error=error)))
    assert report.codes == ["INTERNAL", "NOT_FOUND"]
    assert len(report.error_ids) == MAX_ERROR_IDS


async def test_a_subscription_writes_one_line_at_its_end(served: Served, lines: Lines) -> None:
    listener = await served.listen("subscription Live { earthquakeDetected { place } }")
    await served.settle(EARTHQUAKES)
    assert not lines.logged
    await listener.socket.close()
    async with asyncio.timeout(50):
        while not lines.logged:  # noqa: ASYNC110 - logged when the server has detected the end
            await asyncio.sleep(0.005)
    (line,) = lines.logged
    assert (line["name"], line["type"], line["transport"]) == ("Live", "subscription", "websocket")
    assert "codes" not in line  # a client that ends its subscription causes no error


async def test_a_text_line_has_the_fields_of_the_json_line(
    served: Served, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=operation_log.LOGGER):
        await served.ask(QUAKES, user="ada@example.com", role=Role.ADMIN)
    (line,) = lines.logged
    (text,) = [record.getMessage() for record in caplog.records if record.name == operation_log.LOGGER]
    assert [*line][:4] == ["time", "level", "logger", "message"]
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "gateway.operations", "operation")
    received = {name: value for name, value in line.items() if name not in ("time", "level", "logger", "message")}
    said = [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in received.items()]
    assert text == " ".join(["operation", *said])
    assert "name=Newest type=query" in text


def test_other_records_are_written_as_json(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.makeLogRecord({"msg": "plain %s", "args": ("words",), "levelname": "WARNING", "name": "x"})
    assert json.loads(JsonLines().format(record))["message"] == "plain words"
    try:
        raise ValueError("ada@example.com is wrong")
    except ValueError as error:
        failed = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, error, error.__traceback__)})
    payload = json.loads(JsonLines().format(failed))
    assert "ValueError" in payload["trace"]
    assert "ada@example.com" not in payload["trace"]


def by_name(spans: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


async def test_an_operation_and_each_of_its_calls_have_a_span(
    served: Served, spans: InMemorySpanExporter, lines: Lines
) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    async with served.http.post(f"{served.url}/graphql", json={"query": QUAKES}, headers=headers) as response:
        assert response.status == 200
    found = by_name(spans)
    calls = served.reports[-1].latest_calls
    assert {name: len(those) for name, those in found.items()} == {
        "graphql query": 1,
        **Counter(f"DynamoDB.{call.operation}" for call in calls),
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
        assert span.attributes["gateway.patterns"] in (("QUAKE-2",), ("QUAKE-6",))
        assert span.start_time is not None
        assert operation.end_time is not None
        assert span.start_time <= operation.end_time
    assert lines.logged[0]["traceId"] == TRACE


async def test_errors_mark_the_span_without_the_text_of_a_caller(served: Served, spans: InMemorySpanExporter) -> None:
    await served.ask('{ watches(userId: "a secret name") { id } }', user="ada")
    await served.ask('{ nope(text: "a secret name") }')
    failed, refused = spans.get_finished_spans()
    assert (failed.name, refused.name) == ("graphql query", "graphql refused")
    assert (failed.status.description, refused.status.description) == ("FORBIDDEN", "BAD_USER_INPUT")
    assert "secret" not in failed.to_json() + refused.to_json()
    assert refused.attributes is not None
    assert refused.attributes["graphql.document.hash"] == sha256_of('{ nope(text: "a secret name") }')


@pytest.mark.parametrize("traceparent", ["", "00-0-0-00", "ff-" + TRACE + "-00f067aa0ba902b7-01", "x" * 5000])
async def test_an_invalid_traceparent_begins_a_new_trace(
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
    tracing = otlp_tracing()
    served.gateway.server.runner.billing.tracing = tracing
    await served.ask(QUAKES)
    await asyncio.to_thread(tracing.close)
    (resource,) = (await received.get()).resource_spans
    names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    assert names["service.name"] == "dynamodb-graphql-gateway"
    assert {span.name for scope in resource.scope_spans for span in scope.spans} >= {"graphql query", "DynamoDB.Query"}


async def test_lines_of_refused_operations_are_limited_and_omitted_ones_counted(served: Served, lines: Lines) -> None:
    reports = [await refused_report(served) for _ in range(2)]
    now = 100.0
    log = operation_log.OperationLog(lambda: now)
    lines.logged.clear()

    for _ in range(operation_log.REFUSED_LINES + 50):
        log(reports[0])
    written = len(lines.logged)
    now += 1.0
    log(reports[1])

    assert written == operation_log.REFUSED_LINES
    assert lines.logged[-1]["omitted"] == 50
    assert "omitted" not in lines.logged[0]


async def test_lines_of_executed_operations_are_not_limited(served: Served, lines: Lines) -> None:
    await served.ask("{areas}")
    (report,) = served.reports
    log = operation_log.OperationLog(lambda: 100.0)
    lines.logged.clear()

    for _ in range(2 * operation_log.REFUSED_LINES):
        log(report)

    assert len(lines.logged) == 2 * operation_log.REFUSED_LINES


async def refused_report(served: Served) -> Report:
    await served.ask("{nothing}")
    (report,) = served.reports
    return report
