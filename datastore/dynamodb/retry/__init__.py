"""Retries of requests to DynamoDB: classification of failures, backoff, retry budget and circuit breaker.

`classify` says what a refusal means, `circuit_breaker.Breaker` stops requests to an endpoint that does not answer.
"""
