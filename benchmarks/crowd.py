"""Very many subscribers in a process of its own, which does as little as it can for each event that arrives.

A message that came to one subscriber is read once: those that come to others differ from it by the id of the operation
alone, and are looked up. Ids are UUIDs, as clients choose them, so that no server can send the same frame to all.
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

from benchmarks.child import obey
from benchmarks.measuring import run

CONNECTING = 100  # at a time
SETTLE_SECONDS = 300.0  # 10,000 sockets, on a machine that has other work

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
HANDSHAKE = (
    "GET /graphql HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many subscribe, to what, and where. They take the requests in turn; `number` is the field that tells events.

    `payload` is that of connection_init.
    """

    port: int
    payload: dict[str, str]
    requests: list[dict[str, Any]]
    count: int
    number: str

    def encoded(self) -> str:
        """In one word."""
        return base64.urlsafe_b64encode(orjson.dumps(self)).decode()

    @classmethod
    def decoded(cls, word: str) -> "Plan":
        return cls(**orjson.loads(base64.urlsafe_b64decode(word)))


class Crowd:
    """The subscribers, and when which event arrived at them.

    `data` is what the first message about each event said, `differing` how many messages said something else.
    """

    def __init__(self) -> None:
        self.plan = Plan(0, {}, [], 0, "")
        self.arrived: defaultdict[Any, list[float]] = defaultdict(list)
        self.known: dict[bytes, tuple[list[float], ...]] = {}
        self.data: dict[Any, Any] = {}
        self.differing = 0
        self.problem: str | None = None
        self._subscribers: list[Subscriber] = []
        self._since = (0.0, 0.0)

    async def obey(self, command: str, *arguments: str) -> object:
        if self.problem is not None:
            raise RuntimeError(self.problem)
        match command:
            case "open":
                await self._open(Plan.decoded(*arguments))
                return None
            case "count":  # the deliveries of one event, or of all
                wanted = arguments or [str(number) for number in self.arrived]
                return sum(len(times) for number, times in self.arrived.items() if str(number) in wanted)
            case "begin":
                self._begin()
                return None
            case "tell":
                return self._told()
            case "close":
                self._close()
                return None
        raise ValueError(command)

    async def _open(self, plan: Plan) -> None:
        self.plan = plan
        slots = asyncio.Semaphore(CONNECTING)
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

    def _told(self) -> dict[str, Any]:
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
    """One socket with one subscription."""

    __slots__ = ("_crowd", "_id", "_is_open", "_left", "_request", "_rest", "_transport", "received", "subscribed")

    def __init__(self, crowd: Crowd, request: dict[str, Any]) -> None:
        self._crowd = crowd
        self._request = request
        self._id = str(uuid.uuid4()).encode()
        self._rest: bytes | None = b""  # of the handshake; then of a frame, None when there is none
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
        """The end of the handshake."""
        assert self._rest is not None
        head, end, rest = (self._rest + data).partition(b"\r\n\r\n")
        if not end:
            self._rest = head
        elif not head.startswith(b"HTTP/1.1 101 "):
            self._fail(f"A subscriber was not let in: {head!r}")
        else:
            self._is_open, self._rest = True, None
            self._say({"type": "connection_init", "payload": self._crowd.plan.payload})
            self._read(rest, b"")

    def _read(self, data: bytes, rest: bytes) -> None:
        """Frames of a server: not masked, and here never in fragments."""
        now = time.perf_counter()
        whole, at = rest + data, 0
        told: list[list[float]] = []
        only_events = not rest
        while (frame := _frame(whole, at)) is not None:
            opcode, start, at = frame
            arrived = self._take(opcode, whole[start:at])
            if arrived is None:
                only_events = False
            else:
                arrived.append(now)
                told.append(arrived)
        self.received += len(told)
        if at < len(whole):
            self._rest = whole[at:]
            return
        self._rest = None
        if only_events and told:
            self._crowd.known[data.replace(self._id, b"")] = tuple(told)

    def _take(self, opcode: int, body: bytes) -> list[float] | None:
        """The arrivals of the event that a message tells; None when it is another message."""
        if opcode == PING:
            self._transport.write(_masked(PONG, body))
            return None
        if opcode != TEXT:
            self._fail(f"A subscriber got a frame of kind {opcode}: {body!r}")
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
                self._fail(f"A subscriber was told: {message}")
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
    """What the frame there is, and where its body begins and ends; None when not all of it has come."""
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
    """A client's frame has a mask; with this one what is sent stays what it is."""
    size = len(body)
    length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
    return bytes([0x80 | opcode]) + length + bytes(4) + body


if __name__ == "__main__":
    gc.disable()  # it does not live long
    try:
        run(obey(Crowd().obey))
    except RuntimeError as problem:
        sys.exit(f"Error: {problem}")
