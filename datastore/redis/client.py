"""Clients of Redis that make one attempt, and the exceptions of the library while Redis is unavailable."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

# uvloop raises RuntimeError when the client writes to a connection that was closed, and the client passes it on.
REDIS_AWAY = (RedisError, OSError, RuntimeError)


def redis_client(
    url: str, *, connections: int, seconds: float, read_seconds: float | None, decode_responses: bool = False
) -> Any:
    """Return a client of the Redis at `url` with up to that many connections.

    It waits `seconds` for a free connection and for connecting, and `read_seconds` for a response, without a limit if
    that is None.
    """
    pool: Any = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=seconds,
        socket_timeout=read_seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),
        decode_responses=decode_responses,
    )
    return Redis.from_pool(pool)
