"""Addresses of Redis, and the errors of its client when Redis is away."""
