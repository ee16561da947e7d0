"""Calls of tools: each is an operation with a registered document, which the runner processes like any other."""

from typing import Any

import orjson
from msgspec import Struct

from datastore.errors import BadUserInput, Throttled, Unavailable
from server.documents.request import GraphQLParams
from server.mcp.exchange import CallRefused, Exchange
from server.mcp.tools import ResultTooLarge, Tool
from server.operations.outcome import Outcome, encode, failure, mask_error
from server.operations.request import Transport
from server.operations.runner import Runner

# A client may send the key of a mutation in the call's metadata, since few can set a header for one call.
IDEMPOTENCY_KEY = "idempotencyKey"
# The outcomes that decide the status: proxies and clients must slow down, or retry later.
_STATUSES: dict[str, int] = {Throttled.code: 429, Unavailable.code: 503}


class ToolResult(Struct, frozen=True):
    """The result of a call: `data` if it succeeded. `text` is the data, or else the errors as the API reports them."""

    text: str
    data: dict[str, Any] | None = None


async def call_tool(runner: Runner, exchange: Exchange, tool: Tool, arguments: dict[str, Any], meta: Any) -> ToolResult:
    """Execute a tool's operation with the arguments as variables. `meta` is the metadata of the call, unchecked.

    Raises:
        CallRefused: the caller's budget is exhausted or the gateway is overloaded.
    """
    try:
        tool.check_arguments(arguments)
    except BadUserInput as error:
        return _failed(failure(error))
    params = GraphQLParams(
        None,
        arguments,
        document_id=tool.document_id,
        idempotency_key=_idempotency_key(meta, exchange),
        traceparent=exchange.traceparent,
        request_id=exchange.request_id,
        size=exchange.size,
    )
    exchange.is_charged = True
    request = await runner.prepare(params, exchange.caller, Transport.MCP)
    outcome = request if isinstance(request, Outcome) else await runner.run(request)
    exchange.allowance = outcome.allowance
    return _result(tool, outcome)


def _idempotency_key(meta: Any, exchange: Exchange) -> str | None:
    """Return the key of the call. A key of another type becomes "", which is refused later."""
    if not isinstance(meta, dict) or IDEMPOTENCY_KEY not in meta:
        return exchange.idempotency_key
    key = meta[IDEMPOTENCY_KEY]
    return key if isinstance(key, str) else ""


def _result(tool: Tool, outcome: Outcome) -> ToolResult:
    if outcome.errors:
        status = _STATUSES.get(outcome.code or "") if outcome.is_failure else None
        if status is not None:
            raise CallRefused(status, outcome.formatted_errors[0])
        return _failed(outcome, tool.mark.result_bytes)
    # The body is JSON, whatever types the data has, and that of a replayed response has no other form.
    response = orjson.loads(outcome.body)
    if "data" not in response:  # JSON cannot express a value of the data
        return ToolResult(outcome.body.decode())
    text = orjson.dumps(response["data"])
    limit = tool.mark.result_bytes
    if len(text) > limit:
        return _failed(failure(ResultTooLarge(len(text), limit, wrote=not tool.is_query)))
    return ToolResult(text.decode(), response["data"])


def _failed(outcome: Outcome, limit: int | None = None) -> ToolResult:
    """Return the errors, with the partial data if these have at most `limit` bytes together."""
    body = outcome.body
    if limit is not None and len(body) > limit:
        body = encode({"errors": outcome.formatted_errors})
    return ToolResult(body.decode())


def unexpected(error: Exception) -> CallRefused:
    """Return the refusal that reports an unexpected error, which is logged."""
    return CallRefused(500, mask_error(error, "a call of MCP"))
