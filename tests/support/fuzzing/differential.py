"""Reads the same bytes with h11 and with our protocol, and compares."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from server.admission.connection_limits import Connections
from server.http.protocol import UVICORN_OPTIONS
from tests.support.fuzzing import grammar
from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.clockwork import Clockwork
from tests.support.fuzzing.responses import Response, read_responses
from tests.support.fuzzing.wire import Wire

# More than our own limit, which is tested elsewhere.
MOST_INCOMPLETE = 1_000_000
REFUSED = "refused"


@dataclass
class Message:
    """A request as one of the readers read it. The method of a request that our
    protocol answers itself is `REFUSED`.
    """

    method: str
    target: bytes = b""
    version: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    keeps_alive: bool = True


@dataclass
class StreamReading:
    """The reading of a stream: the complete, accepted requests, and whether more was sent.

    An incomplete request is rejected or waited for, which counts as the same.
    """

    messages: list[Message] = field(default_factory=list)
    has_more: bool = False
    refusal: str = ""

    @property
    def judged(self) -> int:
        """The requests that were accepted or rejected; what follows a rejected one is not read."""
        return len(self.messages) + bool(self.refusal)


def random_streams(seed: int) -> Iterator[bytes]:
    """Yield streams of up to four requests each, without end."""
    rng = random.Random(seed)
    while True:
        choices = Choices(rng.randbytes(160))
        count = 1 + choices.below(4)
        sent = (b"\r\n" if choices.rng(1, 128) else b"").join(_request(choices) for _ in range(count))
        if choices.rng(4):
            sent = grammar.mutated(choices, sent)
        if b"websocket" not in sent.lower():  # which h11 leaves to its caller
            yield sent


def _request(choices: Choices) -> bytes:
    return grammar.with_upgrade(choices) if choices.rng(1) else grammar.plain_request(choices)


# h11


def read_by_h11(stream: bytes) -> StreamReading:
    """Return how h11 reads a stream: each complete request is answered."""
    reading = StreamReading()
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_INCOMPLETE)
    connection.receive_data(stream)
    message = Message("")
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as problem:
            reading.has_more, reading.refusal = True, str(problem)
            return reading
        if isinstance(event, h11.Request):
            headers = list(event.headers)
            message = Message(event.method.decode(), event.target, event.http_version.decode(), headers)
        elif isinstance(event, h11.Data):
            message.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            reading.messages.append(message)
            if not _answered(connection, message):
                return reading
        else:
            reading.has_more = bool(connection.trailing_data[0]) or connection.their_state is h11.SEND_BODY
            return reading


# It refuses to change to another protocol, and to CONNECT.
_ANSWER = h11.Response(status_code=405, headers=[(b"content-length", b"0")])


def _answered(connection: h11.Connection, message: Message) -> bool:
    """Answer the request that is whole. Return whether another may follow."""
    connection.send(_ANSWER)
    connection.send(h11.EndOfMessage())
    message.keeps_alive = connection.our_state is h11.DONE and connection.their_state is h11.DONE
    if message.keeps_alive:
        connection.start_next_cycle()
    return message.keeps_alive


# Our protocol


class Ours:
    """Reads streams with our protocol, each on its own connection, with an application that reads whole bodies."""

    def __init__(self) -> None:
        self.loop = Clockwork()
        self._messages: list[Message] = []
        self._config = uvicorn.Config(
            self._app, log_config=None, lifespan="off", access_log=False, interface="asgi3", **UVICORN_OPTIONS
        )
        self._config.load()
        self._state: Any = Connections().lifespan_state()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw, query = scope["raw_path"], scope["query_string"]
        target = raw + b"?" + query if query else raw
        message = Message(scope["method"], target, scope["http_version"], scope["headers"])
        parts, more = [], True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            parts.append(event.get("body", b""))
            more = event.get("more_body", False)
        message.body = b"".join(parts)
        self._messages.append(message)
        number = b"%d" % len(self._messages)
        headers = [(b"content-length", b"0"), (b"x-call", number)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def read(self, stream: bytes) -> StreamReading:
        """Return how the protocol reads a stream."""
        self._messages = []
        wire = Wire(self.loop)
        protocol: Any = self._config.http_protocol_class
        wire.connect_soon(
            lambda: protocol(config=self._config, server_state=ServerState(), app_state=self._state, _loop=self.loop)
        )
        wire.send(stream)
        self.loop.run_ready()
        reading = self._reading(wire)
        wire.reset()
        self.loop.run_ready()
        if self.loop.complaints:
            raise AssertionError(self.loop.complaints)
        return reading

    def _reading(self, wire: Wire) -> StreamReading:
        reading = StreamReading()
        waiting = iter(self._messages)
        for response in read_responses(bytes(wire.said), _never, _ignore):
            if response.values(b"x-call"):
                message = next(waiting)
                message.keeps_alive = not response.closes
                reading.messages.append(message)
            elif response.status == 405 and not response.closes:
                reading.messages.append(Message(REFUSED))
            else:
                reading.has_more, reading.refusal = True, f"{response.status} {response.body.decode()}"
        return reading


def _never(response: Response) -> bool:
    return False


def _ignore(said: bytes) -> None:
    pass


# Side by side


class Differs(AssertionError):
    """Our protocol reads a stream differently, and no exception allows it."""


@dataclass(frozen=True)
class Meant:
    """An intended difference and its reason. `holds` decides by the request as h11 read it, and the stream."""

    reason: str
    holds: Callable[[Message, bytes], bool]


@dataclass(frozen=True)
class Laxer:
    """An intended acceptance of what h11 rejects, and its reason. `holds` decides by h11's reading of the stream."""

    reason: str
    holds: Callable[[StreamReading], bool]


METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
_PATH = re.compile(rb"/[\x21\x22\x24-\x7e]*")
_HOST = re.compile(rb"(?:[A-Za-z0-9_.~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_URL = re.compile(rb"https?://([^/?#@]+)(?:/([^#]*))?")
_LENGTH = rb"(?:content-length|transfer-encoding)"
_TWO_LENGTHS = re.compile(
    rb"(?s)%b.*%b|content-length:[^\r]*,|transfer-encoding.*http/1\.0|http/1\.0.*transfer-encoding" % (_LENGTH, _LENGTH)
)


def _values(message: Message, name: bytes) -> list[bytes]:
    return [value for found, value in message.headers if found == name]


def _is_proxied(message: Message, _: bytes) -> bool:
    return bool(_values(message, b"proxy-connection"))


# Accepted by h11, rejected by our protocol.
STRICTER: dict[str, Meant] = {
    "method": Meant(
        "Nothing is asked with other methods here: they are answered with 405, and CONNECT and unknown ones close.",
        lambda message, _: message.method not in METHODS,
    ),
    "version": Meant(
        "Other versions are framed otherwise, or not at all (RFC 9110, 15.6.6).",
        lambda message, _: message.version not in ("1.0", "1.1"),
    ),
    "authority": Meant(
        "A URL whose authority is another than Host's is a mistake, or an attempt to be taken for another.",
        lambda message, _: _authority(message) not in (None, *_values(message, b"host")),
    ),
    "host": Meant(
        "A Host that is no name and no address may be taken for several (RFC 9112, 3.2). h11 reads none.",
        lambda message, _: not all(_HOST.fullmatch(value) for value in _values(message, b"host")),
    ),
    "target": Meant(
        "A target is a path in ASCII without a fragment, or a URL with a valid authority (RFC 9112, 3.2).",
        lambda message, _: not _PATH.fullmatch(message.target) and _authority(message) is None,
    ),
    "framing": Meant(
        "Two lengths, a length beside chunks, and chunks in HTTP/1.0 are how requests are smuggled (RFC 9112, 6).",
        lambda _, stream: _TWO_LENGTHS.search(stream.lower()) is not None,
    ),
    "line ends": Meant(
        "A line ends with CRLF. Who takes a line feed alone for its end sees other requests (RFC 9112, 2.2).",
        lambda _, stream: re.search(rb"(?<!\r)\n", stream) is not None,
    ),
    "folded lines": Meant(
        "They are obsolete, and a server may reject them (RFC 9112, 5.2).",
        lambda _, stream: re.search(rb"\r\n[ \t]", stream) is not None,
    ),
    "characters": Meant(
        "Control characters do not belong in a header (RFC 9110, 5.5). h11 takes all but NUL and whitespace.",
        lambda _, stream: re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", stream) is not None,
    ),
    "chunks": Meant(
        "The line before a chunk is a size and well-formed extensions (RFC 9112, 7.1). h11 takes anything after a `;`.",
        lambda _, stream: re.search(rb"[0-9a-fA-F]+[ \t]*(;|[ \t]\r)", stream) is not None,
    ),
    "limits": Meant(
        "A head has at most 100 lines and 32 KB, and trailers too.",
        lambda _, stream: stream.count(b"\r\n") > 100 or len(stream) > 8_000,
    ),
}
# Accepted by our protocol, rejected by h11.
LAXER: dict[str, Laxer] = {
    "empty lines": Laxer(
        "A server should ignore empty lines before a request (RFC 9112, 2.2). llhttp ignores any ends of lines there.",
        lambda theirs: theirs.refusal.startswith(("no request line", r"illegal request line: bytearray(b'\r")),
    ),
}
# Accepted by both and read differently.
OTHERWISE: dict[str, Meant] = {
    "Proxy-Connection": Meant(
        "llhttp takes it for Connection, as it was meant by clients that sent it: a connection more or less.",
        _is_proxied,
    ),
}
# Read as RFC 9112, 3.2.2 says; h11 leaves it to its caller.
URL = "URL"


def compare_readings(stream: bytes, ours: StreamReading, theirs: StreamReading) -> str | None:
    """Return the name of an intended difference, None if there is none. Raises `Differs`."""
    meant = None
    for place, message in enumerate(theirs.messages):
        if place >= len(ours.messages):
            before = theirs.messages[place - 1] if place else None
            if before is not None and not ours.messages[-1].keeps_alive and _is_proxied(before, stream):
                return "Proxy-Connection"
            return _named(STRICTER, message, stream, ours, theirs)
        found = ours.messages[place]
        if found.method == REFUSED and message.method not in METHODS:
            meant = "method"
            continue
        if _authority(message) is not None:
            meant = URL
            _as_path(message, found)
        if _differences(found, message, is_last=place == len(ours.messages) - 1, has_more=_has_more(theirs, place)):
            return _named(OTHERWISE, message, stream, ours, theirs)
    if len(ours.messages) > len(theirs.messages):
        for name, laxer in LAXER.items():
            if laxer.holds(theirs):
                return name
        raise _differs(stream, ours, theirs)
    return meant


def _authority(message: Message) -> bytes | None:
    """Return the authority in a target that is a URL."""
    found = _URL.fullmatch(message.target)
    return found[1] if found else None


def _as_path(theirs: Message, ours: Message) -> None:
    """Replace a target that is a URL by its path, and Host by its authority."""
    found = _URL.fullmatch(theirs.target)
    assert found is not None
    theirs.target = b"/" + (found[2] or b"")
    hosts = _values(ours, b"host")
    if hosts == [found[1]]:
        theirs.headers = [header for header in theirs.headers if header[0] != b"host"]
        ours.headers = [header for header in ours.headers if header[0] != b"host"]


def _has_more(reading: StreamReading, place: int) -> bool:
    return reading.has_more or place < len(reading.messages) - 1


def _differences(ours: Message, theirs: Message, *, is_last: bool, has_more: bool) -> list[str]:
    names = ["method", "target", "version", "headers", "body"]
    ours.headers = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in ours.headers]
    # Rejected input after it ends the connection with the response before.
    if not (is_last and has_more and not ours.keeps_alive):
        names.append("keeps_alive")
    theirs.target = theirs.target.removesuffix(b"?")
    return [name for name in names if getattr(ours, name) != getattr(theirs, name)]


def _named(
    exceptions: dict[str, Meant], message: Message, stream: bytes, ours: StreamReading, theirs: StreamReading
) -> str:
    for name, exception in exceptions.items():
        if exception.holds(message, stream):
            return name
    raise _differs(stream, ours, theirs)


def _differs(stream: bytes, ours: StreamReading, theirs: StreamReading) -> Differs:
    return Differs(f"{stream!r}\n  ours: {ours}\n  h11:  {theirs}")
