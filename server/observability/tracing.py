"""OpenTelemetry spans for operations and for their calls to DynamoDB. Fields have no spans.

Names and attributes are those of the semantic conventions: https://opentelemetry.io/docs/specs/semconv/graphql/ and
https://opentelemetry.io/docs/specs/semconv/database/dynamodb/
"""

import os
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from datastore.dynamodb.calls import Call
from server.observability.operation_log import MAX_NAME_CHARACTERS, caller_kind
from server.operations.report import Report

SERVICE = "dynamodb-graphql-gateway"
_NANO = 1_000_000_000
_parents = TraceContextTextMapPropagator()


class OperationTracing:
    """A writer of spans from reports. `prefix` is removed from the names of the store's tables."""

    def __init__(self, provider: TracerProvider, prefix: str = "") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE)
        self._prefix = prefix
        self._spans: dict[int, Span] = {}

    def start(self, report: Report) -> None:
        parent = (
            _parents.extract({"traceparent": report.params.traceparent}) if report.params.traceparent else Context()
        )
        kind = report.operation.kind.value if report.operation else "refused"
        span = self._tracer.start_span(
            f"graphql {kind}", parent, kind=SpanKind.SERVER, attributes=_start_attributes(report)
        )
        self._spans[id(report)] = span
        span_context = span.get_span_context()
        if span_context.trace_flags & TraceFlags.SAMPLED:
            report.trace_id = trace.format_trace_id(span_context.trace_id)

    def add_calls(self, report: Report) -> None:
        span = self._spans[id(report)]
        if span.is_recording():
            parent = trace.set_span_in_context(span, Context())
            for call in report.latest_calls:
                self._call(call, parent)

    def end(self, report: Report) -> None:
        span = self._spans.pop(id(report))
        span.set_attributes(_end_attributes(report))
        if report.codes:
            span.set_status(Status(StatusCode.ERROR, report.codes[0]))
        span.end()

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()

    def _call(self, call: Call, parent: Context) -> None:
        started_at = int(call.started_at * _NANO)
        attributes: dict[str, Any] = {
            "db.system.name": "aws.dynamodb",
            "db.operation.name": call.operation,
            "aws.dynamodb.table_names": [name.removeprefix(self._prefix) for name in call.tables],
            "gateway.patterns": call.patterns,
            "gateway.capacity_units": call.units,
            "gateway.retries": call.attempts - 1,
        }
        if call.index is not None:
            attributes["aws.dynamodb.index_name"] = call.index
        span = self._tracer.start_span(
            f"DynamoDB.{call.operation}", parent, kind=SpanKind.CLIENT, attributes=attributes, start_time=started_at
        )
        span.end(started_at + int(call.seconds * _NANO))


def _start_attributes(report: Report) -> dict[str, Any]:
    name = report.operation.name if report.operation else report.params.name
    attributes = {
        "graphql.operation.name": (name or "")[:MAX_NAME_CHARACTERS] or None,
        "graphql.operation.type": report.operation.kind.value if report.operation else None,
        "graphql.document.hash": report.document_hash,
        "gateway.document_id": report.requested_id,
        "gateway.transport": report.transport.value,
        "gateway.caller": caller_kind(report.caller),
        "gateway.cost": report.estimate,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _end_attributes(report: Report) -> dict[str, Any]:
    return {
        "gateway.stage": report.stage.value,
        "gateway.codes": sorted(set(report.codes)),
        "gateway.capacity_units": report.units,
        "gateway.calls": report.calls,
        "gateway.patterns": sorted(report.patterns),
        "gateway.retries": report.retries,
        "gateway.events": report.events,
        "gateway.sent_bytes": report.sent_bytes,
    }


def otlp_tracing(prefix: str = "") -> OperationTracing:
    """Return tracing that exports batches by OTLP over HTTP. OpenTelemetry's environment variables configure it."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OperationTracing(provider, prefix)


def _resource() -> Resource:
    """Return the resource. OpenTelemetry's environment variables have priority over the default service name."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": SERVICE})
