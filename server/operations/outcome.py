"""Outcomes of operations: the response that every transport sends, with errors in the form that clients may see."""

import logging
import traceback
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Any

import orjson
from graphql import ExecutionResult, FieldNode, GraphQLError
from msgspec import Struct, structs

from datastore.errors import BadUserInput, DomainError, Internal, Resync, Throttled, Timeout, Unavailable
from datastore.model.log_redaction import redact_emails
from datastore.queues import OverflowPolicy
from server.admission.budgets import Allowance
from server.documents.request import Stage

MAX_ERRORS = 20
# The largest number of characters in the strings of a response, which is encoded as a whole with its keys and numbers.
MAX_RESPONSE_CHARACTERS = 4_000_000
# The characters of an error message. graphql-core's messages quote the invalid value, which may be very long.
MAX_MESSAGE = 1000
STORE_CODES = frozenset((Throttled.code, Timeout.code, Unavailable.code))
MASKED = "Something went wrong on our side."

_log = logging.getLogger(__name__)


class Outcome(Struct, eq=False):
    """The result of an operation, or of one event of a subscription."""

    data: dict[str, Any] | None = None
    errors: Sequence[GraphQLError] = ()
    #: The stage in which the operation ended.
    stage: Stage = Stage.EXECUTION
    extensions: dict[str, Any] | None = None
    allowance: Allowance | None = None
    #: The body of a stored response, which is sent again byte for byte.
    replayed: bytes | None = None
    #: Whether the operation changed something, or may have.
    wrote: bool = False
    #: The number of errors beyond `errors`.
    omitted: int = 0
    #: The resume token of an event.
    event_id: str | None = None
    #: The sequence number of the event's change in this process.
    number: int = 0
    #: The number of events that conflation merged into this one.
    dropped: int = 0
    #: Whether the subscription continues after the errors.
    is_recoverable: bool = False
    #: Whether this is no event, and only reports the resume position.
    is_position_only: bool = False
    _formatted: list[dict[str, Any]] | None = None
    _body: bytes | None = None

    @property
    def is_failure(self) -> bool:
        """Whether all errors are about the operation as a whole, because it never ran or was aborted."""
        if self.is_recoverable:
            return False
        return bool(self.errors) and self.data is None and all(error.path is None for error in self.errors)

    @property
    def code(self) -> str | None:
        """The code of the first error."""
        return str(self.formatted_errors[0]["extensions"]["code"]) if self.errors else None

    @property
    def formatted_errors(self) -> list[dict[str, Any]]:
        """The errors in the form that clients may see. The first access logs masked errors and releases tracebacks."""
        if self._formatted is None:
            self._formatted = format_errors(self.errors)
            for error in self.errors[:MAX_ERRORS]:
                release(error)
        return self._formatted

    def mark_ambiguous(self) -> None:
        """Record that the operation may have written: a failure of the store does not prove that nothing changed.

        Failures of the store are then no longer retryable. An error with another code that a resolver raised as
        retryable, such as that of a merge that waits for an index, stays retryable.
        """
        self.wrote = True
        mark_ambiguous(self.formatted_errors)

    def add_extension(self, name: str, value: Any) -> None:
        """Add an entry to the extensions. The response is encoded again if it was encoded before."""
        self.extensions = {**(self.extensions or {}), name: value}
        self._body = None

    def set_event_id(self, event_id: str | None, number: int) -> None:
        """Set the id and the sequence number of an event."""
        self.event_id, self.number = event_id, number
        if event_id is not None:
            self.extensions = {**(self.extensions or {}), "eventId": event_id}
            self._body = None

    def set_dropped(self, dropped: int) -> None:
        """Set the number of events that this one replaced, and report it to the client."""
        if dropped:
            self.dropped = dropped
            self.add_extension(OverflowPolicy.LATEST.count_field, dropped)

    def with_dropped(self, dropped: int) -> "Outcome":
        """Return the outcome for a subscriber with another number of dropped events."""
        if dropped == self.dropped:
            return self
        copy = self._copy()
        copy.set_dropped(dropped)
        return copy

    def body_with_dropped(self, dropped: int, name: str) -> bytes:
        """Return the encoded response with the number of dropped events in its extensions, under `name`.

        The shared encoding is extended instead of being encoded again.
        """
        if dropped == self.dropped:
            return self.body
        if name in (self.extensions or {}):
            return self.with_dropped(dropped).body
        # The extensions are the last member: see `body`.
        if self._has_extensions:
            return b'%b,"%b":%d}}' % (self.body[:-2], name.encode(), dropped)
        return b'%b,"extensions":{"%b":%d}}' % (self.body[:-1], name.encode(), dropped)

    def with_dropped_under(self, dropped: int, name: str) -> "Outcome":
        """Return a copy with the body of `body_with_dropped`."""
        if dropped == self.dropped:
            return self
        copy = self._copy()
        copy._body = self.body_with_dropped(dropped, name)
        return copy

    def as_resync(self) -> "Outcome":
        """Return a copy that reports RESYNC: the missed events are no longer available."""
        copy = self._copy()
        copy.add_extension("resync", True)
        return copy

    def _copy(self) -> "Outcome":
        copy = structs.replace(self)
        copy._formatted, copy._body = self.formatted_errors if self.errors else None, None
        return copy

    @property
    def _has_extensions(self) -> bool:
        return bool(self.extensions or self.omitted or len(self.errors) > MAX_ERRORS)

    @property
    def body(self) -> bytes:
        """The encoded response: without `data` if nothing was executed, with at most `MAX_ERRORS` errors."""
        if self._body is not None:
            return self._body
        if self.replayed is not None:
            self._body = self.replayed
        elif self.errors or self.omitted:
            self._body = encode(self._response())
        elif self.extensions:
            self._body = encode({"data": self.data, "extensions": self.extensions})
        else:
            self._body = encode({"data": self.data})
        return self._body

    def _response(self) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if self.errors:
            body["errors"] = self.formatted_errors
        if not (self.errors and self.is_failure):
            body["data"] = self.data
        extensions = dict(self.extensions or {})
        omitted = self.omitted + len(self.errors[MAX_ERRORS:])
        if omitted:
            extensions["omittedErrors"] = omitted
        if extensions:
            body["extensions"] = extensions
        return body


class ResponseTooLarge(BadUserInput):
    """A response exceeds the limit of its size, which `extensions` hold as `limit`."""

    def __init__(self) -> None:
        super().__init__(
            f"The response has more than {MAX_RESPONSE_CHARACTERS:,} characters: "
            "select smaller pages, fewer fields, or fewer aliases of the same field.",
            measure="answerCharacters",
            limit=MAX_RESPONSE_CHARACTERS,
        )


def is_too_large(data: dict[str, Any] | None) -> bool:
    """Return whether the strings of a response have too many characters. A repeated string counts each time."""
    if data is None:
        return False
    characters = 0
    containers: list[Any] = [data]
    for container in containers:  # the list grows during the loop
        for value in container.values() if type(container) is dict else container:
            kind = type(value)
            if kind is str:
                characters += len(value)
            elif kind is dict or kind is list:
                containers.append(value)
        if characters > MAX_RESPONSE_CHARACTERS:
            return True
    return False


def outcome_of(result: ExecutionResult) -> Outcome:
    """Return the outcome of graphql-core's result with up to `MAX_ERRORS` errors. Release the other errors."""
    errors = result.errors
    if not errors:
        return Outcome(result.data)
    first = errors[:MAX_ERRORS]
    for error in errors[MAX_ERRORS:]:
        release(error)
    outcome = Outcome(result.data, first, omitted=len(errors) - len(first))
    errors.clear()
    return outcome


def release(error: BaseException) -> None:
    """Release an error's frames: they reference the error, in a cycle that only the garbage collector would free."""
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or (current.__traceback__ is None and current.__context__ is None and current is not error):
            continue
        # The cause stays: it decides how the error is formatted.
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        current.__traceback__ = current.__context__ = None


def failure(error: Exception, stage: Stage = Stage.EXECUTION) -> Outcome:
    """Return the outcome of an operation that failed as a whole."""
    located = error if isinstance(error, GraphQLError) else GraphQLError(str(error), original_error=error)
    return Outcome(errors=[located], stage=stage)


def position_only(event_id: str) -> Outcome:
    """Return an outcome that reports the resume position of a subscription without an event."""
    return Outcome(event_id=event_id, is_position_only=True)


def resync(event_id: str | None, number: int) -> Outcome:
    """Return the RESYNC outcome of a subscription that cannot be resumed, if its field has no current state to send."""
    error = Resync("The events since that event id are no longer available: read the current state. New events follow.")
    outcome = failure(error)
    outcome.is_recoverable = True
    outcome.set_event_id(event_id, number)
    return outcome


def replayed(body: bytes) -> Outcome:
    """Return the outcome of a stored response, whose bytes are sent unchanged."""
    response = orjson.loads(body)
    errors = response.get("errors", ())
    located = [
        GraphQLError(error["message"], path=error.get("path"), extensions=error["extensions"]) for error in errors
    ]
    outcome = Outcome(response.get("data"), located, replayed=body)
    outcome._formatted = list(errors)
    return outcome


def domain_error(error: GraphQLError) -> DomainError | None:
    """Return the `DomainError` in an error, also if it is wrapped or in a group that contains only domain errors."""
    leaves = list(_leaves(_cause(error)))
    domain_errors = [leaf for leaf in leaves if isinstance(leaf, DomainError)]
    return domain_errors[0] if domain_errors and len(domain_errors) == len(leaves) else None


def _cause(error: GraphQLError) -> BaseException:
    cause: BaseException = error
    while isinstance(cause, GraphQLError) and cause.original_error is not None:
        cause = cause.original_error
    return cause


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from _leaves(part)


def format_errors(errors: Sequence[GraphQLError]) -> list[dict[str, Any]]:
    """Return the errors in the form that clients may see, at most `MAX_ERRORS`."""
    return [_format(error) for error in errors[:MAX_ERRORS]]


def _format(error: GraphQLError) -> dict[str, Any]:
    known = domain_error(error)
    if known is not None:
        formatted = format_error(known)
    elif _is_callers_fault(error):
        formatted = {
            "message": _shortened(error.message),
            "extensions": {"code": BadUserInput.code, **(error.extensions or {})},
        }
    else:
        formatted = mask_error(_cause(error), error.path)
    if error.locations:
        formatted["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    if error.path is not None:
        formatted["path"] = error.path
    return formatted


def mark_ambiguous(errors: Sequence[dict[str, Any]]) -> None:
    """Mark failures of the store among formatted errors as not retryable: the operation may have written."""
    for error in errors:
        if error["extensions"]["code"] in STORE_CODES and error["extensions"].get("retryable"):
            error["extensions"] = {**error["extensions"], "retryable": False, "mayHaveBeenApplied": True}


def format_error(error: DomainError) -> dict[str, Any]:
    """Return a domain error in the form of the response."""
    return {"message": _shortened(str(error)), "extensions": error.extensions}


def _is_callers_fault(error: GraphQLError) -> bool:
    """Return whether the document or its variables caused the error, rather than a resolver or its result."""
    cause = _cause(error)
    if isinstance(cause, GraphQLError) and (error.path is None or "code" in (error.extensions or {})):
        return True
    if error.path is None:
        return bool(error.locations) or isinstance(cause, RecursionError)
    # Only errors about arguments point at another node than the field itself.
    return bool(error.nodes) and not any(isinstance(node, FieldNode) for node in error.nodes or ())


def mask_error(cause: BaseException, where: object = None) -> dict[str, Any]:
    """Log an error with its traceback. Return an error for the client that contains only the id of the log entry."""
    error_id = token_hex(8)
    # The message of an exception may contain stored data.
    trace = redact_emails("".join(traceback.format_exception(cause)))
    _log.error("Error %s at %s\n%s", error_id, where, trace)
    return {"message": MASKED, "extensions": {"code": Internal.code, "errorId": error_id}}


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…"


def encode(body: dict[str, Any]) -> bytes:
    """Return JSON, or a masked error if JSON cannot express a value, such as a lone surrogate or a huge integer."""
    try:
        return orjson.dumps(body)
    except TypeError as error:
        return orjson.dumps({"errors": [mask_error(error)], "data": None})
