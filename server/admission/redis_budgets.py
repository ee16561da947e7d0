"""Buckets in Redis, shared by all processes; in this process while Redis is not there."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from datastore.redis.failures import REDIS_AWAY
from server.admission.budgets import Budget, LocalBuckets

PREFIX = "gateway:budget:"
# No request waits for Redis longer than that.
PATIENCE_SECONDS = 0.1
PATIENT = 10
# Patience is counted in so many turns of the loop: one that is held up loses one of them, not all.
TURNS = 4
RETRY_SECONDS = 1.0
LOG_SECONDS = 30.0
CONNECTIONS = 32

# The same as `LocalBuckets` does, in one step. KEYS: the bucket. ARGV: size, flow a second, units, whether to take them
# in any case, the moment in seconds (else it is the server's), and the most that may be owed. A bucket that would be
# full is not kept.
TAKE = """
local size, flow, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local kept = redis.call('HMGET', KEYS[1], 'balance', 'at')
local least = -tonumber(ARGV[6])
local balance, at = tonumber(kept[1] or ''), tonumber(kept[2] or '')
if balance and at then
  balance = math.min(size, math.max(least, balance) + math.max(0, now - at) * flow)
else
  balance = size
end
local taken = ARGV[4] == '1' or balance >= math.min(units, size)
if taken then
  balance = math.max(least, math.min(size, balance - units))
  if balance >= size then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'balance', string.format('%.17g', balance), 'at', string.format('%.17g', now))
    redis.call('PEXPIRE', KEYS[1], math.ceil((size - balance) / flow * 1000) + 1000)
  end
end
return {taken and 1 or 0, string.format('%.17g', balance)}
"""

Asked = TypeVar("Asked")

_log = logging.getLogger(__name__)


class RedisBuckets:
    """Buckets at a `url`. The moment is Redis's own, unless a `clock` tells it.

    Redis that does not answer in time is left alone until a ping in the background finds it again; meanwhile the
    buckets are those of this process, `local`.
    """

    def __init__(
        self,
        url: str,
        local: LocalBuckets | None = None,
        *,
        prefix: str = PREFIX,
        clock: Callable[[], float] | None = None,
        patience: float = PATIENCE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            # Whoever asks has lost patience before.
            timeout=PATIENT * patience,
            socket_timeout=PATIENT * patience,
            socket_connect_timeout=PATIENT * patience,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis.from_pool(pool)
        self._take = self._redis.register_script(TAKE)
        self._local = LocalBuckets() if local is None else local
        self._prefix = prefix
        self._clock = clock
        self._patience = patience
        self._retry_seconds = retry_seconds
        self._return: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[Any]] = set()
        self._logged = -LOG_SECONDS

    @property
    def is_there(self) -> bool:
        """Whether Redis is asked."""
        return self._return is None

    async def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        charging = self._begin(self._charge(key, budget, units))
        try:
            return await asyncio.shield(charging)
        except asyncio.CancelledError:
            # Redis may take them all the same, and nobody is left to settle what he never got.
            self._begin(self._give_back(charging, key, budget, units))
            raise

    async def settle(self, key: str, budget: Budget, units: float) -> float:
        return await asyncio.shield(self._begin(self._settle(key, budget, units)))

    async def _charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        answer = await self._asked(key, budget, units, always=False)
        return await self._local.charge(key, budget, units) if answer is None else answer

    async def _settle(self, key: str, budget: Budget, units: float) -> float:
        answer = await self._asked(key, budget, units, always=True)
        return await self._local.settle(key, budget, units) if answer is None else answer[1]

    async def _give_back(
        self, charging: asyncio.Task[tuple[bool, float]], key: str, budget: Budget, units: float
    ) -> None:
        taken, _ = await charging
        if taken:
            await self._settle(key, budget, -units)

    def _begin(self, asking: Coroutine[Any, Any, Asked]) -> asyncio.Task[Asked]:
        """What is asked of a bucket comes to its end, also when who asks is cancelled."""
        task = asyncio.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task

    async def aclose(self) -> None:
        while self._asking:
            await asyncio.wait(self._asking)
        if self._return is not None:
            self._return.cancel()
            await asyncio.gather(self._return, return_exceptions=True)
        await self._redis.aclose()

    async def _asked(self, key: str, budget: Budget, units: float, *, always: bool) -> tuple[bool, float] | None:
        """What Redis says, or None while it is not there."""
        if self._return is not None:
            return None
        now = "" if self._clock is None else repr(self._clock())
        arguments: list[str | int | float] = [budget.units, budget.per_second, repr(float(units)), int(always), now]
        arguments.append(budget.most_owed)
        try:
            taken, balance = await self._patiently(self._take(keys=[self._prefix + key], args=arguments))
        except REDIS_AWAY as problem:
            if type(problem) is ResponseError:
                # It is there, and cannot do anything with this bucket.
                self._warn("Redis refuses a budget, which counts in this process alone", problem)
            else:
                self._give_up(problem)
            return None
        return bool(taken), float(balance)

    async def _patiently(self, asked: Coroutine[Any, Any, Asked]) -> Asked:
        asking = asyncio.ensure_future(asked)
        try:
            for _ in range(TURNS):
                if (await asyncio.wait((asking,), timeout=self._patience / TURNS))[0]:
                    return asking.result()
            raise TimeoutError
        finally:
            asking.cancel()

    def _warn(self, what: str, problem: Exception) -> None:
        if time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            _log.warning("%s: %s", what, str(problem) or "too slow")

    def _give_up(self, problem: Exception) -> None:
        self._warn("Redis does not answer, budgets count in this process alone", problem)
        if self._return is None:
            self._return = asyncio.create_task(self._wait_for_redis())

    async def _wait_for_redis(self) -> None:
        while True:
            await asyncio.sleep(self._retry_seconds)
            try:
                async with asyncio.timeout(self._patience):
                    await self._redis.ping()
            except REDIS_AWAY:
                continue
            self._return = None
            return
