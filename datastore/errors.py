"""Errors that may reach a client.

graphql-core copies `extensions` into the error of the response, so this module does not depend on GraphQL.
"""

from enum import StrEnum
from typing import Any, ClassVar


class ErrorCode(StrEnum):
    """The codes of all errors, as `extensions.code` contains them. The page docs/errors.md explains each."""

    BAD_USER_INPUT = "BAD_USER_INPUT"
    BAD_CURSOR = "BAD_CURSOR"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    IDEMPOTENCY_MISMATCH = "IDEMPOTENCY_MISMATCH"
    IDEMPOTENCY_RESPONSE_NOT_KEPT = "IDEMPOTENCY_RESPONSE_NOT_KEPT"
    THROTTLED = "THROTTLED"
    TIMEOUT = "TIMEOUT"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"
    SLOW_SUBSCRIBER = "SLOW_SUBSCRIBER"
    RESYNC = "RESYNC"
    PERSISTED_QUERY_NOT_FOUND = "PERSISTED_QUERY_NOT_FOUND"
    PERSISTED_QUERY_NOT_SUPPORTED = "PERSISTED_QUERY_NOT_SUPPORTED"


class DomainError(Exception):
    """An error that the caller may see, with a message for people and a stable code for programs."""

    code: ClassVar[ErrorCode]
    retryable: ClassVar[bool] = False
    #: Whether only the caller's deadline prevented another attempt. A caller with more time may succeed.
    out_of_time: bool = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.extensions: dict[str, Any] = {"code": self.code, **details}
        if self.retryable:
            self.extensions["retryable"] = True


class BadUserInput(DomainError):
    """An argument is not accepted. The message names the field and the limit."""

    code = ErrorCode.BAD_USER_INPUT


class BadCursor(DomainError):
    """A cursor was altered, or belongs to another field or other arguments."""

    code = ErrorCode.BAD_CURSOR


class Unauthenticated(DomainError):
    """The field needs a signed-in caller."""

    code = ErrorCode.UNAUTHENTICATED


class Forbidden(DomainError):
    """The caller is known, and lacks the permission."""

    code = ErrorCode.FORBIDDEN


class NotFound(DomainError):
    """The item that the mutation names does not exist, or exists no longer."""

    code = ErrorCode.NOT_FOUND


class Conflict(DomainError):
    """Another caller changed the same item concurrently, or the item exists already."""

    code = ErrorCode.CONFLICT


class IdempotencyMismatch(DomainError):
    """The caller used this Idempotency-Key for another mutation, or with other variables."""

    code = ErrorCode.IDEMPOTENCY_MISMATCH


class AnswerNotKept(DomainError):
    """The mutation was executed before with this Idempotency-Key, and its response was too large to be stored."""

    code = ErrorCode.IDEMPOTENCY_RESPONSE_NOT_KEPT


class Throttled(DomainError):
    """DynamoDB throttled all attempts."""

    code = ErrorCode.THROTTLED
    retryable = True


class Timeout(DomainError):
    """The request's deadline passed before the store answered."""

    code = ErrorCode.TIMEOUT
    retryable = True


class Unavailable(DomainError):
    """The store cannot be reached, or keeps failing."""

    code = ErrorCode.UNAVAILABLE
    retryable = True


class Internal(DomainError):
    """The store refused a request of the gateway: a defect of the gateway. Only the log has the details."""

    code = ErrorCode.INTERNAL


class SlowSubscriber(DomainError):
    """A subscriber fell further behind than its queue allows, and is disconnected."""

    code = ErrorCode.SLOW_SUBSCRIBER
    retryable = True


class Resync(DomainError):
    """The events that a subscriber missed are no longer available. It has to read the current state."""

    code = ErrorCode.RESYNC


class TableMissing(DomainError):
    """A declared table does not exist in the store."""

    code = ErrorCode.INTERNAL


def possibly_deleted(what: str) -> Unavailable:
    """Return the error of a delete that should return the deleted item, after an ambiguous attempt.

    The item is gone, but it is unknown whether this request deleted it.
    """
    error = Unavailable(
        f"{what} does not exist. A response of the store was lost: this request or another one has deleted it."
    )
    error.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return error
