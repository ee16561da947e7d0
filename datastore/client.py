"""The wire client: one signed HTTP request to DynamoDB or its Streams, with retries.

Nothing else talks to the data plane.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import asyncio
import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Self, get_args

import orjson

from datastore.asking import Ask, details_of
from datastore.attributes import Item, decode_item, stored_bytes
from datastore.backoff import Backoff
from datastore.declarations import WRITES, Operation
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.metering import Call, Meter
from datastore.requests import Prepared
from datastore.signing import CredentialSource, Frozen, Signer
from datastore.wire import Answer, Limits, Lost, NotConnected, Origin, Pool, Silent, TooLate

ITEM_OPERATIONS = frozenset(get_args(Operation))
STREAM_OPERATIONS = {"DescribeStream", "GetShardIterator", "GetRecords", "ListStreams"}
THROTTLING = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "ReplicatedWriteConflictException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
# A cancelled transaction is tried again when this is all that stood in its way.
TRANSIENT_REASONS = {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
# Operations that change nothing, and may be repeated at once.
READS = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List")
DEFAULT_SECONDS = 10.0

LATE = "The store did not answer in time."
DAMAGED = "The store's answers arrive damaged."
NO_TABLE = "The store is not ready: it lacks a table."
UNREACHABLE = "The store cannot be reached at the moment; try again."


class RequestRefused(Exception):
    """DynamoDB refused a request for what it says: a fault of ours, never retried. `code` is DynamoDB's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class ConditionFailed(Exception):
    """A condition did not hold; `item` is the item as it stands, when it was asked for and exists.

    `repeated` means that the answer to an earlier try was lost, so that the try itself may have put the item there.
    `units` are the write units that it is billed.
    """

    def __init__(self, item: Item | None, units: int) -> None:
        super().__init__("The conditional request failed")
        self.item = item
        self.units = units
        self.repeated = False


class TransactionCancelled(Exception):
    """A transaction was cancelled; one reason and one item (or None) for each of its actions, in order.

    `units` are the write units that it is billed.
    """

    def __init__(self, reasons: list[str], items: list[Item | None], units: int) -> None:
        super().__init__(f"Transaction cancelled: {', '.join(reasons)}")
        self.reasons = reasons
        self.items = items
        self.units = units


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. The functions are asked at every call: an embedded engine may have moved."""

    tables: Callable[[], str]
    streams: Callable[[], str]
    region: str


class Client:
    """One per process. `on_call`, when set, hears of every call once it has ended, well or not.

    `tables_come_back` tells that a missing table is being made: an embedded engine that was restarted without its data
    is given its tables again in a moment.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: CredentialSource,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        limits: Limits = Limits(),  # noqa: B008 - frozen
        tables_come_back: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._signer = Signer(endpoint.region)
        self._backoff = backoff
        self._limits = limits
        self._tables_come_back = tables_come_back
        self._pool: Pool | None = None
        self.on_call: Callable[[Call], None] | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def call(
        self,
        operation: str,
        request: Mapping[str, Any] | Prepared,
        /,
        *,
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109 - a budget shared by all tries
        meter: Meter | None = None,
        patterns: tuple[str, ...] = (),
        asks: tuple[Ask, ...] = (),
    ) -> dict[str, Any]:
        """DynamoDB's answer as parsed JSON. `patterns` and `asks` are for the meter: what the call is made for.

        Tries again with full jitter on throttling, 5xx, lost connections and damaged bodies, within `timeout`
        seconds. Raises `ConditionFailed`, `TransactionCancelled`, `RequestRefused`, or what a client may see:
        `Throttled`, `Unavailable`, `Timeout`; `ReadTooMuch` where the meter allows no more.
        """
        if meter is not None:
            meter.check(operation)
        prepared = request if isinstance(request, Prepared) else _prepared(request)
        clock = asyncio.get_running_loop().time
        tries = _Tries(operation, prepared, clock, clock() + timeout)
        answer: dict[str, Any] | None = None
        if meter is not None:
            meter.open += 1
        try:
            answer = await self._persist(tries)
        except TooLate as problem:
            tries.unsure = tries.abandoned = True
            raise _told(Timeout(LATE), tries, unsure=True) from problem
        except (asyncio.CancelledError, GeneratorExit):
            tries.unsure = tries.abandoned = True
            raise
        except (Timeout, Unavailable, Throttled) as problem:
            raise _told(problem, tries, unsure=tries.unsure) from problem.__cause__
        except ConditionFailed as failed:
            failed.repeated = tries.unsure
            tries.unreported = failed.units
            raise
        except TransactionCancelled as cancelled:
            tries.unreported = cancelled.units
            raise
        finally:
            self._report(tries, answer, meter, patterns, asks)
        return answer

    async def _persist(self, tries: "_Tries") -> dict[str, Any]:
        """Try until it is answered for good. Whatever a try waits for, the deadline holds: `TooLate` once it passes."""
        delays: Iterator[float] | None = None
        fresh = False
        while True:
            tries.attempts += 1
            try:
                return self._understood(tries.operation, await self._attempt(tries, fresh))
            except _Transient as problem:
                tries.unsure |= problem.unsure
                if problem.stale and not fresh and tries.operation.startswith(READS):
                    fresh = True
                    continue
                delays = delays or self._backoff.delays()
                await self._wait(problem, delays, tries.left)

    async def _wait(self, problem: "_Transient", delays: Iterator[float], left: float) -> None:
        """Wait for the next try; the problem is final when none is left, no time for one, or the client is closed."""
        delay = next(delays, None)
        if delay is None or delay >= left or (self._pool is not None and self._pool.shut):
            raise problem.final from problem
        await asyncio.sleep(delay)

    async def _attempt(self, tries: "_Tries", fresh: bool) -> Answer:
        operation, body = tries.operation, tries.request.body
        credentials = self._credentials.known or await self._wait_for_credentials(tries.left)
        origin = _origin(self._endpoint.streams() if operation in STREAM_OPERATIONS else self._endpoint.tables())
        head = self._signer.head(credentials, origin.authority, _target(operation), body)
        assert self._pool is not None, "The client is used outside its `async with`."
        try:
            return await self._pool.send(origin, head, body, tries.deadline, fresh=fresh)
        except NotConnected as problem:
            final = Timeout(LATE) if problem.late else Unavailable(UNREACHABLE)
            raise _Transient(final, unsure=False) from problem
        except Silent as problem:
            raise _Transient(Timeout(LATE)) from problem
        except Lost as problem:
            raise _Transient(Unavailable(UNREACHABLE), stale=problem.stale) from problem

    async def _wait_for_credentials(self, seconds: float) -> Frozen:
        try:
            return await self._credentials.current(seconds)
        except TimeoutError as problem:
            raise TooLate from problem

    def _understood(self, operation: str, answer: Answer) -> dict[str, Any]:
        status, checksum, content = answer
        if checksum is not None and checksum != b"%d" % zlib.crc32(content):
            raise _Transient(Unavailable(DAMAGED))
        if status == 200:
            return _answer(content)
        refusal = _refusal(status, content)
        if self._tables_come_back and _lacks_table(operation, refusal):
            raise _Transient(Unavailable(NO_TABLE), unsure=False) from refusal
        raise refusal

    def _report(
        self,
        tries: "_Tries",
        answer: Mapping[str, Any] | None,
        meter: Meter | None,
        patterns: tuple[str, ...],
        asks: tuple[Ask, ...],
    ) -> None:
        if meter is None and self.on_call is None:
            return
        seconds = time.monotonic() - tries.started
        call = Call(
            tries.operation,
            tries.request.tables,
            tries.request.index,
            _units(answer) if answer is not None else 0.0,
            tries.attempts,
            seconds,
            tries.request,
            time.time() - seconds,
            tries.unsure,
            patterns,
            answer is None,
            details_of(tries.operation, tries.request.payload, answer or {}, asks) if asks else None,
            tries.unreported,
            tries.abandoned,
        )
        if meter is not None:
            meter.open -= 1
            meter.note(call)
        if self.on_call is not None:
            self.on_call(call)


class _Tries:
    """One call on its way; `deadline` is in the loop's time.

    `unsure` is set once a try may have been applied although its answer was lost. `unreported` are write units that it
    is billed although it came to nothing. `abandoned` is set when no answer is waited for any more.
    """

    __slots__ = (
        *("_clock", "abandoned", "attempts", "deadline", "operation"),
        *("request", "started", "unreported", "unsure"),
    )

    def __init__(self, operation: str, request: Prepared, clock: Callable[[], float], deadline: float) -> None:
        self.operation = operation
        self.request = request
        self.started = time.monotonic()
        self.deadline = deadline
        self.attempts = 0
        self.unsure = False
        self.unreported = 0.0
        self.abandoned = False
        self._clock = clock

    @property
    def left(self) -> float:
        return self.deadline - self._clock()


class _Transient(Exception):
    """Worth another try; `final` is what the caller is told when there is none left.

    `unsure` tells that DynamoDB may have done what was asked all the same, `stale` that the connection had been kept
    for too long: what only reads need not wait before it tries again.
    """

    def __init__(self, final: DomainError, *, unsure: bool = True, stale: bool = False) -> None:
        super().__init__(str(final))
        self.final = final
        self.unsure = unsure
        self.stale = stale


@cache
def _target(operation: str) -> str:
    return f"{'DynamoDBStreams' if operation in STREAM_OPERATIONS else 'DynamoDB'}_20120810.{operation}"


@lru_cache(maxsize=16)
def _origin(url: str) -> Origin:
    return Origin.of(url)


def _told(problem: DomainError, tries: _Tries, *, unsure: bool) -> DomainError:
    """A write that may have been applied is no safe one to send again: the caller is told so."""
    if unsure and tries.operation.startswith(WRITES):
        problem.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return problem


def _prepared(payload: Mapping[str, Any]) -> Prepared:
    """Raises `RequestRefused` for what JSON does not hold, such as half a surrogate pair."""
    try:
        return Prepared.of(payload)
    except TypeError as problem:
        raise RequestRefused("SerializationException", str(problem)) from problem


def _answer(content: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = orjson.loads(content)
    except orjson.JSONDecodeError as problem:
        raise _Transient(Unavailable(DAMAGED)) from problem
    return answer


def _refusal(status: int, content: bytes) -> Exception:
    """What an answer other than 200 means."""
    try:
        problem = orjson.loads(content)
        code = str(problem.get("__type", "")).rpartition("#")[2]
    except (orjson.JSONDecodeError, AttributeError):
        problem, code = {}, ""
    if code in THROTTLING or status == 429:
        return _Transient(Throttled("The store is busy; try again in a moment."), unsure=False)
    if status >= 500:
        return _Transient(Unavailable("The store fails at the moment; try again."))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(_item(problem), _billed(problem))
    if code == "TransactionCanceledException":
        return _cancelled(problem.get("CancellationReasons") or [])
    return RequestRefused(code or str(status), str(problem.get("message") or problem.get("Message") or ""))


def _lacks_table(operation: str, refusal: Exception) -> bool:
    """Whether a table that is read or written is not there; those who ask for tables and streams are told as it is."""
    lacking = isinstance(refusal, RequestRefused) and refusal.code == "ResourceNotFoundException"
    return lacking and operation in ITEM_OPERATIONS


def _cancelled(reasons: list[dict[str, Any]]) -> Exception:
    codes = [str(reason.get("Code", "None")) for reason in reasons]
    if codes and set(codes) <= TRANSIENT_REASONS:
        return _Transient(Throttled("Others are changing the same items; try again in a moment."), unsure=False)
    return TransactionCancelled(codes, [_item(reason) for reason in reasons], sum(map(_billed, reasons)))


def _billed(problem: Mapping[str, Any]) -> int:
    """Write units for a condition that did not hold: the size of the item that is there, at least one.

    DynamoDB reports none. Of the other items of a cancelled transaction nothing is told: they count for one each.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    return max(1, math.ceil(stored_bytes(problem.get("Item") or {}) / 1024))


def _item(problem: Mapping[str, Any]) -> Item | None:
    item = problem.get("Item")
    return decode_item(item) if item else None


def _units(answer: Mapping[str, Any]) -> float:
    consumed = answer.get("ConsumedCapacity") or ()
    if isinstance(consumed, dict):
        return float(consumed.get("CapacityUnits", 0.0))
    return float(sum([entry.get("CapacityUnits", 0.0) for entry in consumed]))
