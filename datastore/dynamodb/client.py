"""The client of DynamoDB and DynamoDB Streams: each call is a signed HTTP request with retries.

No other module makes calls of the data plane.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self

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
)
from datastore.dynamodb.retry.first_attempts import CallTerms, StartedCall, gathered
from datastore.dynamodb.retry.responses import ResponseReader
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.dynamodb.transport import STREAM_OPERATIONS, Endpoint, SignedTransport
from datastore.errors import DomainError, Throttled, Timeout, Unavailable

__all__ = ["Client", "ConditionFailed", "Endpoint", "RequestRefused", "TransactionCancelled"]

DEFAULT_SECONDS = 10.0
# The number of retries of a call after a refused signature: the clock, the credentials, or both may be wrong.
SIGNATURE_CORRECTIONS = 2

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
        self._responses = ResponseReader(recreates_tables=recreates_tables)
        self.store_clock, self.disk = self._responses.store_clock, self._responses.disk
        self._backoff = backoff
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
        terms = self._terms(operation, timeout, meter, traced)
        prepared = request if isinstance(request, PreparedRequest) else PreparedRequest.of(request)
        if terms.breaker.tripped:
            if not await terms.breaker.wait(terms.deadline):
                raise terms.breaker.error()
            terms.now = self._clock()
        call = Call(operation, prepared, patterns, terms.began_at, attempted_at=terms.now)
        if meter is not None:
            meter.open_calls += 1
        return await self.proceed(terms, call, retry_request=retry_request)

    def start(
        self,
        operation: str,
        prepared: PreparedRequest,
        done: Callable[[Any], None],
        /,
        *,
        timeout: float = DEFAULT_SECONDS,
        meter: CallMeter,
        patterns: tuple[str, ...] = (),
        traced: tuple[TracedRead, ...] = (),
    ) -> StartedCall:
        """Make a call without waiting for it. `done` receives what `call` returns, or the exception that it raises.

        The request is sent on an idle connection. If there is none, `call` sends it in a task. Raises `ReadTooMuch`.
        """
        return self._start(self._terms(operation, timeout, meter, traced), operation, prepared, patterns, done)

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
    ) -> Sequence[dict[str, Any] | BaseException]:
        """Make several calls at once by `start`. Return for each what `call` returns, or the error that it raises.

        Raises `ReadTooMuch`.
        """
        terms = self._terms(operation, timeout, meter, traced)
        return await gathered([partial(self._start, terms, operation, request, patterns) for request in requests])

    def _terms(
        self, operation: str, timeout: float, meter: CallMeter | None, traced: tuple[TracedRead, ...]
    ) -> CallTerms:
        if meter is not None:
            meter.check_limit(operation)
        breaker = self._stream_breaker if operation in STREAM_OPERATIONS else self._table_breaker
        now = self._clock()
        return CallTerms(breaker, time.time(), now, now + timeout, meter, traced)

    def _start(
        self,
        terms: CallTerms,
        operation: str,
        prepared: PreparedRequest,
        patterns: tuple[str, ...],
        done: Callable[[Any], None],
    ) -> StartedCall:
        request = None if terms.breaker.tripped else self._transport.start(operation, prepared.body, terms.deadline)
        call = Call(operation, prepared, patterns, terms.began_at, attempted_at=terms.now)
        started, meter = StartedCall(self, terms, call, done, request), terms.meter
        if request is None:
            timeout = terms.deadline - terms.now
            started.run(
                self.call(operation, prepared, timeout=timeout, meter=meter, patterns=patterns, traced=terms.traced)
            )
        elif meter is not None:
            meter.open_calls += 1
        return started

    def finish(self, terms: CallTerms, call: Call, response: HttpResponse) -> dict[str, Any]:
        """Return the content of a response to a first attempt, and report the call."""
        content = self._responses.content(call, response, self._clock)
        breaker = terms.breaker
        breaker.record_answer()
        if breaker.budget.spent:
            breaker.budget.refund(SUCCESS_REFUND)
        self._report(terms, call, content)
        return content

    def abandon(self, terms: CallTerms, call: Call) -> None:
        """Record a call whose caller stopped waiting during the first attempt."""
        self._record_abandoned(call, terms.breaker)
        self._report(terms, call, None)

    async def proceed(
        self,
        terms: CallTerms,
        call: Call,
        first: "asyncio.Future[HttpResponse] | None" = None,
        *,
        retry_request: RetryRequest | None = None,
    ) -> dict[str, Any]:
        """Return the response of a call, whose `first` attempt may have been sent. Report the call."""
        response: dict[str, Any] | None = None
        try:
            response = await self._send_with_retries(call, terms.breaker, terms.deadline, retry_request, first)
        except DeadlineExceeded as problem:
            if problem.sent:
                self._record_abandoned(call, terms.breaker)
            call.abandoned = call.ambiguous
            raise with_retry_hints(Timeout(NO_ANSWER_IN_TIME), call) from problem
        except (asyncio.CancelledError, GeneratorExit):
            self._record_abandoned(call, terms.breaker)
            raise
        except (Timeout, Unavailable, Throttled) as problem:
            raise with_retry_hints(problem, call) from problem.__cause__
        except (ConditionFailed, TransactionCancelled) as failed:
            failed.after_lost_response = call.ambiguous
            call.unreported_units = failed.units
            raise
        finally:
            self._report(terms, call, response)
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
                content = self._responses.content(call, response, self._clock)
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

    def _report(self, terms: CallTerms, call: Call, response: Mapping[str, Any] | None) -> None:
        """Pass a call that has ended to the meter and the listeners."""
        call.seconds = self._clock() - terms.now
        if response is None:
            call.failed = True
        else:
            call.units = consumed_units(response)
        units = call.units + call.unreported_units
        call.cost = units * WRITE_UNIT_COST if call.operation in ITEM_WRITES else units
        meter = terms.meter
        if terms.traced:
            call.details = call_details(call.operation, call.request, response or {}, terms.traced)
        if meter is not None:
            meter.open_calls -= 1
            meter.record(call)
        for listener in self._listeners:
            listener(call)
