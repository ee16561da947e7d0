"""Reports of operations: the source of logs, metrics and traces."""

from collections.abc import Callable, Sequence
from typing import Protocol

from graphql.language import OperationType
from msgspec import Struct

from datastore.dynamodb.calls import ITEM_WRITES, Call
from datastore.model.log_redaction import redact_emails
from datastore.session.metering import Meter
from server.admission.callers import Caller
from server.documents.document_cache import Document, PreparedOperation
from server.documents.persisted.manifest import sha256_of
from server.documents.request import GraphQLParams, Stage
from server.operations.outcome import Outcome
from server.operations.request import Transport

# A subscription may run for days and fail at every event.
MAX_ERROR_IDS = 20
MAX_REQUESTED_ID = 100
# The code of an operation that its client abandoned.
CANCELLED = "CANCELLED"


class Report(Struct, eq=False):
    """The measured result of an operation. The observers receive it once, when the operation ends.

    The report of a subscription covers all of its events. A query or a mutation that its client abandoned has the code
    CANCELLED. A subscription that its client ended has no code.
    """

    params: GraphQLParams
    caller: Caller
    transport: Transport
    document: Document | None = None
    operation: PreparedOperation | None = None
    estimate: float = 0.0
    stage: Stage = Stage.EXECUTION
    #: The codes of the errors that were sent, each once.
    codes: list[str] = []
    #: The number of calls to DynamoDB, over all events.
    calls: int = 0
    #: The calls of the latest event. This default and those below are immutable: most operations need no own list.
    latest_calls: Sequence[Call] = ()
    #: Whether these calls wrote, or may have written.
    latest_wrote: bool = False
    #: The capacity units that DynamoDB reported. An event that several subscribers share counts with this one's part.
    units: float = 0.0
    #: The billed cost in read units, the unit of estimates.
    cost: float = 0.0
    retries: int = 0
    patterns: frozenset[str] = frozenset()
    events: int = 0
    #: The bytes of the response, before it is explained.
    response_bytes: int = 0
    #: The bytes of all responses.
    sent_bytes: int = 0
    seconds: float = 0.0
    #: The latest ids of masked errors.
    error_ids: Sequence[str] = ()
    trace_id: str | None = None
    #: Whether a stored or shared response was sent instead of executing the operation.
    replayed: bool = False
    #: False once a call was abandoned: DynamoDB bills it, but its cost is unknown and not in the sums.
    is_complete: bool = True
    #: The number of items that were read and withheld from the caller.
    withheld: int = 0
    _explained_calls: Meter | None = None
    _hash: str | None = None

    @property
    def explained_calls(self) -> Meter:
        """The calls of a query or a mutation that the explanation reports."""
        if self._explained_calls is None:
            self._explained_calls = Meter()
        return self._explained_calls

    @property
    def document_hash(self) -> str | None:
        """The SHA-256 of the document's text, also if the document was refused; None if there is no text."""
        if self.document is not None:
            return self.document.hash
        if self._hash is None and self.params.query is not None:
            self._hash = sha256_of(self.params.query)
        return self._hash

    @property
    def requested_id(self) -> str | None:
        """The beginning of the id of an unknown document, with unprintable characters replaced; None otherwise."""
        requested_id = self.params.requested_id
        if requested_id is None or self.document_hash is not None:
            return None
        shown = redact_emails(requested_id)[:MAX_REQUESTED_ID]
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
            self.latest_calls, self.latest_wrote = (), False
            return 0.0
        if not meter.detailed:
            calls, deferred = meter.calls, meter.deferred
            meter.calls, meter.deferred, meter.spent = [], 0.0, 0.0
            return self._count(calls, deferred, 1, meter.open_calls == 0)
        is_complete = meter.is_complete
        taken = meter.take()
        # The events of a subscription are explained one by one: keeping the calls of all would need unlimited memory.
        if not self._is_subscription:
            self.explained_calls.merge(taken)
        return self.add_shared(taken, is_complete=is_complete)

    def add_shared(self, taken: Meter, subscribers: int = 1, *, is_complete: bool) -> float:
        """Add calls that `subscribers` share. Return this subscriber's part of their cost in read units."""
        self.withheld += taken.withheld
        return self._count(taken.calls, taken.deferred, subscribers, is_complete)

    def _count(self, calls: Sequence[Call], cost: float, subscribers: int, is_complete: bool) -> float:
        if not is_complete:
            self.is_complete = False
        self.latest_calls, self.latest_wrote = calls, False
        counted: tuple[str, ...] = ()
        for call in calls:
            if call.operation in ITEM_WRITES and call.may_have_written:
                self.latest_wrote = True
            self.calls += 1
            if call.abandoned:
                self.is_complete = False
            self.units += call.units / subscribers
            self.retries += call.attempts - 1
            cost += call.cost
            if call.patterns is not counted:  # calls that are made together share their patterns
                counted = call.patterns
                self.patterns = self.patterns.union(counted) if self.patterns else frozenset(counted)
        self.cost += cost / subscribers
        return cost / subscribers

    @property
    def _is_subscription(self) -> bool:
        return self.operation is not None and self.operation.kind is OperationType.SUBSCRIPTION


Observe = Callable[[Report], None]


class Tracing(Protocol):
    """Spans of operations and of their calls to DynamoDB."""

    def start(self, report: Report) -> None:
        """Start the span of an operation, and set `trace_id` if it is sampled."""

    def add_calls(self, report: Report) -> None:
        """Add a span for each call in `report.latest_calls`."""

    def end(self, report: Report) -> None:
        """End the span."""
