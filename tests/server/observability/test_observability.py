"""What operators see of operations: log lines, figures and spans."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import permutations
from typing import Any

import pytest
from aiohttp import web
from graphql import GraphQLError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from datastore.dynamodb.calls import Call
from datastore.dynamodb.requests import PreparedRequest
from datastore.errors import NotFound
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.identity import Role
from server.admission.callers import Caller
from server.documents.persisted.manifest import sha256_of
from server.documents.request import GraphQLParams
from server.observability import operation_log
from server.observability.operation_log import JsonLines
from server.observability.operation_metrics import OperationMetrics
from server.observability.tracing import OperationTracing, otlp_tracing
from server.operations.outcome import failure
from server.operations.report import MAX_ERROR_IDS, MAX_REQUESTED_ID, Report
from server.operations.request import Transport
from server.settings import Misconfigured, Settings, from_environment
from tests.support.served import Served, call_name
from tests.support.store_engines import ROOT

PROTOCOL = "graphql-transport-ws"
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
    served.gateway.edge.runner.billing.tracing = OperationTracing(provider, prefix)
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
    told = [(line["stage"], line["codes"], line["caller"], line.get("type")) for line in lines.told]
    assert told == [
        ("validation", ["BAD_USER_INPUT"], "anonymous", None),
        ("parsing", ["BAD_USER_INPUT"], "anonymous", None),
        ("execution", ["FORBIDDEN"], "user", "query"),
    ]


async def test_what_was_refused_can_be_told_apart(served: Served, lines: Lines) -> None:
    """By the text's hash; where there is no text, by the beginning of the id that was sent."""
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
    invalid, named, by_hash, malformed, ambiguous = lines.told
    assert (invalid["document"], "documentId" in invalid) == (sha256_of("{ nope }")[:16], False)
    assert len(named["documentId"]) == MAX_REQUESTED_ID
    assert " asks?for xxx" in named["documentId"]
    assert "ada" not in named["documentId"]
    assert (by_hash["documentId"], by_hash["codes"]) == (unknown, ["PERSISTED_QUERY_NOT_FOUND"])
    assert not {"document", "documentId"} & malformed.keys()
    assert ambiguous["document"] == sha256_of("query A { __typename } query B { __typename }")[:16]


async def test_what_would_cost_too_much_is_logged_with_its_estimate(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.gateway.edge.documents, "_max_cost", 1.0)
    answer = await served.ask(QUAKES)
    assert answer.errors is not None
    (line,) = lines.told
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
    assert lines.told[0]["errorIds"] == [answer.errors[0]["extensions"]["errorId"]]
    assert lines.told[0]["codes"] == ["INTERNAL"]


async def test_what_breaks_an_operation_is_no_success(
    served: Served, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of all fields, too."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("server.operations.runner.execute_operation", fail)
    assert (await served.ask(QUAKES)).codes == ["INTERNAL"]
    assert lines.told[0]["codes"] == ["INTERNAL"]
    labels = (("code", "INTERNAL"), ("field", "earthquakes"), ("transport", "http"), ("type", "query"))
    assert (await figures(served, Authorization="Bearer a-token-for-figures-only"))[
        "gateway_operations_total", labels
    ] == 1


def test_what_is_kept_of_errors_is_bounded() -> None:
    """A subscription may fail at each event, and never end."""
    report = Report(GraphQLParams("subscription { a }", None), Caller(None), Transport.WEBSOCKET)
    for number in range(3 * MAX_ERROR_IDS):
        for error in (ValueError(f"{number}"), NotFound("x")):
            report.add(failure(GraphQLError("x", original_error=error)))
    assert report.codes == ["INTERNAL", "NOT_FOUND"]
    assert len(report.error_ids) == MAX_ERROR_IDS


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
    assert "codes" not in line  # to leave a subscription is how it ends, and no error


async def test_a_line_is_made_text_by_who_writes_text_and_says_the_same(
    served: Served, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=operation_log.LOGGER):
        await served.ask(QUAKES, user="ada@example.com", role=Role.ADMIN)
    (line,) = lines.told
    (text,) = [record.getMessage() for record in caplog.records if record.name == operation_log.LOGGER]
    assert [*line][:4] == ["time", "level", "logger", "message"]
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "gateway.operations", "operation")
    told = {name: value for name, value in line.items() if name not in ("time", "level", "logger", "message")}
    said = [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in told.items()]
    assert text == " ".join(["operation", *said])
    assert "name=Newest type=query" in text


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
    queries = [call for call in answer.calls if call_name(call) == "Query earthquake-events.TimeOrderedIndex"]
    assert queries
    labels = {"operation": "Query", "table": "earthquake-events", "index": "TimeOrderedIndex"}
    assert of("gateway_dynamodb_calls_total", **labels) == 2 * len(queries)
    assert of("gateway_dynamodb_units_total", **labels) == 2 * sum(call.units for call in queries)
    assert of("gateway_operation_units_count", type="query") == 3
    assert told["process_resident_memory_bytes", ()] > 0


def test_in_which_order_a_batch_asks_for_tables_makes_no_figures_of_its_own() -> None:
    metrics = OperationMetrics(CollectorRegistry(), "p-")
    for tables in permutations(["p-feed", "p-teams", "p-leagues"]):
        metrics.observe_call(Call("BatchGetItem", PreparedRequest(b"", tables)))
    assert len(metrics._of_calls) == 1


async def test_what_nothing_was_executed_of_counts_as_refused(served: Served) -> None:
    """Variables that do not fit, and what an Idempotency-Key refuses: no field was resolved."""
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
    told = await figures(served, authorization="Bearer a-token-for-figures-only")
    refused = "gateway_operations_refused_total"
    assert told[refused, (("code", "BAD_USER_INPUT"), ("stage", "selection"))] == 2
    assert told[refused, (("code", "UNAUTHENTICATED"), ("stage", "admission"))] == 1
    assert "gateway_operations_total" not in {name for name, _ in told}


async def test_what_is_refused_below_the_endpoints_is_counted(served: Served) -> None:
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
        assert await answered(served, sent) == status
    admission = served.gateway.edge.admission
    for places in (admission.websockets, admission.connections._quota):
        places.limit = 1
        places.add("others")
        assert await answered(served, f"{opening}\r\n") == 503
        places.limit = 0
    told = await figures(served, authorization="Bearer a-token-for-figures-only")
    counted = {labels: value for (name, labels), value in told.items() if name == "gateway_http_refusals_total"}
    bad = "BAD_USER_INPUT"
    assert counted == {
        (("code", code), ("status", status)): value
        for code, status, value in (
            *((bad, "400", 2), (bad, "414", 1), (bad, "431", 2)),
            *(("FORBIDDEN", "403", 1), ("UNAVAILABLE", "503", 2)),
        )
    }


async def answered(served: Served, sent: str) -> int:
    """The status that bytes on a connection of their own are answered with."""
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
    await served.gateway.edge.socket.close()
    await remaining.receive()
    registry = served.gateway.metrics.registry
    codes = ("4406", "4400", "1009", "1001")

    def counted(code: str) -> float:
        return registry.get_sample_value("gateway_websocket_closed_total", {"code": code}) or 0

    async with asyncio.timeout(5):
        while sum(map(counted, codes)) < len(codes):  # noqa: ASYNC110 - it is counted when the connection has gone
            await asyncio.sleep(0.005)
    assert [counted(code) for code in (*codes, "1000", "1005", "1006")] == [1, 1, 1, 1, 0, 0, 0]


async def test_every_figure_is_told_of_in_the_docs(served: Served) -> None:
    """Those that only grow are counters, and nothing is told of when they began."""
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
    assert lines.told[0]["traceId"] == TRACE


async def test_errors_mark_the_span_and_nobodys_text_is_in_it(served: Served, spans: InMemorySpanExporter) -> None:
    await served.ask('{ watches(userId: "a secret name") { id } }', user="ada")
    await served.ask('{ nope(text: "a secret name") }')
    failed, refused = spans.get_finished_spans()
    assert (failed.name, refused.name) == ("graphql query", "graphql refused")
    assert (failed.status.description, refused.status.description) == ("FORBIDDEN", "BAD_USER_INPUT")
    assert "secret" not in failed.to_json() + refused.to_json()
    assert refused.attributes is not None
    assert refused.attributes["graphql.document.hash"] == sha256_of('{ nope(text: "a secret name") }')


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
    tracing = otlp_tracing()
    served.gateway.edge.runner.billing.tracing = tracing
    await served.ask(QUAKES)
    await asyncio.to_thread(tracing.close)
    (resource,) = (await received.get()).resource_spans
    names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    assert names["service.name"] == "dynamodb-graphql-gateway"
    assert {span.name for scope in resource.scope_spans for span in scope.spans} >= {"graphql query", "DynamoDB.Query"}


async def test_lines_of_refused_operations_are_limited_and_the_others_counted(served: Served, lines: Lines) -> None:
    reports = [await refused_report(served) for _ in range(2)]
    now = 100.0
    log = operation_log.OperationLog(lambda: now)
    lines.told.clear()

    for _ in range(operation_log.REFUSED_LINES + 50):
        log(reports[0])
    written = len(lines.told)
    now += 1.0
    log(reports[1])

    assert written == operation_log.REFUSED_LINES
    assert lines.told[-1]["omitted"] == 50
    assert "omitted" not in lines.told[0]


async def test_lines_of_executed_operations_are_not_limited(served: Served, lines: Lines) -> None:
    await served.ask("{areas}")
    (report,) = served.reports
    log = operation_log.OperationLog(lambda: 100.0)
    lines.told.clear()

    for _ in range(2 * operation_log.REFUSED_LINES):
        log(report)

    assert len(lines.told) == 2 * operation_log.REFUSED_LINES


async def refused_report(served: Served) -> Report:
    await served.ask("{nothing}")
    (report,) = served.reports
    return report
