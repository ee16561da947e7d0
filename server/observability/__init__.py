"""What operators see of operations: one line in the log for each, figures for Prometheus, spans for OpenTelemetry."""
