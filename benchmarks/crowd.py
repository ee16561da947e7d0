"""Thousands of subscribers in one process, with as little CPU as possible for each received event.

Each distinct message is parsed once. The copies for other subscribers differ only in the operation id, and are looked
up. Ids are UUIDs, as clients choose them, so that no server can send the same frame to all.
"""

import asyncio
import base64
import gc
import struct
import sys
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks.child import serve_commands
from benchmarks.measuring import run

MAX_CONNECTING = 100  # concurrent handshakes
SETTLE_SECONDS = 300.0  # for 10,000 sockets on a busy machine

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
HANDSHAKE = (
    "GET /graphql HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The subscribers to open."""

    #: The port of the server.
    port: int
    #: The payload of connection_init.
    payload: dict[str, str]
    #: The subscriptions, which the subscribers use in turn.
    requests: list[dict[str, Any]]
    #: The number of subscribers.
    count: int
    #: The field that identifies an event.
    number: str

    def encoded(self) -> str:
        """Return the plan as one word for a command line."""
        return base64.urlsafe_b64encode(orjson.dumps(self)).decode()

    @classmethod
    def decoded(cls, word: str) -> "Plan":
        return cls(**orjson.loads(base64.urlsafe_b64decode(word)))


class Crowd:
    """The subscribers, and the arrival times of their events."""

    def __init__(self) -> None:
        self.plan = Plan(0, {}, [], 0, "")
        #: The arrival times, by event.
        self.arrived: defaultdict[Any, list[float]] = defaultdict(list)
        #: The arrival times to extend for a received chunk, by its bytes without the operation id.
        self.known: dict[bytes, tuple[list[float], ...]] = {}
        #: The data of the first message, by event.
        self.data: dict[Any, Any] = {}
        #: The number of messages with other data than the first message of their event.
        self.differing = 0
        self.problem: str | None = None
        self._subscribers: list[Subscriber] = []
        self._since = (0.0, 0.0)

    async def handle(self, command: str, *arguments: str) -> object:
        """Execute a command of the parent. Raises `RuntimeError` if a subscriber has failed."""
        if self.problem is not None:
            raise RuntimeError(self.problem)
        match command:
            case "open":
                await self._open(Plan.decoded(*arguments))
                return None
            case "count":  # the deliveries of the given events, or of all
                numbers = arguments or [str(number) for number in self.arrived]
                return sum(len(times) for number, times in self.arrived.items() if str(number) in numbers)
            case "begin":
                self._begin()
                return None
            case "report":
                return self._report()
            case "close":
                self._close()
                return None
        raise ValueError(command)

    async def _open(self, plan: Plan) -> None:
        self.plan = plan
        slots = asyncio.Semaphore(MAX_CONNECTING)
        loop = asyncio.get_running_loop()

        async def connect(number: int) -> None:
            async with slots:
                subscriber = Subscriber(self, plan.requests[number % len(plan.requests)])
                self._subscribers.append(subscriber)
                await loop.create_connection(lambda: subscriber, "127.0.0.1", plan.port)
                await subscriber.subscribed

        known = len(self._subscribers)
        async with asyncio.timeout(SETTLE_SECONDS):
            await asyncio.gather(*[connect(number) for number in range(known, plan.count)])

    def _begin(self) -> None:
        self.known.clear()
        self.arrived.clear()
        self.data.clear()
        self.differing = 0
        for subscriber in self._subscribers:
            subscriber.received = 0
        self._since = (time.process_time(), time.perf_counter())

    def _report(self) -> dict[str, Any]:
        cpu, began = self._since
        received = [subscriber.received for subscriber in self._subscribers]
        return {
            "cpu_share": (time.process_time() - cpu) / (time.perf_counter() - began),
            "arrived": list(self.arrived.items()),
            "data": list(self.data.items()),
            "differing": self.differing,
            "least": min(received),
            "most": max(received),
        }

    def _close(self) -> None:
        subscribers, self._subscribers = self._subscribers, []
        for subscriber in subscribers:
            subscriber.leave()


class Subscriber(asyncio.Protocol):
    """A socket with one subscription."""

    __slots__ = ("_crowd", "_id", "_is_open", "_left", "_request", "_rest", "_transport", "received", "subscribed")

    def __init__(self, crowd: Crowd, request: dict[str, Any]) -> None:
        self._crowd = crowd
        self._request = request
        self._id = str(uuid.uuid4()).encode()
        # The incomplete handshake, then the incomplete frame; None if there is none.
        self._rest: bytes | None = b""
        self._is_open = self._left = False
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.write(HANDSHAKE.format(port=self._crowd.plan.port).encode())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._left:
            self._fail(f"A subscriber's connection was lost: {exc!r}")

    def leave(self) -> None:
        self._left = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._rest is None:
            known = self._crowd.known.get(data.replace(self._id, b""))
            if known is not None:
                now = time.perf_counter()
                for arrived in known:
                    arrived.append(now)
                self.received += len(known)
                return
            self._read(data, b"")
        elif self._is_open:
            self._read(data, self._rest)
        else:
            self._begin(data)

    def _begin(self, data: bytes) -> None:
        """Read the handshake, and initialise the protocol after its end."""
        assert self._rest is not None
        head, end, rest = (self._rest + data).partition(b"\r\n\r\n")
        if not end:
            self._rest = head
        elif not head.startswith(b"HTTP/1.1 101 "):
            self._fail(f"The server refused a subscriber: {head!r}")
        else:
            self._is_open, self._rest = True, None
            self._say({"type": "connection_init", "payload": self._crowd.plan.payload})
            self._read(rest, b"")

    def _read(self, data: bytes, rest: bytes) -> None:
        """Read frames of the server. They are not masked, and these servers send no fragments."""
        now = time.perf_counter()
        whole, at = rest + data, 0
        arrivals: list[list[float]] = []
        only_events = not rest
        while (frame := _frame(whole, at)) is not None:
            opcode, start, at = frame
            arrived = self._take(opcode, whole[start:at])
            if arrived is None:
                only_events = False
            else:
                arrived.append(now)
                arrivals.append(arrived)
        self.received += len(arrivals)
        if at < len(whole):
            self._rest = whole[at:]
            return
        self._rest = None
        if only_events and arrivals:
            self._crowd.known[data.replace(self._id, b"")] = tuple(arrivals)

    def _take(self, opcode: int, body: bytes) -> list[float] | None:
        """Handle a frame. Return the arrival times of its event, or None for any other message."""
        if opcode == PING:
            self._transport.write(_masked(PONG, body))
            return None
        if opcode != TEXT:
            self._fail(f"A subscriber received a frame with opcode {opcode}: {body!r}")
            return None
        message = orjson.loads(body)
        match message["type"]:
            case "connection_ack":
                self._say({"id": self._id.decode(), "type": "subscribe", "payload": self._request})
                if not self.subscribed.done():
                    self.subscribed.set_result(None)
            case "ping":
                self._say({"type": "pong"})
            case "next" if "errors" not in message["payload"]:
                return self._event(message["payload"]["data"])
            case _:
                self._fail(f"A subscriber received an unexpected message: {message}")
        return None

    def _event(self, data: dict[str, Any]) -> list[float]:
        crowd = self._crowd
        number = next(iter(data.values()))[crowd.plan.number]
        crowd.differing += crowd.data.setdefault(number, data) != data
        return crowd.arrived[number]

    def _say(self, message: dict[str, Any]) -> None:
        self._transport.write(_masked(TEXT, orjson.dumps(message)))

    def _fail(self, problem: str) -> None:
        self._crowd.problem = self._crowd.problem or problem
        if not self.subscribed.done():
            self.subscribed.set_exception(RuntimeError(problem))


def _frame(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Return the opcode of the frame at `at`, and the start and end of its body; None for an incomplete frame."""
    if len(data) < at + 2:
        return None
    opcode, size, start = data[at] & 0x0F, data[at + 1], at + 2
    if size >= 126:
        length = 2 if size == 126 else 8
        if len(data) < start + length:
            return None
        size, start = int.from_bytes(data[start : start + length], "big"), start + length
    end = start + size
    return (opcode, start, end) if end <= len(data) else None


def _masked(opcode: int, body: bytes) -> bytes:
    """Return a client's frame. Its mask is zero, which leaves the body unchanged."""
    size = len(body)
    length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
    return bytes([0x80 | opcode]) + length + bytes(4) + body


if __name__ == "__main__":
    gc.disable()  # the process is short-lived
    try:
        run(serve_commands(Crowd().handle))
    except RuntimeError as problem:
        sys.exit(f"Error: {problem}")
