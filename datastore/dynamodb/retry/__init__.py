"""Retries of requests to DynamoDB: classification of failures, backoff, retry budget and circuit breaker.

`classify` decides which failures are retried. `circuit_breaker.CircuitBreaker` stops requests to an endpoint that does
not respond. `first_attempts` makes calls without tasks, and retries those that fail. `responses` reads the responses.
"""
