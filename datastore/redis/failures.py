"""The exceptions of the Redis client while Redis is unavailable."""

from redis.exceptions import RedisError

# uvloop raises RuntimeError when the client writes to a connection that was closed, and the client passes it on.
REDIS_AWAY = (RedisError, OSError, RuntimeError)
