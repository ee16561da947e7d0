"""Automatic persisted queries shared between processes through Redis."""

import logging
import time
from collections.abc import Callable

from datastore.redis.client import REDIS_AWAY, redis_client

SHARED_SECONDS = 24 * 3600
# The timeout of a call. After a failure Redis is not called for PAUSE_SECONDS, so that requests do not wait for it.
TIMEOUT_SECONDS = 0.1
PAUSE_SECONDS = 5.0
CONNECTIONS = 16
KEY = "gateway:apq:"

_log = logging.getLogger(__name__)


class RedisTexts:
    """A store of texts in the Redis at `url`. A text expires 24 hours after it was stored.

    While Redis is unavailable no text is found or stored. `clock` returns monotonic seconds.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis_client(
            url,
            connections=CONNECTIONS,
            seconds=TIMEOUT_SECONDS,
            read_seconds=TIMEOUT_SECONDS,
            decode_responses=True,
        )
        self._clock = clock
        self._paused_until = float("-inf")

    async def aclose(self) -> None:
        await self._redis.aclose()

    async def get(self, document_hash: str) -> str | None:
        if self._is_paused:
            return None
        try:
            text = await self._redis.get(KEY + document_hash)
        except UnicodeDecodeError:  # a value of another program
            return None
        except REDIS_AWAY as problem:
            self._pause(problem)
            return None
        return text if isinstance(text, str) else None

    async def put(self, document_hash: str, text: str) -> None:
        if self._is_paused:
            return
        try:
            await self._redis.set(KEY + document_hash, text, ex=SHARED_SECONDS)
        except REDIS_AWAY as problem:
            self._pause(problem)

    @property
    def _is_paused(self) -> bool:
        return self._clock() < self._paused_until

    def _pause(self, problem: Exception) -> None:
        self._paused_until = self._clock() + PAUSE_SECONDS
        _log.warning(
            "Redis is unavailable: automatic persisted queries are not shared for %.0f s: %s", PAUSE_SECONDS, problem
        )
