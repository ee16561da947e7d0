"""Observability: a log line for each operation, metrics for Prometheus, and spans for OpenTelemetry."""
