"""The answers of an operation, as every transport sends them, and what may be said about its errors."""

import logging
import traceback
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

import orjson
from graphql import ExecutionResult, FieldNode, GraphQLError

from datastore.errors import BadUserInput, DomainError, Internal, Resync, Throttled, Timeout, Unavailable
from datastore.model.log_redaction import without_emails
from datastore.queues import OverflowPolicy
from server.admission.budgets import Allowance
from server.documents.request import Stage

MAX_ERRORS = 20
# An answer is encoded in one piece, and so are keys and numbers beside its texts.
MAX_ANSWER_CHARACTERS = 4_000_000
# Messages of graphql-core quote the value they complain about, which can be as long as the request.
MAX_MESSAGE = 1000
OF_THE_STORE = frozenset((Throttled.code, Timeout.code, Unavailable.code))
MASKED = "Something went wrong on our side."

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What became of an operation, or of one event of a subscription.

    `stage` is where it ended; `replayed` the body of an earlier answer that is given again, byte for byte. `wrote`
    tells whether something was changed, or may have been. `omitted` counts errors beside those that are here.
    An event of a subscription has an id, by which a client can go on after it, and the `number` of its change here;
    `left_out` is how many events it stands for beside itself, and `key` tells which may take its place while it waits.
    `goes_on` is an error after which the subscription does, and `is_place` one that only tells the id of where it is.
    """

    data: dict[str, Any] | None = None
    errors: Sequence[GraphQLError] = ()
    stage: Stage = Stage.EXECUTION
    extensions: dict[str, Any] | None = None
    allowance: Allowance | None = None
    replayed: bytes | None = None
    wrote: bool = False
    omitted: int = 0
    event_id: str | None = None
    number: int = 0
    left_out: int = 0
    key: Hashable = None
    goes_on: bool = False
    is_place: bool = False
    _described: list[dict[str, Any]] | None = field(default=None, init=False, repr=False, compare=False)
    _body: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def is_failure(self) -> bool:
        """Whether it is nothing but errors about the operation as a whole: it never ran, or was broken off."""
        if self.goes_on:
            return False
        return bool(self.errors) and self.data is None and all(error.path is None for error in self.errors)

    @property
    def code(self) -> str | None:
        """The first error's code."""
        return str(self.described[0]["extensions"]["code"]) if self.errors else None

    @property
    def described(self) -> list[dict[str, Any]]:
        """The errors as a client may see them. What is masked is logged once, and where they were raised forgotten."""
        if self._described is None:
            self._described = described(self.errors)
            for error in self.errors[:MAX_ERRORS]:
                _release(error)
        return self._described

    def doubt(self) -> None:
        """Something was changed, or may have been: no failure of the store may be taken for one of all that was asked.

        What a resolver tells as retryable (a merge that waits for an index) stays so: it knows what it has written.
        """
        self.wrote = True
        for error in self.described:
            if error["extensions"]["code"] in OF_THE_STORE and error["extensions"].get("retryable"):
                error["extensions"] = {**error["extensions"], "retryable": False, "mayHaveBeenApplied": True}

    def extend(self, name: str, told: Any) -> None:
        """Tell something more in the extensions, also of an answer that was encoded already (for being kept)."""
        self.extensions = {**(self.extensions or {}), name: told}
        self._body = None

    def mark(self, event_id: str | None, number: int) -> None:
        """It is an event with this id."""
        self.event_id, self.number = event_id, number
        if event_id is not None:
            self.extend("eventId", event_id)

    def stand_for(self, left_out: int) -> None:
        """It has taken the place of so many others, which its client is told."""
        if left_out:
            self.left_out = left_out
            self.extend(OverflowPolicy.LATEST.tells, left_out)

    def standing_for(self, left_out: int) -> "Outcome":
        """The same for one who was not told so many others, instead of as many as it stands for."""
        if left_out == self.left_out:
            return self
        copy = self._copy()
        copy.stand_for(left_out)
        return copy

    def body_after(self, left_out: int, name: str) -> bytes:
        """The response, telling under this name that so many events were left out: what all are told, and a bit."""
        if left_out == self.left_out:
            return self.body
        if name in (self.extensions or {}):
            return self.standing_for(left_out).body
        # The extensions are the last in it: see `_map`.
        if self._has_extensions:
            return b'%b,"%b":%d}}' % (self.body[:-2], name.encode(), left_out)
        return b'%b,"extensions":{"%b":%d}}' % (self.body[:-1], name.encode(), left_out)

    def telling(self, left_out: int, name: str) -> "Outcome":
        """The same with that body."""
        if left_out == self.left_out:
            return self
        copy = self._copy()
        copy._body = self.body_after(left_out, name)
        return copy

    def as_resync(self) -> "Outcome":
        """The same, for one who asked for what is not known any more."""
        copy = self._copy()
        copy.extend("resync", True)
        return copy

    def _copy(self) -> "Outcome":
        copy = replace(self)
        copy._described = self.described if self.errors else None
        return copy

    @property
    def _has_extensions(self) -> bool:
        return bool(self.extensions or self.omitted or len(self.errors) > MAX_ERRORS)

    @property
    def body(self) -> bytes:
        """The response: without `data` when nothing was executed, with at most `MAX_ERRORS` errors."""
        if self._body is None:
            self._body = encode(self._map()) if self.replayed is None else self.replayed
        return self._body

    def _map(self) -> dict[str, Any]:
        if not self.errors and not self.extensions and not self.omitted:
            return {"data": self.data}
        body: dict[str, Any] = {}
        if self.errors:
            body["errors"] = self.described
        if not self.is_failure:
            body["data"] = self.data
        extensions = dict(self.extensions or {})
        omitted = self.omitted + len(self.errors[MAX_ERRORS:])
        if omitted:
            extensions["omittedErrors"] = omitted
        if extensions:
            body["extensions"] = extensions
        return body


class AnswerTooLarge(BadUserInput):
    """An answer would take more bytes than any may. `extensions` hold the `limit`."""

    def __init__(self) -> None:
        super().__init__(
            f"The answer holds more than {MAX_ANSWER_CHARACTERS:,} characters: "
            "ask for smaller pages, fewer fields, or the same field under fewer names.",
            measure="answerCharacters",
            limit=MAX_ANSWER_CHARACTERS,
        )


def is_too_large(data: dict[str, Any] | None) -> bool:
    """Return whether an answer has too many characters to be encoded. The same text counts wherever it stands."""
    if data is None:
        return False
    found = 0
    containers: list[Any] = [data]
    for container in containers:  # which grows meanwhile
        for value in container.values() if type(container) is dict else container:
            kind = type(value)
            if kind is str:
                found += len(value)
            elif kind is dict or kind is list:
                containers.append(value)
        if found > MAX_ANSWER_CHARACTERS:
            return True
    return False


def outcome_of(result: ExecutionResult) -> Outcome:
    """What graphql-core answered. Errors that are not told are let go of: their list is held by what executed, too."""
    errors = result.errors
    if not errors:
        return Outcome(result.data)
    told = errors[:MAX_ERRORS]
    for error in errors[MAX_ERRORS:]:
        _release(error)
    outcome = Outcome(result.data, told, omitted=len(errors) - len(told))
    errors.clear()
    return outcome


def _release(error: BaseException) -> None:
    """Let go of the frames that it was raised in: they hold it, too, and would stay until cycles are looked for."""
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or (one.__traceback__ is None and one.__context__ is None and one is not error):
            continue
        # Its cause stays: it tells what the error is of.
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        one.__traceback__ = one.__context__ = None


def failure(error: Exception, stage: Stage = Stage.EXECUTION) -> Outcome:
    """An outcome that is nothing but this error."""
    located = error if isinstance(error, GraphQLError) else GraphQLError(str(error), original_error=error)
    return Outcome(errors=[located], stage=stage)


def place_only(event_id: str) -> Outcome:
    """Where a subscription is, without an event."""
    return Outcome(event_id=event_id, is_place=True)


def resync(event_id: str | None, number: int) -> Outcome:
    """What is told of a subscription that cannot go on where its client was cut off, and that has no state to tell."""
    error = Resync("What came since that event is not known any more: read the present state. New events follow.")
    outcome = failure(error)
    outcome.goes_on = True
    outcome.mark(event_id, number)
    return outcome


def replayed(body: bytes) -> Outcome:
    """An earlier answer, given again: what tells statuses and codes is read from it, and its bytes stay as they are."""
    told = orjson.loads(body)
    errors = told.get("errors", ())
    known = [GraphQLError(error["message"], path=error.get("path"), extensions=error["extensions"]) for error in errors]
    outcome = Outcome(told.get("data"), known, replayed=body)
    outcome._described = list(errors)
    return outcome


def domain_error(error: GraphQLError) -> DomainError | None:
    """The `DomainError` inside, also through wrapping and through a task group that only failed with such errors."""
    leaves = list(_leaves(_cause(error)))
    known = [leaf for leaf in leaves if isinstance(leaf, DomainError)]
    return known[0] if known and len(known) == len(leaves) else None


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


def described(errors: Sequence[GraphQLError]) -> list[dict[str, Any]]:
    """The errors as a client may see them, at most `MAX_ERRORS`."""
    return [_described(error) for error in errors[:MAX_ERRORS]]


def _described(error: GraphQLError) -> dict[str, Any]:
    known = domain_error(error)
    if known is not None:
        told = told_error(known)
    elif _is_callers_fault(error):
        told = {
            "message": _shortened(error.message),
            "extensions": {"code": BadUserInput.code, **(error.extensions or {})},
        }
    else:
        told = masked(_cause(error), error.path)
    if error.locations:
        told["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    if error.path is not None:
        told["path"] = error.path
    return told


def told_error(error: DomainError) -> dict[str, Any]:
    """A domain error in the form of the wire."""
    return {"message": _shortened(str(error)), "extensions": error.extensions}


def _is_callers_fault(error: GraphQLError) -> bool:
    """Whether the document or its variables are to blame, and not a resolver or a value it returned."""
    cause = _cause(error)
    if isinstance(cause, GraphQLError) and (error.path is None or "code" in (error.extensions or {})):
        return True
    if error.path is None:
        return bool(error.locations) or isinstance(cause, RecursionError)
    # Only errors about arguments point at something else than the field itself.
    return bool(error.nodes) and not any(isinstance(node, FieldNode) for node in error.nodes or ())


def masked(cause: BaseException, where: object = None) -> dict[str, Any]:
    """Say nothing but an id, under which the log has everything."""
    error_id = token_hex(8)
    # What an exception says may hold what was stored.
    trace = without_emails("".join(traceback.format_exception(cause)))
    _log.error("Error %s at %s\n%s", error_id, where, trace)
    return {"message": MASKED, "extensions": {"code": Internal.code, "errorId": error_id}}


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…"


def encode(body: dict[str, Any]) -> bytes:
    """JSON. A value that JSON cannot express (a lone surrogate, a huge integer) is a fault of ours like any other."""
    try:
        return orjson.dumps(body)
    except TypeError as error:
        return orjson.dumps({"errors": [masked(error)], "data": None})
