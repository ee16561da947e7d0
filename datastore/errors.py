"""Errors that may reach a client.

graphql-core copies `extensions` into the error of the response, so this module does not depend on GraphQL.
"""

from typing import Any, ClassVar


class DomainError(Exception):
    """An error that the caller may see, with a message for people and a stable code for programs."""

    code: ClassVar[str]
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

    code = "BAD_USER_INPUT"


class BadCursor(DomainError):
    """A cursor was altered, or belongs to another field or other arguments."""

    code = "BAD_CURSOR"


class Unauthenticated(DomainError):
    """The field needs a signed-in caller."""

    code = "UNAUTHENTICATED"


class Forbidden(DomainError):
    """The caller is known, and lacks the permission."""

    code = "FORBIDDEN"


class NotFound(DomainError):
    """The item that the mutation names does not exist, or exists no longer."""

    code = "NOT_FOUND"


class Conflict(DomainError):
    """Another caller changed the same item concurrently, or the item exists already."""

    code = "CONFLICT"


class IdempotencyMismatch(DomainError):
    """The caller used this Idempotency-Key for another mutation, or with other variables."""

    code = "IDEMPOTENCY_MISMATCH"


class AnswerNotKept(DomainError):
    """The mutation was executed before with this Idempotency-Key, and its response was too large to be stored."""

    code = "IDEMPOTENCY_ANSWER_NOT_KEPT"


class Throttled(DomainError):
    """DynamoDB throttled all attempts."""

    code = "THROTTLED"
    retryable = True


class Timeout(DomainError):
    """The request's deadline passed before the store answered."""

    code = "TIMEOUT"
    retryable = True


class Unavailable(DomainError):
    """The store cannot be reached, or keeps failing."""

    code = "UNAVAILABLE"
    retryable = True


class Internal(DomainError):
    """The store refused a request of the gateway: a defect of the gateway. Only the log has the details."""

    code = "INTERNAL"


class SlowSubscriber(DomainError):
    """A subscriber fell further behind than its queue allows, and is disconnected."""

    code = "SLOW_SUBSCRIBER"
    retryable = True


class Resync(DomainError):
    """The events that a subscriber missed are no longer available. It has to read the current state."""

    code = "RESYNC"


class TableMissing(DomainError):
    """A declared table does not exist in the store."""

    code = "INTERNAL"


def possibly_deleted(what: str) -> Unavailable:
    """Return the error of a delete that should return the deleted item, after an ambiguous attempt.

    The item is gone, but it is unknown whether this request deleted it.
    """
    error = Unavailable(
        f"{what} does not exist. A response of the store was lost: this request or another one has deleted it."
    )
    error.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return error
