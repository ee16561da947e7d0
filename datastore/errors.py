"""Errors that may reach a client.

graphql-core copies `extensions` onto the error it answers, so nothing here knows GraphQL.
"""

from typing import Any, ClassVar


class DomainError(Exception):
    """An error that the caller may see: a message for people, and a stable code for programs."""

    code: ClassVar[str]
    retryable: ClassVar[bool] = False
    # Whether only the caller's deadline prevented another attempt: a caller with more time may succeed.
    out_of_time: bool = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.extensions: dict[str, Any] = {"code": self.code, **details}
        if self.retryable:
            self.extensions["retryable"] = True


class BadUserInput(DomainError):
    """An argument is outside what is accepted; the message names the field and the limit."""

    code = "BAD_USER_INPUT"


class BadCursor(DomainError):
    """A cursor was altered, or belongs to another field or other arguments."""

    code = "BAD_CURSOR"


class Unauthenticated(DomainError):
    """The field needs a signed-in caller."""

    code = "UNAUTHENTICATED"


class Forbidden(DomainError):
    """The caller is known, and may not do this."""

    code = "FORBIDDEN"


class NotFound(DomainError):
    """What the mutation is about does not exist (any more)."""

    code = "NOT_FOUND"


class Conflict(DomainError):
    """Somebody else changed the same thing at the same time, or it exists already."""

    code = "CONFLICT"


class IdempotencyMismatch(DomainError):
    """The caller used this Idempotency-Key for another mutation, or with other variables."""

    code = "IDEMPOTENCY_MISMATCH"


class AnswerNotKept(DomainError):
    """The mutation was executed before under this Idempotency-Key; its answer was too large to be kept."""

    code = "IDEMPOTENCY_ANSWER_NOT_KEPT"


class Throttled(DomainError):
    """DynamoDB went on throttling until the retries were used up."""

    code = "THROTTLED"
    retryable = True


class Timeout(DomainError):
    """The deadline of the request passed before the store answered."""

    code = "TIMEOUT"
    retryable = True


class Unavailable(DomainError):
    """The store cannot be reached, or goes on failing."""

    code = "UNAVAILABLE"
    retryable = True


class Internal(DomainError):
    """The store refused a request of ours: a fault of the gateway, its details are in the log only."""

    code = "INTERNAL"


class SlowSubscriber(DomainError):
    """A subscriber fell further behind than its queue holds, and is disconnected."""

    code = "SLOW_SUBSCRIBER"
    retryable = True


class Resync(DomainError):
    """The events that a subscriber missed are no longer available: it has to read the present state."""

    code = "RESYNC"


class TableMissing(DomainError):
    """A declared table does not exist in the store."""

    code = "INTERNAL"


def possibly_deleted(what: str) -> Unavailable:
    """For who was to be answered with what a try deleted whose answer was lost: only that it is gone is known."""
    error = Unavailable(f"{what} is not there, and the store's answer was lost: this deleted it, or others did.")
    error.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return error
