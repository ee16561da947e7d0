"""Token buckets in Redis, which all processes share. While Redis is unavailable each process uses its own buckets."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from datastore.primitives.tasks import cancel
from datastore.redis.client import REDIS_AWAY, redis_client
from server.admission.budgets import Budget, LocalBuckets

PREFIX = "gateway:budget:"
# The longest time that a request waits for Redis.
TIMEOUT_SECONDS = 0.1
# The timeouts of the client library as a multiple of TIMEOUT_SECONDS: they only end calls that were abandoned before.
LIBRARY_TIMEOUT_FACTOR = 10
# A wait is divided into this many turns of the loop, so that one blocked turn does not use up the whole timeout.
TURNS = 4
RETRY_SECONDS = 1.0
# The longest time that the start waits for Redis, which includes the first connection.
START_SECONDS = 1.0
# The interval between pings of Redis while it responds: without traffic nothing else would notice that it fails.
PING_SECONDS = 5.0
LOG_SECONDS = 30.0
CONNECTIONS = 32

# The script does what `LocalBuckets` does, in one atomic step. KEYS: the bucket. ARGV: its size, the refill rate in
# units per second, the units to take, whether to take them unconditionally, the time in seconds (by default that of the
# server), and the largest debt. A full bucket is removed.
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

Reply = TypeVar("Reply")

_log = logging.getLogger(__name__)


class RedisBuckets:
    """The buckets in the Redis at `url`, by the clock of Redis unless `clock` is given.

    If Redis does not respond within `timeout` seconds, it is not called until a ping in the background succeeds. Until
    then the buckets of this process, `local`, are used. After `start`, Redis is also pinged every `ping_seconds`.
    """

    def __init__(
        self,
        url: str,
        local: LocalBuckets | None = None,
        *,
        prefix: str = PREFIX,
        clock: Callable[[], float] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        seconds = LIBRARY_TIMEOUT_FACTOR * timeout
        self._redis = redis_client(url, connections=CONNECTIONS, seconds=seconds, read_seconds=seconds)
        self._take = self._redis.register_script(TAKE)
        self._local = LocalBuckets() if local is None else local
        self._prefix = prefix
        self._clock = clock
        self._timeout = timeout
        self._retry_seconds = retry_seconds
        self._ping_seconds = ping_seconds
        self._recovery: asyncio.Task[None] | None = None
        self._pings: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._logged_at = -LOG_SECONDS

    @property
    def is_available(self) -> bool:
        """Whether Redis is used."""
        return self._recovery is None

    async def start(self) -> None:
        """Ping Redis, so that `is_available` is known before the first request, and again from time to time."""
        await self._ping(START_SECONDS)
        self._pings = asyncio.create_task(self._ping_forever())

    async def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        """Do what `LocalBuckets.take` does. If the caller is cancelled, the units are refunded."""
        charging = self._start(self._charge(key, budget, units))
        try:
            return await asyncio.shield(charging)
        except asyncio.CancelledError:
            # Redis may still take the units, and no caller is left to settle them.
            self._start(self._refund(charging, key, budget, units))
            raise

    async def settle(self, key: str, budget: Budget, units: float) -> float:
        """Do what `LocalBuckets.take` does with `always`, also if the caller is cancelled."""
        return await asyncio.shield(self._start(self._settle(key, budget, units)))

    async def _charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        reply = await self._call(key, budget, units, always=False)
        return self._local.take(key, budget, units, always=False) if reply is None else reply

    async def _settle(self, key: str, budget: Budget, units: float) -> float:
        reply = await self._call(key, budget, units, always=True)
        return self._local.take(key, budget, units, always=True)[1] if reply is None else reply[1]

    async def _refund(self, charging: asyncio.Task[tuple[bool, float]], key: str, budget: Budget, units: float) -> None:
        taken, _ = await charging
        if taken:
            await self._settle(key, budget, -units)

    def _start(self, call: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Start a call that completes even if its caller is cancelled."""
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def aclose(self) -> None:
        while self._calls:
            await asyncio.wait(self._calls)
        await cancel(self._pings, self._recovery)
        await self._redis.aclose()

    async def _call(self, key: str, budget: Budget, units: float, *, always: bool) -> tuple[bool, float] | None:
        """Return whether Redis took the units, and the balance; None while Redis is unavailable."""
        if self._recovery is not None:
            return None
        now = "" if self._clock is None else repr(self._clock())
        arguments: list[str | int | float] = [budget.units, budget.per_second, repr(float(units)), int(always), now]
        arguments.append(budget.max_debt)
        try:
            taken, balance = await self._within(self._timeout, self._take(keys=[self._prefix + key], args=arguments))
        except REDIS_AWAY as problem:
            if type(problem) is ResponseError:
                # Redis responds, but cannot process this bucket.
                self._warn("Redis rejects the update of a budget, which is counted in this process alone", problem)
            else:
                self._fall_back(problem)
            return None
        return bool(taken), float(balance)

    async def _within(self, seconds: float, call: Coroutine[Any, Any, Reply]) -> Reply:
        reply = asyncio.ensure_future(call)
        try:
            for _ in range(TURNS):
                if (await asyncio.wait((reply,), timeout=seconds / TURNS))[0]:
                    return reply.result()
            raise TimeoutError
        finally:
            reply.cancel()

    def _warn(self, message: str, problem: Exception) -> None:
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self._logged_at = time.monotonic()
            _log.warning("%s: %s", message, str(problem) or "too slow")

    def _fall_back(self, problem: Exception) -> None:
        self._warn("Redis does not respond: budgets are counted in each process alone until it does", problem)
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._wait_for_redis())

    async def _ping_forever(self) -> None:
        while True:
            await asyncio.sleep(self._ping_seconds)
            if self._recovery is None:
                await self._ping(self._timeout)

    async def _ping(self, seconds: float) -> None:
        """Fall back to the buckets of this process if Redis does not respond to a ping."""
        try:
            await self._within(seconds, self._redis.ping())
        except REDIS_AWAY as problem:
            self._fall_back(problem)

    async def _wait_for_redis(self) -> None:
        while True:
            await asyncio.sleep(self._retry_seconds)
            try:
                async with asyncio.timeout(self._timeout):
                    await self._redis.ping()
            except REDIS_AWAY:
                continue
            self._recovery = None
            return
