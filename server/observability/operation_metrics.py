"""Metrics of operations and of their DynamoDB calls, for Prometheus.

The labels come from the schema and the tables, so their number is bounded. Names of operations are not labels, because
clients choose them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from datastore.dynamodb.calls import Call
from server.documents.request import Stage
from server.observability.counters import CounterFamily, CounterValue, HistogramFamily, HistogramValue, Labels
from server.operations.report import Report

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNITS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
# The values of calls with the same labels, looked up once: their number, their capacity units and their duration.
_CallValues = tuple[CounterValue, CounterValue, HistogramValue, Labels]
_EXECUTION = Stage.EXECUTION
RATIOS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0, 10.0)


# Without this, each series would have a second series with its time of creation.
disable_created_metrics()  # type: ignore[no-untyped-call]


class OperationMetrics:
    """The metrics of operations and of calls to DynamoDB, including those of background work.

    `prefix` is removed from the names of the store's tables: labels have the declared names.
    """

    def __init__(self, registry: CollectorRegistry, prefix: str = "") -> None:
        self._prefix = prefix
        self._registry = registry
        of_operations = ("transport", "type", "field")
        self._operations = self._counter(
            "gateway_operations",
            "Operations that were executed, by the code of their first error, or OK.",
            *of_operations,
            "code",
        )
        self._seconds = self._histogram(
            "gateway_operation_duration_seconds", "The duration of queries and mutations.", SECONDS, *of_operations
        )
        self._units = self._histogram(
            "gateway_operation_units",
            "The capacity units that DynamoDB reported for a query or mutation.",
            UNITS,
            "type",
        )
        self._ratio = self._histogram(
            "gateway_operation_units_to_estimate",
            "The actual cost of a query or mutation divided by its estimate.",
            RATIOS,
            "type",
        )
        self._refused = self._counter(
            "gateway_operations_refused", "Operations that were refused before execution.", "stage", "code"
        )
        self._http_refusals = self._counter(
            "gateway_http_refusals",
            "Requests, connections and WebSocket handshakes that were refused before an operation, or failed (500).",
            "status",
            "code",
        )
        self._mcp = self._counter("gateway_mcp_requests", "Requests of MCP clients.", "method", "status")
        self._closed = self._counter("gateway_websocket_closed", "WebSockets that the server closed.", "code")
        self._events = self._counter("gateway_events", "Events that were sent to subscribers.", "transport")
        self._bytes = self._counter("gateway_sent_bytes", "Bytes of responses and events.", "transport")
        of_calls = ("operation", "table", "index")
        self._calls = self._counter("gateway_dynamodb_calls", "Calls to DynamoDB.", *of_calls)
        self._capacity = self._counter("gateway_dynamodb_units", "Capacity units that DynamoDB reported.", *of_calls)
        self._retries = self._counter("gateway_dynamodb_retries", "Attempts of calls beyond the first.", *of_calls)
        self._waits = self._histogram(
            "gateway_dynamodb_call_duration_seconds",
            "The duration of a call with all its attempts.",
            SECONDS,
            "operation",
        )
        self._of_calls: dict[tuple[str, tuple[str, ...], str | None], _CallValues] = {}
        self._of_operations: dict[tuple[str, str, str, str], _OperationValues] = {}
        ProcessCollector(registry=registry)

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None:
        """Register a gauge whose value `read` returns at each scrape."""
        Gauge(name, help_, registry=self._registry).set_function(read)

    def count(self, name: str, help_: str, read: Callable[[], float]) -> None:
        """Register a counter whose value `read` returns at each scrape. The suffix `_total` is added to its name."""
        self._registry.register(_Count(name, help_, read))

    def observe_operation(self, report: Report) -> None:
        """Count an operation that has ended, or was refused."""
        # `_value_`: the property `value` of an enum takes longer than the counting.
        transport = report.transport._value_
        code = report.codes[0] if report.codes else "OK"
        if report.operation is None or report.stage is not _EXECUTION:
            self._bytes.add((transport,), report.sent_bytes)
            self._refused.add((report.stage._value_, code))
            return
        labels = transport, report.operation.kind._value_, report.operation.root_field, code
        values = self._of_operations.get(labels)
        if values is None:
            values = self._of_operations[labels] = self._operation_values(*labels)
        values.sent.amount += report.sent_bytes
        values.operations.amount += 1
        if values.events is not None:
            values.events.amount += report.events
        if values.seconds is not None and values.units is not None:
            values.seconds.observe(report.seconds)
            values.units.observe(report.units)
            if report.estimate > 0 and report.calls and not report.replayed:
                if values.ratio is None:
                    values.ratio = self._ratio.labelled((labels[1],))
                values.ratio.observe(report.cost / report.estimate)

    def _operation_values(self, transport: str, kind: str, field: str, code: str) -> "_OperationValues":
        sent, operations = self._bytes.labelled((transport,)), self._operations.labelled((transport, kind, field, code))
        if kind == "subscription":
            return _OperationValues(sent, operations, events=self._events.labelled((transport,)))
        seconds, units = self._seconds.labelled((transport, kind, field)), self._units.labelled((kind,))
        return _OperationValues(sent, operations, seconds=seconds, units=units)

    def http_refusal(self, status: int, code: str) -> None:
        """Count a request that was refused before it became an operation."""
        self._http_refusals.add((str(status), code))

    def mcp_request(self, method: str, status: int) -> None:
        """Count a request of the Model Context Protocol. `method` is one of a fixed set."""
        self._mcp.add((method, str(status)))

    def websocket_closed(self, code: int) -> None:
        """Count a WebSocket that the server closed with this code."""
        self._closed.add((str(code),))

    def observe_call(self, call: Call) -> None:
        """Count a call to DynamoDB."""
        prepared = call.prepared
        # Calls to several tables share their values, because clients choose the combination.
        key = call.operation, () if prepared.tables[1:] else prepared.tables, prepared.index
        values = self._of_calls.get(key)
        if values is None:
            values = self._of_calls[key] = self._call_values(*key)
        calls, units, waits, labels = values
        calls.amount += 1
        units.amount += call.units
        waits.observe(call.seconds)
        if call.attempts > 1:
            self._retries.add(labels, call.attempts - 1)

    def _call_values(self, operation: str, tables: Sequence[str], index: str | None) -> _CallValues:
        labels = operation, tables[0].removeprefix(self._prefix) if tables else "several", index or ""
        return self._calls.labelled(labels), self._capacity.labelled(labels), self._waits.labelled((operation,)), labels

    def _counter(self, name: str, help_: str, *labels: str) -> CounterFamily:
        return CounterFamily(self._registry, name, help_, labels)

    def _histogram(self, name: str, help_: str, bounds: Sequence[float], *labels: str) -> HistogramFamily:
        return HistogramFamily(self._registry, name, help_, bounds, labels)


@dataclass(slots=True)
class _OperationValues:
    """The values of operations with the same labels."""

    sent: CounterValue
    operations: CounterValue
    events: CounterValue | None = None
    seconds: HistogramValue | None = None
    units: HistogramValue | None = None
    ratio: HistogramValue | None = None


class _Count(Collector):
    """A counter whose value `read` returns."""

    def __init__(self, name: str, help_: str, read: Callable[[], float]) -> None:
        self._name = name
        self._help = help_
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, self._read())
