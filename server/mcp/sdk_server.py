"""The server of the official SDK, which implements the protocol's messages and versions.

Importing this module takes the better part of a second: the endpoint does it for its first request.
"""

import asyncio
import logging
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from server.mcp.calls import call_tool, unexpected
from server.mcp.exchange import EXCHANGE, CallRefused, Exchange
from server.mcp.resources import Resources
from server.mcp.tools import Tool, Toolset
from server.operations.runner import Runner
from server.version import running_build

NAME, TITLE = "dynamodb-graphql-gateway", "DynamoDB GraphQL gateway"
INSTRUCTIONS = (
    "Each tool is an operation of a GraphQL API. Times are in UTC. A list has pages: pass `endCursor` of a page as "
    "`after` for the next one. An error has a `code` and a message; repeat a call only if the error is `retryable`."
)
# In the range of JSON-RPC's errors that servers define.
REFUSED = -32010

Context = ServerRequestContext[Any, Any]

# Its warnings are caused by clients, and the manager logs its start at each request.
logging.getLogger("mcp").setLevel(logging.ERROR)


class SdkServer:
    """The protocol's server for tools and resources. It keeps nothing between requests."""

    def __init__(self, runner: Runner, resources: Resources) -> None:
        self._runner = runner
        self._resources = resources
        self._listed: tuple[Toolset | None, list[types.Tool]] = (None, [])
        self._server: Server[Any] = Server(
            NAME,
            title=TITLE,
            version=running_build().version,
            instructions=INSTRUCTIONS,
            # No argument is repeated in a header, so that there is nothing to compare.
            get_tool_input_schema=lambda _name: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
        )
        self._server.middleware.clear()  # the gateway has its own spans

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a POST whose scope has an `Exchange`, and send a JSON response.

        Each request has a session manager of its own, so that its tasks end with it.
        """
        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = _exchange(context).tools
        if self._listed[0] is not tools:
            self._listed = (tools, [_described(tool) for tool in tools.values()])
        return types.ListToolsResult(tools=self._listed[1])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        exchange = _exchange(context)
        tool = exchange.tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:100]!r}: see tools/list.")
        try:
            meta = (context.params or {}).get("_meta")
            result = await call_tool(self._runner, exchange, tool, params.arguments or {}, meta)
        except CallRefused as refusal:
            raise _refused(exchange, refusal) from None
        except Exception as error:
            raise _refused(exchange, unexpected(error)) from None
        return types.CallToolResult(
            content=[types.TextContent(text=result.text)],
            structured_content=result.data,
            is_error=result.data is None,
        )

    async def _list_resources(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        readable = self._resources.readable_by(_exchange(context).caller)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=resource.uri,
                    name=resource.name,
                    description=resource.description,
                    mime_type=resource.media_type,
                )
                for resource in readable.values()
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        resource = self._resources.readable_by(_exchange(context).caller).get(uri)
        if resource is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no resource {uri[:100]!r} for you: see resources/list.")
        text = await asyncio.to_thread(resource.read)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type=resource.media_type, text=text)]
        )


def _exchange(context: Context) -> Exchange:
    assert context.request is not None
    exchange: Exchange = context.request.scope[EXCHANGE]
    return exchange


def _refused(exchange: Exchange, refusal: CallRefused) -> MCPError:
    """Return the JSON-RPC error of a refusal, whose status the response gets."""
    extensions = refusal.error["extensions"]
    exchange.status, exchange.retry_after = refusal.status, extensions.get("retryAfter")
    code = types.INTERNAL_ERROR if refusal.is_internal else REFUSED
    return MCPError(code, refusal.error["message"], extensions)


def _described(tool: Tool) -> types.Tool:
    mark = tool.mark
    hints = types.ToolAnnotations(title=mark.title, read_only_hint=tool.is_query, open_world_hint=False)
    if not tool.is_query:
        hints.destructive_hint, hints.idempotent_hint = mark.destructive, mark.idempotent
    return types.Tool(
        name=mark.name,
        title=mark.title,
        description=mark.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=hints,
    )
