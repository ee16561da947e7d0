"""The wire client: one signed HTTP request to DynamoDB or its Streams, with retries.

Nothing else talks to the data plane.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import asyncio
import logging
import math
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any, Self, get_args

import orjson

from datastore.dynamodb.http1 import DeadlineExceeded, HttpLimits, HttpOrigin, HttpResponse, Pool
from datastore.dynamodb.prepared_request import PreparedRequest
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.budget import SUCCESS_REFUND, RetryBudget
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig, BreakerState, CircuitBreaker
from datastore.dynamodb.retry.classify import (
    NO_ANSWER_IN_TIME,
    RETRIED,
    ConditionFailed,
    RequestRefused,
    RetryableFailure,
    SignatureRefused,
    TransactionCancelled,
    as_retryable,
    error_of_response,
)
from datastore.dynamodb.sigv4 import CredentialSource, Signer
from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.explain.trace import TracedRead, call_details
from datastore.model.access_patterns import WRITES, Operation
from datastore.session.metering import Call, Meter
from datastore.session.read_cache import ReadCaches

__all__ = ["Client", "ConditionFailed", "Endpoint", "RequestRefused", "TransactionCancelled"]

ITEM_OPERATIONS = frozenset(get_args(Operation))
STREAM_OPERATIONS = {"DescribeStream", "GetShardIterator", "GetRecords", "ListStreams"}
# Throttled calls that are not repeated here: the reader of the shard lowers its rate instead
# (datastore/change_streams/shards/read_pace.py).
UNRETRIED_THROTTLES = {"GetRecords"}
# Operations that change nothing, and may be repeated at once.
READ_PREFIXES = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List")
DEFAULT_SECONDS = 10.0
LOG_REPEAT_SECONDS = 60.0
SIGNATURE_CORRECTIONS = 2

logger = logging.getLogger(__name__)

DAMAGED_RESPONSE = "The store's answers arrive damaged."
TABLE_MISSING = "The store is not ready: it lacks a table."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. The functions are asked at every call: an embedded engine may have moved."""

    tables: Callable[[], str]
    streams: Callable[[], str]
    region: str


class Client:
    """One per process. `on_call`, when set, hears of every call once it has ended, well or not. `shared` is what the
    requests of the process share of the point reads they make with it.

    What fails is tried again as far as the budget of all calls to the endpoint goes: `budget` is that of the tables.
    While an endpoint is away (`breakers`, for tables and for streams), calls wait for it for a moment, and then fail
    at once until it is back.

    `tables_come_back` tells that a missing table is being made: an embedded engine that was restarted without its data
    is given its tables again in a moment.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: CredentialSource,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
        recreates_tables: bool = False,
        budget: RetryBudget | None = None,
        breaker_config: BreakerConfig = BreakerConfig(),  # noqa: B008 - frozen
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._signer = Signer(endpoint.region)
        self.store_clock = StoreClock()
        self._backoff = backoff
        self._limits = limits
        self._recreates_tables = recreates_tables
        self._uniform = uniform
        self.budget = RetryBudget() if budget is None else budget
        self._slow_seconds = breaker_config.slow_seconds
        self._table_breaker = CircuitBreaker(
            partial(self._is_answered, "ListTables"), breaker_config, uniform, self.budget
        )
        streams = RetryBudget(self.budget.capacity)
        self._stream_breaker = CircuitBreaker(
            partial(self._is_answered, "ListStreams"), breaker_config, uniform, streams
        )
        self.breakers: Mapping[str, CircuitBreaker] = {"tables": self._table_breaker, "streams": self._stream_breaker}
        self._pool: Pool | None = None
        self._clock: Callable[[], float] = time.monotonic
        self._log_disk_full_at = -math.inf
        self.on_call: Callable[[Call], None] | None = None
        self.shared = ReadCaches()

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._limits)
        self._clock = asyncio.get_running_loop().time
        return self

    async def __aexit__(self, *_: object) -> None:
        for breaker in self.breakers.values():
            breaker.stop()
        if self._pool is not None:
            await self._pool.close()

    async def call(
        self,
        operation: str,
        request: Mapping[str, Any] | PreparedRequest,
        /,
        *,
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109 - a budget shared by all tries
        meter: Meter | None = None,
        patterns: tuple[str, ...] = (),
        traced: tuple[TracedRead, ...] = (),
        retry_request: Callable[[], Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """DynamoDB's answer as parsed JSON. `patterns` and `asks` are for the meter: what the call is made for.

        `again` makes what is sent in place of the request once it may have been done.

        Tries again with full jitter on throttling, 5xx, lost connections and damaged bodies, within `timeout`
        seconds. Raises `ConditionFailed`, `TransactionCancelled`, `RequestRefused`, or what a client may see:
        `Throttled`, `Unavailable`, `Timeout`; `ReadTooMuch` where the meter allows no more.
        """
        if meter is not None:
            meter.check_limit(operation)
        prepared = request if isinstance(request, PreparedRequest) else _prepared(request)
        now = self._clock()
        deadline = now + timeout
        breaker = self._stream_breaker if operation in STREAM_OPERATIONS else self._table_breaker
        if breaker.tripped:
            if not await breaker.wait(deadline):
                raise _breaker_error(breaker)
            now = self._clock()
        call = Call(operation, prepared, patterns, time.time(), attempted_at=now)
        started = time.monotonic()
        answer: dict[str, Any] | None = None
        if meter is not None:
            meter.open_calls += 1
        try:
            answer = await self._send_with_retries(call, breaker, deadline, retry_request)
        except DeadlineExceeded as problem:
            call.ambiguous |= problem.sent
            call.abandoned = call.ambiguous
            if problem.sent:
                self._record_abandoned(call, breaker)
            raise _with_retry_hints(Timeout(NO_ANSWER_IN_TIME), call, ambiguous=call.ambiguous) from problem
        except (asyncio.CancelledError, GeneratorExit):
            call.ambiguous = call.abandoned = True
            self._record_abandoned(call, breaker)
            raise
        except (Timeout, Unavailable, Throttled) as problem:
            raise _with_retry_hints(problem, call, ambiguous=call.ambiguous) from problem.__cause__
        except (ConditionFailed, TransactionCancelled) as failed:
            failed.is_retry = call.ambiguous
            call.unreported_units = failed.units
            raise
        finally:
            call.seconds = time.monotonic() - started
            self._report(call, answer, meter, traced)
        return answer

    async def _send_with_retries(
        self,
        call: Call,
        breaker: CircuitBreaker,
        deadline: float,
        retry_request: Callable[[], Mapping[str, Any]] | None,
    ) -> dict[str, Any]:
        """Return the answer of the first attempt, or of a retry."""
        try:
            response = await self._attempt(call, deadline)
            breaker.record_answer()
            answer = self._parse_response(call, response)
            if breaker.budget.spent:
                breaker.budget.refund(SUCCESS_REFUND)
            return answer
        except RETRIED as problem:
            return await self._retry(call, breaker, deadline, problem, retry_request)

    def now(self) -> datetime:
        """Return the store's time, by which records of streams are dated."""
        return self.store_clock.now()

    async def _retry(
        self,
        call: Call,
        breaker: CircuitBreaker,
        deadline: float,
        problem: Exception,
        retry_request: Callable[[], Mapping[str, Any]] | None,
    ) -> dict[str, Any]:
        """Try again until it is answered for good, after the first try has failed."""
        delays, corrections = self._backoff.delays(self._uniform), SIGNATURE_CORRECTIONS
        fresh, price = False, SUCCESS_REFUND
        while True:
            if isinstance(problem, SignatureRefused):
                # It may have been for the clock, for the credentials, or for one after the other.
                call.attempted_at = math.inf
                if not corrections or not await self._correct_signature(problem, deadline):
                    raise problem
                corrections -= 1
            else:
                failure = as_retryable(problem)
                fresh = await self._wait_before_retry(call, breaker, deadline, failure, delays, fresh=fresh)
                price = failure.cost
            call.attempts += 1
            if retry_request is not None and call.ambiguous:
                call.prepared, retry_request = _prepared(retry_request()), None
            call.attempted_at = self._clock()
            try:
                response = await self._attempt(call, deadline, fresh)
                breaker.record_answer()
                answer = self._parse_response(call, response)
            except RETRIED as another:
                problem = another
            else:
                breaker.budget.refund(price)
                return answer

    async def _correct_signature(self, refused: SignatureRefused, deadline: float) -> bool:
        """Whether a request would be signed at another time now, or with other credentials, than one that was refused.

        What is wrong with either is corrected, if it can be.
        """
        if self._signer.correct_clock(refused.date):
            return True
        try:
            renewed = await self._credentials.renew(deadline - self._clock())
        except TimeoutError as problem:
            raise DeadlineExceeded(sent=False) from problem
        return renewed or self._signer.was_corrected_recently

    async def _wait_before_retry(
        self,
        call: Call,
        breaker: CircuitBreaker,
        deadline: float,
        problem: RetryableFailure,
        delays: Iterator[float],
        *,
        fresh: bool,
    ) -> bool:
        """Wait for the next try; whether it is to be on a fresh connection.

        The problem is final when no try is left, none is paid for, no time for one, or the client is closed.
        """
        call.ambiguous |= problem.ambiguous
        tried, call.attempted_at = call.attempted_at, math.inf
        if problem.stale_connection and not fresh and call.operation.startswith(READ_PREFIXES):
            problem.cost = SUCCESS_REFUND  # it is charged nothing, and has nothing to give back
            return True
        delay = next(delays, None)
        if self._pool is not None and self._pool.closed:
            raise problem.error from problem
        if problem.unanswered:
            breaker.record_failure(tried, timed_out=problem.timed_out)
        if delay is None or (call.operation in UNRETRIED_THROTTLES and isinstance(problem.error, Throttled)):
            raise problem.error from problem
        if breaker.tripped:
            # Who waits until it is back sends nothing meanwhile, and is not charged.
            if not await breaker.wait(deadline):
                raise _breaker_error(breaker) from problem
            problem.cost = SUCCESS_REFUND
            return fresh
        problem.error.out_of_time = delay >= deadline - self._clock()
        if problem.error.out_of_time or not breaker.budget.take(problem.cost):
            raise problem.error from problem
        await asyncio.sleep(delay)
        return fresh

    def _record_abandoned(self, call: Call, breaker: CircuitBreaker) -> None:
        """A try that was given up unanswered is a failure, if it took long enough: who leaves early shows it, too."""
        if self._clock() - call.attempted_at >= self._slow_seconds:
            breaker.record_failure(call.attempted_at)

    async def _is_answered(self, operation: str, seconds: float) -> bool:
        """Whether an endpoint answers a request for next to nothing, whatever it answers."""
        call = Call(operation, _prepared({"Limit": 1}))
        try:
            await self._attempt(call, self._clock() + seconds, fresh=True)
        except (*RETRIED, DeadlineExceeded, DomainError):
            return False
        return True

    def reset_breakers(self) -> None:
        """Whoever knows that the store is there again tells so: it need not be found out."""
        for breaker in self.breakers.values():
            breaker.reset()

    def _attempt(self, call: Call, deadline: float, fresh: bool = False) -> Awaitable[HttpResponse]:
        """One try.

        Whatever it waits for, the deadline holds: `DeadlineExceeded` once it passes. Fails as `Pool.send` does.
        """
        credentials = self._credentials.cached
        if credentials is None:
            return self._attempt_with_new_credentials(call, deadline, fresh)
        operation, body = call.operation, call.prepared.body
        origin = _origin(self._endpoint.streams() if operation in STREAM_OPERATIONS else self._endpoint.tables())
        head = self._signer.request_head(credentials, origin.authority, _target(operation), body)
        assert self._pool is not None, "The client is used outside its `async with`."
        return self._pool.send(origin, head, body, deadline, fresh=fresh)

    async def _attempt_with_new_credentials(self, call: Call, deadline: float, fresh: bool) -> HttpResponse:
        """The same where credentials must be waited for."""
        try:
            await self._credentials.current(deadline - self._clock())
        except TimeoutError as problem:
            raise DeadlineExceeded(sent=False) from problem
        return await self._attempt(call, deadline, fresh)

    def _parse_response(self, call: Call, answer: HttpResponse) -> dict[str, Any]:
        content = answer.content
        self.store_clock.observe(answer.date)
        if answer.checksum is not None and answer.checksum != b"%d" % zlib.crc32(content):
            raise RetryableFailure(Unavailable(DAMAGED_RESPONSE))
        if answer.status == 200:
            try:
                whole: dict[str, Any] = orjson.loads(content)
            except orjson.JSONDecodeError as problem:
                raise RetryableFailure(Unavailable(DAMAGED_RESPONSE)) from problem
            return whole
        refusal = error_of_response(answer.status, content)
        if isinstance(refusal, Unavailable):
            self._log_disk_full(content)
        if isinstance(refusal, SignatureRefused):
            refusal.date = answer.date
        if self._recreates_tables and _is_missing_table(call.operation, refusal):
            raise RetryableFailure(Unavailable(TABLE_MISSING), ambiguous=False, cost=0) from refusal
        raise refusal

    def _log_disk_full(self, content: bytes) -> None:
        if self._clock() >= self._log_disk_full_at:
            self._log_disk_full_at = self._clock() + LOG_REPEAT_SECONDS
            said = content.decode(errors="replace")[:300]
            logger.error("The store cannot write: make room on its disk; it then goes on by itself. It says: %s", said)

    def _report(
        self, call: Call, answer: Mapping[str, Any] | None, meter: Meter | None, traced: tuple[TracedRead, ...]
    ) -> None:
        """Tell those who count that a call has ended."""
        if answer is None:
            call.failed = True
        else:
            call.units = consumed(answer)
        if traced:
            call.details = call_details(call.operation, call.request, answer or {}, traced)
        if meter is not None:
            meter.open_calls -= 1
            meter.record(call)
        if self.on_call is not None:
            self.on_call(call)


@cache
def _target(operation: str) -> str:
    return f"{'DynamoDBStreams' if operation in STREAM_OPERATIONS else 'DynamoDB'}_20120810.{operation}"


@lru_cache(maxsize=16)
def _origin(url: str) -> HttpOrigin:
    return HttpOrigin.of(url)


def _breaker_error(breaker: CircuitBreaker) -> DomainError:
    """What one is told who has waited for it: until it was known to be away, or for as long as there was time."""
    problem = breaker.error()
    problem.out_of_time = breaker.state is BreakerState.WAITING
    return problem


def _with_retry_hints(problem: DomainError, call: Call, *, ambiguous: bool) -> DomainError:
    """A write that may have been applied is no safe one to send again: the caller is told so."""
    if ambiguous and call.operation.startswith(WRITES):
        problem.extensions.pop("retryAfter", None)
        problem.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return problem


def _prepared(payload: Mapping[str, Any]) -> PreparedRequest:
    """Raises `RequestRefused` for what JSON does not hold, such as half a surrogate pair."""
    try:
        return PreparedRequest.of(payload)
    except TypeError as problem:
        raise RequestRefused("SerializationException", str(problem)) from problem


def _is_missing_table(operation: str, refusal: Exception) -> bool:
    """Whether a table that is read or written is not there; those who ask for tables and streams are told as it is."""
    lacking = isinstance(refusal, RequestRefused) and refusal.code == "ResourceNotFoundException"
    return lacking and operation in ITEM_OPERATIONS


def consumed(answer: Mapping[str, Any]) -> float:
    """The capacity units that an answer tells, over all tables."""
    told = answer.get("ConsumedCapacity") or ()
    if isinstance(told, dict):
        return float(told.get("CapacityUnits", 0.0))
    return float(sum([entry.get("CapacityUnits", 0.0) for entry in told]))
