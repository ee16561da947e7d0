"""The validation of Redis URLs, and the exceptions of the Redis client."""
