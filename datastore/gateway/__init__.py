"""What the gateway stores for itself: responses under Idempotency-Keys, and persisted documents."""
