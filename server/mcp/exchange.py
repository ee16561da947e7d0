"""A request of a client of the Model Context Protocol, with the facts that its transport and its handler share."""

from typing import Any

from msgspec import Struct

from datastore.errors import Internal
from server.admission.budgets import Allowance
from server.admission.callers import Caller
from server.mcp.tools import Toolset

# The key of an exchange in the scope of its request.
EXCHANGE = "gateway.mcp.exchange"


class Exchange(Struct, eq=False):
    """One request and its response."""

    caller: Caller
    tools: Toolset
    request_id: bytes
    traceparent: str | None = None
    #: The Idempotency-Key of the HTTP request. A call may have one of its own.
    idempotency_key: str | None = None
    #: The bytes of the request.
    size: int = 0
    #: Whether an operation was prepared, and charged to the caller.
    is_charged: bool = False
    allowance: Allowance | None = None
    #: The status of the response, if it is not that of the SDK.
    status: int | None = None
    retry_after: float | None = None


class CallRefused(Exception):
    """A call is answered with a JSON-RPC error instead of a result: it was not executed, or failed unexpectedly.

    `error` has the form of the API's errors.
    """

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.status = status
        self.error = error

    @property
    def is_internal(self) -> bool:
        return bool(self.error["extensions"]["code"] == Internal.code)
