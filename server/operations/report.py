"""The report of an operation, from which logs, metrics and traces are written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphql.language import OperationType

from datastore.dynamodb.calls import Call
from datastore.model.log_redaction import redact_emails
from datastore.session.metering import Meter
from server.admission.callers import Caller
from server.documents.document_cache import Document, PreparedOperation
from server.documents.persisted.manifest import sha256_of
from server.documents.request import GraphQLParams, Stage
from server.operations.outcome import Outcome
from server.operations.request import Request, Transport

# A subscription may run for days, and fail at every event.
MAX_ERROR_IDS = 20
MAX_REQUESTED_ID = 100


@dataclass(slots=True)
class Report:
    """The result of an operation for logs and metrics, observed once at its end; of a subscription over all events.

    A query or a mutation that its client abandoned has the code CANCELLED; a subscription that its client ended has
    none.
    """

    params: GraphQLParams
    caller: Caller
    transport: Transport
    document: Document | None = None
    operation: PreparedOperation | None = None
    estimate: float = 0.0
    stage: Stage = Stage.EXECUTION
    #: The codes of the errors that were sent, each once.
    codes: list[str] = field(default_factory=list)
    #: The number of calls to DynamoDB, over all events.
    calls: int = 0
    #: The calls of the latest event. Immutable defaults here and below: most operations have none of these.
    latest_calls: Sequence[Call] = ()
    #: Capacity units that DynamoDB reported; for an event that several subscribers share, this subscriber's part.
    units: float = 0.0
    #: The billed cost, in read units, as estimates are.
    cost: float = 0.0
    retries: int = 0
    patterns: frozenset[str] = frozenset()
    events: int = 0
    #: The bytes of the responses.
    sent_bytes: int = 0
    seconds: float = 0.0
    #: The latest ids of masked errors.
    error_ids: Sequence[str] = ()
    trace_id: str | None = None
    #: Whether a stored or shared response was sent instead of executing the operation.
    replayed: bool = False
    #: False once a call was abandoned: DynamoDB bills it, and no sum contains it.
    is_complete: bool = True
    #: The number of items that were read and withheld from the caller.
    withheld: int = 0
    _done: Meter | None = field(default=None, init=False, repr=False)
    _hash: str | None = field(default=None, init=False, repr=False)

    @property
    def explained_calls(self) -> Meter:
        """The calls to be explained, of a query or a mutation."""
        if self._done is None:
            self._done = Meter()
        return self._done

    @property
    def document_hash(self) -> str | None:
        """The SHA-256 of the text, also of a refused one; None without a text."""
        if self.document is not None:
            return self.document.hash
        if self._hash is None and self.params.query is not None:
            self._hash = sha256_of(self.params.query)
        return self._hash

    @property
    def requested_id(self) -> str | None:
        """The id that named a document without a known text: its beginning, with unprintable characters replaced."""
        asked_id = self.params.requested_id
        if asked_id is None or self.document_hash is not None:
            return None
        shown = redact_emails(asked_id)[:MAX_REQUESTED_ID]
        return "".join(letter if letter.isprintable() else "?" for letter in shown)

    @property
    def refused(self) -> bool:
        """Whether nothing was executed."""
        return self.stage is not Stage.EXECUTION

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of the operation, or of one event."""
        self.stage = outcome.stage
        if outcome.replayed is not None:
            self.replayed = True
        self.sent_bytes += len(outcome.body)
        if not outcome.errors:
            return
        for error in outcome.formatted_errors:
            self.add_code(str(error["extensions"]["code"]))
            if "errorId" in error["extensions"]:
                self.error_ids = [*self.error_ids, error["extensions"]["errorId"]][-MAX_ERROR_IDS:]

    def add_code(self, code: str) -> None:
        """Add an error code, once."""
        if code not in self.codes:
            self.codes.append(code)

    def measure(self, meter: Meter) -> float:
        """Add the calls since the previous measurement. Return their cost in read units."""
        if meter.withheld:
            self.withheld += meter.withheld
            meter.withheld = 0
        if not (meter.calls or meter.deferred or meter.open_calls or meter.detailed):
            self.latest_calls = ()
            return 0.0
        if not meter.detailed:
            knows_all = meter.open_calls == 0
            calls, deferred = meter.drain()
            return self._count(calls, deferred, 1, knows_all)
        knows_all = meter.is_complete
        taken = meter.take()
        # The events of a subscription are explained one by one: keeping them all would grow without a limit.
        if not self._is_subscription:
            self.explained_calls.merge(taken)
        return self.add_shared(taken, is_complete=knows_all)

    def add_shared(self, taken: Meter, among: int = 1, *, is_complete: bool) -> float:
        """Add calls that were made for `among` subscribers. Return this one's part of their cost in read units."""
        self.withheld += taken.withheld
        return self._count(taken.calls, taken.deferred, among, is_complete)

    def _count(self, calls: Sequence[Call], price: float, among: int, knows_all: bool) -> float:
        if not knows_all:
            self.is_complete = False
        self.latest_calls = calls
        self.calls += len(calls)
        for call in calls:
            if call.abandoned:
                self.is_complete = False
            self.units += call.units / among
            self.retries += call.attempts - 1
            price += call.cost
            if not self.patterns.issuperset(call.patterns):
                self.patterns = self.patterns.union(call.patterns)
        self.cost += price / among
        return price / among

    @property
    def _is_subscription(self) -> bool:
        return self.operation is not None and self.operation.kind is OperationType.SUBSCRIPTION


Observe = Callable[[Report], None]


class Tracing(Protocol):
    """Spans of operations and of their calls to DynamoDB."""

    def start(self, report: Report) -> None:
        """Start the span of an operation, and set `trace_id` if it is sampled."""

    def add_calls(self, report: Report) -> None:
        """Add a span for each call in `report.latest`."""

    def end(self, report: Report) -> None:
        """End the span."""


def new_report(request: Request) -> Report:
    """Return a new report of a request."""
    return Report(
        request.params,
        request.caller,
        request.transport,
        request.operation.document,
        request.operation,
        request.estimate,
    )
