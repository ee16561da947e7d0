"""An operation on its way to its answer, and what those who help it on its way are to do.

`execution` leads it; who keeps budgets, known documents, answers under keys, logs and traces is told of it here.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from graphql.language import OperationType

from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.calls import Call
from datastore.errors import Throttled
from datastore.model.identity import Identity
from datastore.model.ids import IdSource
from datastore.model.log_redaction import without_emails
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness
from server.documents.document_cache import Document, KnownText, PreparedOperation
from server.documents.persisted.manifest import sha256_of
from server.operations.outcome import Allowance, Outcome, Stage
from server.operations.request import Caller, Operation, Transport

# A subscription may go on for ever, and fail at every event.
MOST_ERROR_IDS = 20
# An operation that reads nothing is work, too: in read units, at least, for each so many characters of a text that is
# not trusted, values of its variables, and values of introspection.
LEAST_UNITS = 0.25
# A value of an answer takes some 2 µs, and a unit pays for about a millisecond.
VALUES_PER_UNIT = 500
# What DynamoDB reads for a unit that is not consistent, an answer holds for a unit.
ANSWER_BYTES_PER_UNIT = 8_192
FREE_EVENT_BYTES = 4_096
CHARACTERS_PER_LEAST, VALUES_PER_LEAST, INTROSPECTED_PER_LEAST = 1_024, 100, 250
BYTES_PER_LEAST = 16_384  # of JSON that was decoded, whatever it holds
MOST_CHARACTERS = 32_768
LONGEST_ASKED_ID = 100


class OperationContext(Protocol):
    """What resolvers get as `info.context`; a fresh one is made for every operation."""

    subscriber_count: Callable[[], int]
    progress: SubscriptionProgress | None

    @property
    def meter(self) -> Meter:
        """What was done to the store."""

    @property
    def used_identity(self) -> bool:
        """Whether anything has depended on the identity it was opened with."""

    def set_freshness(self, freshness: ReadFreshness) -> None:
        """Say which reads of other operations may serve this one: called before it reads."""

    def use_id_source(self, source: IdSource) -> None:
        """Say what ids and keys are made from, called before anything is written; else they are new ones."""

    def advance_watermark(self) -> None:
        """Show nothing older from now on: called when a subscription has read how things stand."""

    def reset(self) -> None:
        """Forget what was read: called when an event of a subscription has come, before it is resolved."""

    def close(self) -> None:
        """Give up what is still to be read: nobody waits for it any more."""


class DocumentLookup(Protocol):
    """Documents that are known by an id."""

    def plain(self, asked: Operation) -> KnownText | None:
        """The text of an operation that needs no registry: neither `text_of` nor `accepted` would do a thing for it."""

    async def text_of(self, asked: Operation, caller: Caller) -> KnownText:
        """The text that is to be executed. Raises `DomainError` when there is none, or it may not be."""

    async def accepted(self, asked: Operation, document: Document) -> None:
        """Told once that text was found to be a valid document."""


class Budgets(Protocol):
    """What callers may spend, in read units."""

    @property
    def at_once(self) -> bool:
        """Whether there is nothing to wait for: then `charge_now` and `settle_now` do what `charge` and `settle` do."""

    def check(self, caller: Caller) -> None:
        """Raises `OverBudget` for a caller who is known to owe: nothing need be made ready for him."""

    def charge_now(self, caller: Caller, units: float) -> Allowance | None:
        """As `charge`."""

    def settle_now(self, caller: Caller, units: float) -> Allowance | None:
        """As `settle`."""

    async def charge(self, caller: Caller, units: float) -> Allowance | None:
        """Take what an operation is estimated to cost, and tell what is left. Raises `OverBudget`."""

    async def settle(self, caller: Caller, units: float) -> Allowance | None:
        """Take what it cost beyond that, or give back (below 0) what it did not cost; what is left may be a debt."""


class OverBudget(Throttled):
    """A caller has spent what he may for now; `retryAfter` are the seconds after which it suffices."""

    def __init__(self, message: str, allowance: Allowance, **details: Any) -> None:
        super().__init__(message, **details)
        self.allowance = allowance


class IdempotentExecution(Protocol):
    """Answers of mutations that are kept under their Idempotency-Key."""

    async def answered(
        self, request: "Request", run: Callable[[IdSource], Awaitable[Outcome]], meter: Meter
    ) -> Outcome:
        """What `run` answers, or what it answered to the first request with this caller and key.

        `run` is given what its ids are to be made from, and raises `DomainError` when nothing was executed. What
        keeping its answer does to the store is added to the meter.
        """

    async def lasting(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """What `work` answers; it goes on to its end when nobody waits for it any more."""


OpenContext = Callable[[Identity | None], OperationContext]
Identify = Callable[[str | None], Awaitable[Identity | None]]


def least_units(text: str, values: int = 0, introspected: int = 0, size: int = 0) -> float:
    """What an operation costs whatever it reads, in read units, by what is made ready for it."""
    characters = len(text)
    parts = (characters if characters < MOST_CHARACTERS else MOST_CHARACTERS) // CHARACTERS_PER_LEAST
    return LEAST_UNITS * (
        1 + parts + values // VALUES_PER_LEAST + introspected // INTROSPECTED_PER_LEAST + size // BYTES_PER_LEAST
    )


def answer_units(outcome: Outcome) -> float:
    """What an answer costs by its size alone, in read units."""
    return len(outcome.body) / ANSWER_BYTES_PER_UNIT


@dataclass(slots=True)  # made for every operation: frozen, each field would cost a call
class Request:
    """An operation that is ready to be executed: prepared, allowed by its estimate, and not yet paid for.

    `least` are the read units that it costs whatever it reads, and `values` those that its answer may hold.
    """

    asked: Operation
    caller: Caller
    transport: Transport
    operation: PreparedOperation
    estimate: float
    least: float = LEAST_UNITS
    values: float = 0.0

    @property
    def charged(self) -> float:
        """The read units that are charged in advance."""
        estimate, least, values = self.estimate, self.least, self.values / VALUES_PER_UNIT
        most = estimate if estimate > least else least
        return most if most > values else values

    @property
    def kind(self) -> OperationType:
        return self.operation.kind


def event_units(request: Request, outcome: Outcome) -> float:
    """What an event costs whatever it reads, in read units: its execution, or what its size has beyond 4 KB."""
    size = len(outcome.body)
    by_size = 0.0 if size <= FREE_EVENT_BYTES else (size - FREE_EVENT_BYTES) / ANSWER_BYTES_PER_UNIT
    return max(request.least, request.values / VALUES_PER_UNIT, by_size)


@dataclass(slots=True)
class Report:
    """What became of an operation, for logs and metrics: told once when it is over, also of a subscription.

    `units` are what DynamoDB reported, `price` what it bills, in read units as estimates are, and `calls` how many
    calls there were, over all events; `latest` are those of the last one. Of an event that several subscribers are told
    each has all calls, and a part of the units. `sent` counts bytes. `codes` are those of the
    errors that were told, each once, and `error_ids` the last ids of those that were masked; a query or a mutation that
    nobody waited for to its end has the code CANCELLED, and a subscription that its client ended has none. `done` is
    everything that is to be explained of a query or a mutation. `replayed` is one that was answered as another was.
    `knows_all` is False once a call was not waited for: what it is billed is in no sum. `withheld` is its meter's.
    """

    asked: Operation
    caller: Caller
    transport: Transport
    document: Document | None = None
    operation: PreparedOperation | None = None
    estimate: float = 0.0
    stage: Stage = Stage.EXECUTION
    # What most operations have none of begins as nothing: a report is made for every one of them.
    codes: list[str] = field(default_factory=list)
    calls: int = 0
    latest: Sequence[Call] = ()
    units: float = 0.0
    price: float = 0.0
    retries: int = 0
    patterns: frozenset[str] = frozenset()
    events: int = 0
    sent: int = 0
    seconds: float = 0.0
    error_ids: Sequence[str] = ()
    trace_id: str | None = None
    replayed: bool = False
    knows_all: bool = True
    withheld: int = 0
    _done: Meter | None = field(default=None, init=False, repr=False)
    _hash: str | None = field(default=None, init=False, repr=False)

    @property
    def done(self) -> Meter:
        if self._done is None:
            self._done = Meter()
        return self._done

    @property
    def document_hash(self) -> str | None:
        """SHA-256 of the text, also of one that was refused; None when there was none at hand."""
        if self.document is not None:
            return self.document.hash
        if self._hash is None and self.asked.query is not None:
            self._hash = sha256_of(self.asked.query)
        return self._hash

    @property
    def asked_id(self) -> str | None:
        """By what a document was asked for that is not at hand: its beginning, as far as it can be printed."""
        asked_id = self.asked.asked_id
        if asked_id is None or self.document_hash is not None:
            return None
        shown = without_emails(asked_id)[:LONGEST_ASKED_ID]
        return "".join(letter if letter.isprintable() else "?" for letter in shown)

    @property
    def refused(self) -> bool:
        """Whether nothing of it was executed."""
        return self.stage is not Stage.EXECUTION

    def add(self, outcome: Outcome) -> None:
        self.stage = outcome.stage
        if outcome.replayed is not None:
            self.replayed = True
        self.sent += len(outcome.body)
        if not outcome.errors:
            return
        for error in outcome.described:
            self.note(str(error["extensions"]["code"]))
            if "errorId" in error["extensions"]:
                self.error_ids = [*self.error_ids, error["extensions"]["errorId"]][-MOST_ERROR_IDS:]

    def note(self, code: str) -> None:
        """It had an error with this code."""
        if code not in self.codes:
            self.codes.append(code)

    def measure(self, meter: Meter) -> float:
        """Add what was done since the last time, and tell what it cost in read units."""
        if meter.withheld:
            self.withheld += meter.withheld
            meter.withheld = 0
        if not (meter.calls or meter.deferred or meter.open_calls or meter.detailed):
            self.latest = ()
            return 0.0
        if not meter.detailed:
            knows_all = meter.open_calls == 0
            calls, behind = meter.drain()
            return self._count(calls, behind, 1, knows_all)
        knows_all = meter.is_complete
        taken = meter.take()
        # Events of a subscription are explained each by itself, and may go on for ever.
        if not self._is_subscription:
            self.done.merge(taken)
        return self.count(taken, knows_all=knows_all)

    def count(self, taken: Meter, among: int = 1, *, knows_all: bool) -> float:
        """Add what was done for so many, and tell this one's part of what it cost."""
        self.withheld += taken.withheld
        return self._count(taken.calls, taken.deferred, among, knows_all)

    def _count(self, calls: Sequence[Call], price: float, among: int, knows_all: bool) -> float:
        if not knows_all:
            self.knows_all = False
        self.latest = calls
        self.calls += len(calls)
        for call in calls:
            if call.abandoned:
                self.knows_all = False
            self.units += call.units / among
            self.retries += call.attempts - 1
            price += call.cost
            if not self.patterns.issuperset(call.patterns):
                self.patterns = self.patterns.union(call.patterns)
        self.price += price / among
        return price / among

    @property
    def _is_subscription(self) -> bool:
        return self.operation is not None and self.operation.kind is OperationType.SUBSCRIPTION


Observe = Callable[[Report], None]


class Tracing(Protocol):
    """Spans of operations and of the calls they make."""

    def began(self, report: Report) -> None:
        """An operation begins: from now on `trace_id` says under which trace it is found, if it is sampled."""

    def measured(self, report: Report) -> None:
        """`report.latest` are calls that were made for it."""

    def ended(self, report: Report) -> None:
        """It is over."""


def report_on(request: Request) -> Report:
    """The beginning of what will be told of a request."""
    return Report(
        request.asked,
        request.caller,
        request.transport,
        request.operation.document,
        request.operation,
        request.estimate,
    )
