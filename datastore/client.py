"""The wire client: one signed HTTP request to DynamoDB or its Streams, with retries.

Nothing else talks to the data plane.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
"""

import asyncio
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
from datastore.signing import CredentialSource, Signer
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
        self._clock: Callable[[], float] = time.monotonic
        self.on_call: Callable[[Call], None] | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._limits)
        self._clock = asyncio.get_running_loop().time
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
        call = Call(operation, prepared, patterns, time.time())
        started = time.monotonic()
        deadline = self._clock() + timeout
        answer: dict[str, Any] | None = None
        if meter is not None:
            meter.open += 1
        try:
            try:
                answer = self._understood(call, await self._sent(call, deadline))
            except PASSING as problem:
                answer = await self._persist(call, deadline, _transient(problem))
        except TooLate as problem:
            call.unsure = call.abandoned = True
            raise _told(Timeout(LATE), call, unsure=True) from problem
        except (asyncio.CancelledError, GeneratorExit):
            call.unsure = call.abandoned = True
            raise
        except (Timeout, Unavailable, Throttled) as problem:
            raise _told(problem, call, unsure=call.unsure) from problem.__cause__
        except ConditionFailed as failed:
            failed.repeated = call.unsure
            call.unreported = failed.units
            raise
        except TransactionCancelled as cancelled:
            call.unreported = cancelled.units
            raise
        finally:
            call.seconds = time.monotonic() - started
            self._report(call, answer, meter, asks)
        return answer

    async def _persist(self, call: Call, deadline: float, problem: "_Transient") -> dict[str, Any]:
        """Try again until it is answered for good, after the first try has failed."""
        delays = self._backoff.delays()
        fresh = await self._ready(call, deadline, problem, delays, fresh=False)
        while True:
            call.attempts += 1
            try:
                return self._understood(call, await self._sent(call, deadline, fresh))
            except PASSING as another:
                fresh = await self._ready(call, deadline, _transient(another), delays, fresh=fresh)

    async def _ready(
        self, call: Call, deadline: float, problem: "_Transient", delays: Iterator[float], *, fresh: bool
    ) -> bool:
        """Wait for the next try; whether it is to be on a fresh connection.

        The problem is final when no try is left, no time for one, or the client is closed.
        """
        call.unsure |= problem.unsure
        if problem.stale and not fresh and call.operation.startswith(READS):
            return True
        delay = next(delays, None)
        if delay is None or delay >= deadline - self._clock() or (self._pool is not None and self._pool.shut):
            raise problem.final from problem
        await asyncio.sleep(delay)
        return fresh

    def _sent(self, call: Call, deadline: float, fresh: bool = False) -> Awaitable[Answer]:
        """One try. Whatever it waits for, the deadline holds: `TooLate` once it passes. Fails as `Pool.send` does."""
        credentials = self._credentials.known
        if credentials is None:
            return self._sent_once_known(call, deadline, fresh)
        operation, body = call.operation, call.sent.body
        origin = _origin(self._endpoint.streams() if operation in STREAM_OPERATIONS else self._endpoint.tables())
        head = self._signer.head(credentials, origin.authority, _target(operation), body)
        assert self._pool is not None, "The client is used outside its `async with`."
        return self._pool.send(origin, head, body, deadline, fresh=fresh)

    async def _sent_once_known(self, call: Call, deadline: float, fresh: bool) -> Answer:
        """The same where credentials must be waited for."""
        try:
            await self._credentials.current(deadline - self._clock())
        except TimeoutError as problem:
            raise TooLate from problem
        return await self._sent(call, deadline, fresh)

    def _understood(self, call: Call, answer: Answer) -> dict[str, Any]:
        content = answer.content
        if answer.checksum is not None and answer.checksum != b"%d" % zlib.crc32(content):
            raise _Transient(Unavailable(DAMAGED))
        if answer.status == 200:
            try:
                whole: dict[str, Any] = orjson.loads(content)
            except orjson.JSONDecodeError as problem:
                raise _Transient(Unavailable(DAMAGED)) from problem
            return whole
        refusal = _refusal(answer.status, content)
        if self._tables_come_back and _lacks_table(call.operation, refusal):
            raise _Transient(Unavailable(NO_TABLE), unsure=False) from refusal
        raise refusal

    def _report(self, call: Call, answer: Mapping[str, Any] | None, meter: Meter | None, asks: tuple[Ask, ...]) -> None:
        """Tell those who count that a call has ended."""
        if answer is None:
            call.failed = True
        else:
            call.units = _units(answer)
        if asks:
            call.details = details_of(call.operation, call.request, answer or {}, asks)
        if meter is not None:
            meter.open -= 1
            meter.note(call)
        if self.on_call is not None:
            self.on_call(call)


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


# What a try may come to that another one need not.
PASSING = (_Transient, NotConnected, Silent, Lost)


def _transient(problem: Exception) -> _Transient:
    """What became of a try, by how it failed."""
    match problem:
        case _Transient():
            return problem
        case NotConnected():
            transient = _Transient(Timeout(LATE) if problem.late else Unavailable(UNREACHABLE), unsure=False)
        case Lost():
            transient = _Transient(Unavailable(UNREACHABLE), stale=problem.stale)
        case _:
            transient = _Transient(Timeout(LATE))
    transient.__cause__ = problem
    return transient


@cache
def _target(operation: str) -> str:
    return f"{'DynamoDBStreams' if operation in STREAM_OPERATIONS else 'DynamoDB'}_20120810.{operation}"


@lru_cache(maxsize=16)
def _origin(url: str) -> Origin:
    return Origin.of(url)


def _told(problem: DomainError, call: Call, *, unsure: bool) -> DomainError:
    """A write that may have been applied is no safe one to send again: the caller is told so."""
    if unsure and call.operation.startswith(WRITES):
        problem.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return problem


def _prepared(payload: Mapping[str, Any]) -> Prepared:
    """Raises `RequestRefused` for what JSON does not hold, such as half a surrogate pair."""
    try:
        return Prepared.of(payload)
    except TypeError as problem:
        raise RequestRefused("SerializationException", str(problem)) from problem


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
