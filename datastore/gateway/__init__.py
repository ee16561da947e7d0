"""The gateway's own items: idempotency records and persisted documents."""
