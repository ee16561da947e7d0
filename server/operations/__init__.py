"""The life of an operation: request, admission, execution, billing, idempotency and outcome."""
