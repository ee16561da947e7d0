"""What Redis's client raises when Redis is away."""

from redis.exceptions import RedisError

# RuntimeError: uvloop's, from a write on a connection that was closed since it was made; the client lets it through.
REDIS_AWAY = (RedisError, OSError, RuntimeError)
