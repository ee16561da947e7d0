"""The enum of error codes in the schema."""

from enum import Enum
from typing import Any

import strawberry

from datastore.errors import ErrorCode

DESCRIPTIONS = {
    ErrorCode.BAD_USER_INPUT: "The document, a variable or an argument is invalid. `field` names the argument.",
    ErrorCode.BAD_CURSOR: "A cursor was altered, or belongs to another list or other arguments.",
    ErrorCode.UNAUTHENTICATED: "The field requires a token, or the token is invalid or has expired.",
    ErrorCode.FORBIDDEN: "The token does not permit the operation.",
    ErrorCode.NOT_FOUND: "The object that a mutation or subscription names does not exist, or the caller may not see "
    "it. A delete returns null instead.",
    ErrorCode.CONFLICT: "Another caller changed the object, it exists already, its state does not permit the change, "
    "or a limit of its owner is reached. `current` is its present state, if `expectedVersion` was given.",
    ErrorCode.IDEMPOTENCY_MISMATCH: "The Idempotency-Key was used for another request.",
    ErrorCode.IDEMPOTENCY_RESPONSE_NOT_KEPT: "The mutation was executed; its response was too large to be repeated.",
    ErrorCode.THROTTLED: "The store or the caller's budget allows no further calls at present.",
    ErrorCode.TIMEOUT: "The deadline of the operation passed.",
    ErrorCode.UNAVAILABLE: "The store or the gateway cannot serve the request at present.",
    ErrorCode.INTERNAL: "A defect of the gateway. `errorId` identifies it in the log.",
    ErrorCode.SLOW_SUBSCRIBER: "The subscriber read too slowly, and its subscription ended. It can resume.",
    ErrorCode.RESYNC: "Missed events are no longer available. The current state follows.",
    ErrorCode.PERSISTED_QUERY_NOT_FOUND: "The gateway does not know the document with this id.",
    ErrorCode.PERSISTED_QUERY_NOT_SUPPORTED: "Automatic persisted queries are turned off.",
}


def error_codes() -> Any:
    """Return the enum of the schema. No field has it as its type; clients generate their codes from it."""
    values: dict[str, Any] = {
        code.name: strawberry.enum_value(code.value, description=DESCRIPTIONS[code]) for code in ErrorCode
    }
    enum: Any = Enum
    codes = enum("ErrorCode", values)
    return strawberry.enum(codes, description="The codes of errors, in `extensions.code` of each error of a response.")
