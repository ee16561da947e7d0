"""The client of DynamoDB and DynamoDB Streams: each call is a signed HTTP request with retries.

No other module makes calls of the data plane.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import asyncio
import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self

import orjson

from datastore.dynamodb.calls import (
    ITEM_WRITES,
    WRITE_UNIT_COST,
    Call,
    CallMeter,
    TracedRead,
    call_details,
    consumed_units,
    with_retry_hints,
)
from datastore.dynamodb.http1 import DeadlineExceeded, HttpLimits, HttpResponse
from datastore.dynamodb.read_cache import ReadCaches
from datastore.dynamodb.requests import PreparedRequest
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.budget import SUCCESS_REFUND, RetryBudget
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig, CircuitBreaker
from datastore.dynamodb.retry.classify import (
    NO_ANSWER_IN_TIME,
    READ_PREFIXES,
    RETRYABLE,
    UNRETRIED_THROTTLES,
    ConditionFailed,
    RequestRefused,
    RetryableFailure,
    SignatureRefused,
    TransactionCancelled,
    as_retryable,
    error_of_response,
    is_missing_table,
)
from datastore.dynamodb.retry.disk_state import DiskState
from datastore.dynamodb.retry.first_attempts import FirstAttempts
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.dynamodb.store_clock import StoreClock
from datastore.dynamodb.transport import STREAM_OPERATIONS, Endpoint, SignedTransport
from datastore.errors import DomainError, Throttled, Timeout, Unavailable

__all__ = ["Client", "ConditionFailed", "Endpoint", "RequestRefused", "TransactionCancelled"]

DEFAULT_SECONDS = 10.0
# The number of retries of a call after a refused signature: the clock, the credentials, or both may be wrong.
SIGNATURE_CORRECTIONS = 2


DAMAGED_RESPONSE = "The store's responses arrive damaged."
TABLE_MISSING = "The store is not ready: it lacks a table."

CallListener = Callable[[Call], None]
# Returns the request that replaces the first one in retries, once the first may have been applied.
RetryRequest = Callable[[], Mapping[str, Any]]


class Client:
    """The process's client of one store.

    Failed attempts are retried while the endpoint's retry budget allows it. If an endpoint does not respond, its
    circuit breaker makes calls wait for a moment, and then makes them fail at once until the endpoint responds again.
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
        on_call: CallListener | None = None,
        read_caches: ReadCaches | None = None,
    ) -> None:
        """Create a client.

        recreates_tables: whether a missing table will be created soon, as after the restart of an embedded engine that
            keeps its data in memory. Calls are then retried.
        budget: the retry budget of the tables' endpoint.
        on_call: receives each call that has ended, successful or not.
        """
        self._transport = SignedTransport(endpoint, credentials, limits)
        self.store_clock = StoreClock()
        self._latest_date: bytes | None = None
        self._backoff = backoff
        self._recreates_tables = recreates_tables
        #: The retry budget of the tables' endpoint.
        self.budget = RetryBudget() if budget is None else budget
        self._slow_seconds = breaker_config.slow_seconds
        self._table_breaker = CircuitBreaker(
            partial(self._is_answered, "ListTables"), breaker_config, budget=self.budget
        )
        streams = RetryBudget(self.budget.capacity)
        self._stream_breaker = CircuitBreaker(partial(self._is_answered, "ListStreams"), breaker_config, budget=streams)
        self.breakers: Mapping[str, CircuitBreaker] = {"tables": self._table_breaker, "streams": self._stream_breaker}
        self._clock: Callable[[], float] = time.monotonic
        #: Whether the store's disk is full, by the response to the last write.
        self.disk = DiskState()
        self._listeners: tuple[CallListener, ...] = () if on_call is None else (on_call,)
        #: The point reads that the requests of the process share.
        self.read_caches = ReadCaches() if read_caches is None else read_caches

    async def __aenter__(self) -> Self:
        self._transport.open()
        self._clock = asyncio.get_running_loop().time
        return self

    async def __aexit__(self, *_: object) -> None:
        for breaker in self.breakers.values():
            breaker.stop()
        await self._transport.close()

    def add_call_listener(self, listener: CallListener) -> Callable[[], None]:
        """Pass each call that has ended to a further listener. Return a function that removes the listener."""
        self._listeners += (listener,)

        def remove() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    async def call(
        self,
        operation: str,
        request: Mapping[str, Any] | PreparedRequest,
        /,
        *,
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109 - a deadline for all attempts
        meter: CallMeter | None = None,
        patterns: tuple[str, ...] = (),
        traced: tuple[TracedRead, ...] = (),
        retry_request: RetryRequest | None = None,
    ) -> dict[str, Any]:
        """Call an operation and return the response as parsed JSON.

        Throttling, status 5xx, lost connections and damaged bodies are retried with full jitter within `timeout`
        seconds. `patterns` and `traced` are recorded with the call.

        Raises:
            ConditionFailed, TransactionCancelled: A condition of a write failed.
            RequestRefused: DynamoDB refused the request.
            Throttled, Unavailable, Timeout: All attempts failed.
            ReadTooMuch: The meter allows no more reads.
        """
        if meter is not None:
            meter.check_limit(operation)
        prepared = request if isinstance(request, PreparedRequest) else PreparedRequest.of(request)
        now = self._clock()
        deadline = now + timeout
        breaker = self._stream_breaker if operation in STREAM_OPERATIONS else self._table_breaker
        if breaker.tripped:
            if not await breaker.wait(deadline):
                raise breaker.error()
            now = self._clock()
        call = Call(operation, prepared, patterns, time.time(), attempted_at=now)
        if meter is not None:
            meter.open_calls += 1
        return await self._complete(breaker, deadline, now, meter, traced, retry_request, call)

    async def call_each(
        self,
        operation: str,
        requests: Sequence[PreparedRequest],
        /,
        *,
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109 - a deadline for all attempts
        meter: CallMeter,
        patterns: tuple[str, ...] = (),
        traced: tuple[TracedRead, ...] = (),
    ) -> list[dict[str, Any] | BaseException]:
        """Make several calls at once. Return for each request what `call` returns, or the error that it raises.

        The requests are sent on idle connections; those for which there is none are sent by `call`. Raises
        `ReadTooMuch`, as `call` does.
        """
        meter.check_limit(operation)
        now = self._clock()
        deadline = now + timeout
        breaker = self._stream_breaker if operation in STREAM_OPERATIONS else self._table_breaker

        def finish(call: Call, response: HttpResponse) -> dict[str, Any]:
            content = self._parse_response(call, response)
            breaker.record_answer()
            if breaker.budget.spent:
                breaker.budget.refund(SUCCESS_REFUND)
            call.seconds = self._clock() - now
            self._report(call, content, meter, traced)
            return content

        def abandon(call: Call) -> None:
            self._record_abandoned(call, breaker)
            call.seconds = self._clock() - now
            self._report(call, None, meter, traced)

        proceed = partial(self._complete, breaker, deadline, now, meter, traced, None)
        attempts, began_at = FirstAttempts(finish, proceed, abandon), time.time()
        for prepared in requests:
            started = None if breaker.tripped else self._transport.start(operation, prepared.body, deadline)
            if started is None:
                calling = self.call(operation, prepared, timeout=timeout, meter=meter, patterns=patterns, traced=traced)
                attempts.add_task(calling)
            else:
                meter.open_calls += 1
                attempts.add(Call(operation, prepared, patterns, began_at, attempted_at=now), started)
        return await attempts.results()

    async def _complete(
        self,
        breaker: CircuitBreaker,
        deadline: float,
        began_at: float,
        meter: CallMeter | None,
        traced: tuple[TracedRead, ...],
        retry_request: RetryRequest | None,
        call: Call,
        first: "asyncio.Future[HttpResponse] | None" = None,
    ) -> dict[str, Any]:
        """Return the response of a call, whose `first` attempt may have been sent. Report the call."""
        response: dict[str, Any] | None = None
        try:
            response = await self._send_with_retries(call, breaker, deadline, retry_request, first)
        except DeadlineExceeded as problem:
            if problem.sent:
                self._record_abandoned(call, breaker)
            call.abandoned = call.ambiguous
            raise with_retry_hints(Timeout(NO_ANSWER_IN_TIME), call) from problem
        except (asyncio.CancelledError, GeneratorExit):
            self._record_abandoned(call, breaker)
            raise
        except (Timeout, Unavailable, Throttled) as problem:
            raise with_retry_hints(problem, call) from problem.__cause__
        except (ConditionFailed, TransactionCancelled) as failed:
            failed.after_lost_response = call.ambiguous
            call.unreported_units = failed.units
            raise
        finally:
            call.seconds = self._clock() - began_at
            self._report(call, response, meter, traced)
        return response

    def now(self) -> datetime:
        """Return the store's time, by which stream records are dated."""
        return self.store_clock.now()

    def reset_breakers(self) -> None:
        """Close the circuit breakers. The caller must have evidence that the store responds again."""
        for breaker in self.breakers.values():
            breaker.reset()

    async def _send_with_retries(
        self,
        call: Call,
        breaker: CircuitBreaker,
        deadline: float,
        retry_request: RetryRequest | None,
        first: "asyncio.Future[HttpResponse] | None",
    ) -> dict[str, Any]:
        """Return the response of the first attempt, or of a retry while one is allowed."""
        delays: Iterator[float] | None = None
        corrections, fresh, cost = SIGNATURE_CORRECTIONS, False, SUCCESS_REFUND
        while True:
            try:
                attempt = first or self._transport.send(call.operation, call.prepared.body, deadline, fresh)
                first = None
                response = await attempt
                breaker.record_answer()
                content = self._parse_response(call, response)
            except SignatureRefused as refused:
                call.attempted_at = math.inf
                if not corrections or not await self._transport.correct_signature(refused, deadline):
                    raise
                corrections -= 1
            except RETRYABLE as problem:
                failure = as_retryable(problem)
                delays = delays or self._backoff.delays()
                fresh = await self._wait_before_retry(call, breaker, deadline, failure, delays, fresh=fresh)
                cost = failure.cost
            else:
                if breaker.budget.spent:
                    breaker.budget.refund(cost)
                return content
            call.attempts += 1
            if retry_request is not None and call.ambiguous:
                call.prepared, retry_request = PreparedRequest.of(retry_request()), None
            call.attempted_at = self._clock()

    async def _wait_before_retry(
        self,
        call: Call,
        breaker: CircuitBreaker,
        deadline: float,
        failure: RetryableFailure,
        delays: Iterator[float],
        *,
        fresh: bool,
    ) -> bool:
        """Wait for the next attempt. Return whether it must open a new connection.

        Raises the failure's error if attempts, budget or time are exhausted, or the client is closed.
        """
        call.ambiguous |= failure.ambiguous
        attempted_at, call.attempted_at = call.attempted_at, math.inf
        if failure.stale_connection and not fresh and call.operation.startswith(READ_PREFIXES):
            failure.cost = SUCCESS_REFUND  # the retry takes no tokens, so its success refunds the usual amount only
            return True
        delay = next(delays, None)
        if self._transport.closed:
            raise failure.error from failure
        if failure.counts_as_outage:
            breaker.record_failure(attempted_at, timed_out=failure.timed_out)
        if delay is None or (call.operation in UNRETRIED_THROTTLES and isinstance(failure.error, Throttled)):
            raise failure.error from failure
        if breaker.tripped:
            # A call that waits for the breaker sends nothing, and takes no tokens.
            if not await breaker.wait(deadline):
                raise breaker.error() from failure
            failure.cost = SUCCESS_REFUND
            return fresh
        failure.error.out_of_time = delay >= deadline - self._clock()
        if failure.error.out_of_time or not breaker.budget.take(failure.cost):
            raise failure.error from failure
        await asyncio.sleep(delay)
        return fresh

    def _record_abandoned(self, call: Call, breaker: CircuitBreaker) -> None:
        """Mark a call as abandoned. Record its attempt as a failure if it has lasted for `slow_seconds`."""
        call.ambiguous = call.abandoned = True
        if self._clock() - call.attempted_at >= self._slow_seconds:
            breaker.record_failure(call.attempted_at)

    async def _is_answered(self, operation: str, seconds: float) -> bool:
        """Return whether an endpoint responds to a cheap request. Any status is a response."""
        try:
            await self._transport.send(operation, b'{"Limit":1}', self._clock() + seconds, fresh=True)
        except (*RETRYABLE, SignatureRefused, DeadlineExceeded, DomainError):
            return False
        return True

    def _parse_response(self, call: Call, response: HttpResponse) -> dict[str, Any]:
        content = response.content
        if response.date != self._latest_date:  # the date has whole seconds
            self._latest_date = response.date
            self.store_clock.observe(response.date)
        if response.checksum is not None and response.checksum != b"%d" % zlib.crc32(content):
            raise RetryableFailure(Unavailable(DAMAGED_RESPONSE))
        if response.status == 200:
            try:
                parsed: dict[str, Any] = orjson.loads(content)
            except orjson.JSONDecodeError as problem:
                raise RetryableFailure(Unavailable(DAMAGED_RESPONSE)) from problem
            if self.disk.is_full and call.operation in ITEM_WRITES:
                self.disk.written()
            return parsed
        error = error_of_response(response.status, content)
        if isinstance(error, Unavailable):
            self.disk.refused(content, self._clock())
        if isinstance(error, SignatureRefused):
            error.date = response.date
        if self._recreates_tables and is_missing_table(call.operation, error):
            raise RetryableFailure(Unavailable(TABLE_MISSING), ambiguous=False, cost=0) from error
        raise error

    def _report(
        self, call: Call, response: Mapping[str, Any] | None, meter: CallMeter | None, traced: tuple[TracedRead, ...]
    ) -> None:
        """Pass a call that has ended to the meter and the listeners."""
        if response is None:
            call.failed = True
        else:
            call.units = consumed_units(response)
        units = call.units + call.unreported_units
        call.cost = units * WRITE_UNIT_COST if call.operation in ITEM_WRITES else units
        if traced:
            call.details = call_details(call.operation, call.request, response or {}, traced)
        if meter is not None:
            meter.open_calls -= 1
            meter.record(call)
        for listener in self._listeners:
            listener(call)
