"""An operation over any transport, sent with exactly the given fields."""

import json
from typing import Any, Literal

import aiohttp
from yarl import URL

from datastore.model.identity import Role
from tests.support.served import Served

Transport = Literal["POST", "GET", "WebSocket", "events"]
TRANSPORTS: tuple[Transport, ...] = ("POST", "GET", "WebSocket", "events")


def persisted(document_hash: str) -> dict[str, Any]:
    """Return Apollo's extension that names a document by its hash."""
    return {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": document_hash}}}


async def ask_over(
    served: Served, transport: Transport, user: str | None = None, role: Role = Role.USER, **fields: Any
) -> dict[str, Any]:
    """Return the response to the operation with these fields (`query`, `documentId`, `extensions`, …)."""
    headers = served.headers(user, role)
    if transport == "WebSocket":
        return await _over_socket(served, headers, fields)
    if transport == "GET":
        async with get(served, headers, **fields) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            return answer
    headers |= {"Accept": "text/event-stream"} if transport == "events" else {}
    async with served.http.post(f"{served.url}/graphql", json=fields, headers=headers) as response:
        text = await response.text()
    if transport == "events":
        text = next(line for line in text.splitlines() if line.startswith("data: {")).removeprefix("data: ")
    return dict(json.loads(text))


def get(served: Served, headers: dict[str, str], **fields: Any) -> Any:
    """Return the response to a GET, as a context manager."""
    parameters = {name: text if isinstance(text, str) else json.dumps(text) for name, text in fields.items()}
    return served.http.get(URL(f"{served.url}/graphql").with_query(parameters), headers=headers)


async def _over_socket(served: Served, headers: dict[str, str], fields: dict[str, Any]) -> dict[str, Any]:
    url = served.url.replace("http", "ws") + "/graphql"
    async with served.http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        await socket.send_json({"type": "connection_init", "payload": headers})
        assert (await socket.receive_json(timeout=10))["type"] == "connection_ack"
        await socket.send_json({"id": "1", "type": "subscribe", "payload": fields})
        message = await socket.receive(timeout=10)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        answer = json.loads(message.data)
    return {"errors": answer["payload"]} if answer["type"] == "error" else dict(answer["payload"])


def codes_of_answer(answer: dict[str, Any]) -> list[str]:
    return [error["extensions"]["code"] for error in answer.get("errors", [])]
