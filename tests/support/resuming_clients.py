"""Clients that reconnect and resume after their last event, over WebSockets and server-sent events."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

Said = Mapping[str, Any]
# Event streams have heartbeats and WebSockets pings within 12 s.
SILENCE_SECONDS = 20.0
ENDED = {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


class CutOff(ConnectionError):
    """The connection ended: `code` is the server's close code, or None if the connection was lost."""

    def __init__(self, received: aiohttp.WSMessage) -> None:
        said = received.type is aiohttp.WSMsgType.CLOSE
        self.code: int | None = received.data if said else None
        super().__init__(f"{received.type.name} {received.data} {received.extra}")


class ResumingClient:
    """Follows one subscription over several connections. `last` is the id of its last event."""

    def __init__(self, http: aiohttp.ClientSession, query: str, headers: Mapping[str, str]) -> None:
        self.http = http
        self.query = query
        self.headers = dict(headers)
        self.last: str | None = None

    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[AsyncIterator[Said]]:
        """Yield the payloads of a new connection, which is closed at the end of the context."""
        raise NotImplementedError
        yield

    def had(self, payload: Said) -> Said:
        """Record a payload: the client resumes after its event."""
        if "eventId" in payload.get("extensions", {}):
            self.last = payload["extensions"]["eventId"]
        return payload


class SocketClient(ResumingClient):
    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[AsyncIterator[Said]]:
        socket = await self.http.ws_connect(
            url.replace("http", "ws") + "/graphql", protocols=["graphql-transport-ws"], autoping=False
        )
        try:
            await socket.send_json({"type": "connection_init", "payload": self.headers})
            assert (await _heard(socket, 10))["type"] == "connection_ack"
            payload = {"query": self.query, "extensions": {"resumeAfter": self.last}}
            await socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
            yield self._events(socket)
        finally:
            connection = socket._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            await socket.close()

    async def _events(self, socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[Said]:
        while True:
            message = await _heard(socket, SILENCE_SECONDS)
            if message["type"] == "ping":
                places = (message.get("payload") or {}).get("resume", {})
                self.last = places.get("1", self.last)
                await socket.send_json({"type": "pong"})
                if places:
                    yield {"begun": True}
            elif message["type"] == "next":
                yield self.had(message["payload"])
            else:
                yield message
                return


async def _heard(socket: aiohttp.ClientWebSocketResponse, seconds: float) -> Said:
    received = await socket.receive(timeout=seconds)
    if received.type in ENDED:
        raise CutOff(received)
    assert received.type is aiohttp.WSMsgType.TEXT, received
    message: Said = json.loads(received.data)
    return message


class EventStreamClient(ResumingClient):
    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[AsyncIterator[Said]]:
        headers = {**self.headers, "accept": "text/event-stream"}
        if self.last is not None:
            headers["Last-Event-ID"] = self.last
        body, timeout = {"query": self.query}, aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS)
        async with self.http.post(f"{url}/graphql", json=body, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise ConnectionError(f"The status is {response.status}.")
            try:
                yield self._events(response)
            finally:
                response.close()

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[Said]:
        event: dict[str, str] = {}
        async for line in response.content:
            name, _, value = line.decode().rstrip("\n").partition(":")
            if name:
                event[name] = value.strip()
            elif event:
                self.last = event.get("id", self.last)
                if event.get("event") == "next":
                    yield json.loads(event["data"])
                elif "event" not in event and "id" in event:
                    yield {"begun": True}
                event = {}
