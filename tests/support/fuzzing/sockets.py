"""WebSocket frames and messages of graphql-transport-ws from a grammar, and what a server may say to them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from server.documents.document_cache import Documents
from server.operations.runner import Runner
from server.websocket.endpoint import GraphQLWebSocket
from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.clockwork import Clockwork
from tests.support.fuzzing.grammar import KEY, mutated
from tests.support.fuzzing.rig import FuzzedApplication, InvariantBroken
from tests.support.toy_sockets import SCHEMA, SocketContext, identify_socket_user, world

HANDSHAKE = (
    b"GET /graphql HTTP/1.1\r\nHost: here\r\nX-Request-Id: one\r\n"
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + KEY + b"\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
)
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
QUERIES = (
    *("{ hello }", "{ me }", "{ slow }", "{ patient }", "{ twice }", "mutation { change }", "subscription { count }"),
    *("subscription { count(to: 0) }", "subscription { events { number loaded } }", "subscription { held }"),
    *('subscription { failing(how: "domain") }', 'subscription { failing(how: "slow") }', "subscription { refused }"),
    *('subscription { numbers(whenSlow: "latest", size: 10) }', "subscription { nothing }", "{", "", "{ a " * 50),
    *("query A { hello } query B { me }", "{ hello " + "a: hello " * 200 + "}", "\x00", "{ hello } # \u2028\U0001f600"),
)
TOKENS = ("ada", "ada/user/5", "ada/admin", "wrong", "unlucky", "hanging", "", "x" * 3_000, "é")
IDS: tuple[Any, ...] = ("1", "2", "", "x" * 257, 1, None, ["1"], "\x00", "é")
PLACES: tuple[Any, ...] = ("a.b.c", "0.0.0", "", "~", "1", 7, None, {}, "a.b.c~" + "x" * 3_000, "a.b.c~\n")
# What a server says on a socket.
_SAID = frozenset({"connection_ack", "ping", "pong", "next", "error", "complete"})
_CODES = frozenset({1000, 1001, 1002, 1003, 1007, 1009, 1011, 1012, 1013, *range(4400, 4500)})


@contextmanager
def fresh_world() -> Iterator[None]:
    """Have nothing of the examples before in what resolvers look at: it belongs to the loop that used it first."""
    world.begin()
    yield


def serve_sockets(loop: Clockwork) -> FuzzedApplication:
    """Serve GraphQL over WebSocket, with a small schema, beside the application that writes down what it is asked."""
    app = GraphQLWebSocket(Runner(Documents(SCHEMA), SocketContext), identify_socket_user, clock=world.clock)
    return FuzzedApplication(sockets=app, at_the_end=check_world, during=fresh_world)


def frames(choices: Choices) -> bytes:
    """Return what a client sends on a WebSocket: mostly what the protocol allows."""
    parts = [frame(choices, TEXT, b'{"type":"connection_init"}')] if not choices.rng(2) else []
    parts += [_frames(choices) for _ in range(1 + choices.below(8))]
    sent = b"".join(parts)
    if choices.rng(1):
        sent *= 2 + choices.below(30)
    while choices.rng(4):
        sent = mutated(choices, sent)
    return sent


def _frames(choices: Choices) -> bytes:
    match choices.below(8):
        case 0 | 1 | 2 | 3:
            return frame(choices, TEXT, message(choices))
        case 4:
            return _in_parts(choices, message(choices))
        case 5:
            return frame(choices, choices.pick((PING, PONG)), choices.octets(20))
        case 6:
            code = choices.pick((1000, 1001, 1005, 999, 3000, 4999, 5000, 0)).to_bytes(2, "big")
            return frame(choices, CLOSE, choices.pick((code, b"", b"\x03", code + b"bye", code + b"\xff", code * 63)))
        case _:
            opcode = choices.pick((BINARY, CONTINUATION, 0x3, 0x7, 0xB, 0xF))
            return frame(choices, opcode, choices.pick((b"", b"{}", b"\xff\xfe", b"x" * 70_000)))


def _in_parts(choices: Choices, data: bytes) -> bytes:
    """Return a message in several frames, with a ping between them."""
    size = choices.pick((10, 1, 50, 1_000))
    pieces = [data[at : at + size] for at in range(0, len(data), size)][:2_000] or [b""]
    sent = [frame(choices, TEXT if at == 0 else CONTINUATION, piece, final=False) for at, piece in enumerate(pieces)]
    sent.insert(choices.below(len(sent) + 1), frame(choices, PING, b"?"))
    return b"".join([*sent, frame(choices, CONTINUATION, b"", final=not choices.rng(2))])


def frame(choices: Choices, opcode: int, data: bytes, *, final: bool = True) -> bytes:
    """Return a frame of a client, perhaps with a wrong bit, no mask, or its length in more bytes than it needs."""
    first = (0x80 if final else 0) | opcode | (choices.pick((0x40, 0x20, 0x10)) if choices.rng(1, 64) else 0)
    masked = 0 if choices.rng(1, 64) else 0x80
    length = len(data)
    if length < 126 and not choices.rng(1, 64):
        size = bytes([masked | length])
    elif length < 65_536 and not choices.rng(1, 32):
        size = bytes([masked | 126]) + length.to_bytes(2, "big")
    else:
        size = bytes([masked | 127]) + length.to_bytes(8, "big")
    mask = choices.pick((b"\0\0\0\0", b"\1\2\3\4", b"\xff\xff\xff\xff"))
    repeated = (mask * (length // 4 + 1))[:length]
    hidden = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
    return bytes([first]) + size + (mask + hidden if masked else data)


def message(choices: Choices) -> bytes:
    """Return a message of graphql-transport-ws, or something like it."""
    match choices.below(10):
        case 0 | 1 | 2 | 3:
            said: Any = {"id": _id(choices), "type": "subscribe", "payload": operation_json(choices)}
        case 4:
            said = {"id": _id(choices), "type": "complete"}
        case 5:
            said = {"type": choices.pick(("ping", "pong")), "payload": choices.pick(_payloads(choices))}
        case 6:
            said = {"type": "connection_init", "payload": choices.pick(_payloads(choices))}
        case 7:
            said = {"type": choices.pick(("next", "error", "connection_ack", "", 1, None, [], {}, "subscribe\x00"))}
        case _:
            return choices.pick(
                (
                    b"",
                    b"{}",
                    b"[]",
                    b"null",
                    b'"',
                    b"{" * 5_000,
                    b"[" * 60_000,
                    b"1e999",
                    b"\xff",
                    b'{"type":"ping"',
                    b" ",
                )
            )
    return json.dumps(said).encode()


def _id(choices: Choices) -> Any:
    return choices.usually("1", IDS, 6)


def _payloads(choices: Choices) -> tuple[Any, ...]:
    token = {"Authorization": f"Bearer {choices.pick(TOKENS)}"}
    return (None, {}, token, {"Authorization": choices.pick(TOKENS)}, {"Authorization": 1}, [], "x", {"a": "x" * 9_000})


def operation_json(choices: Choices) -> Any:
    """Return the JSON of an operation, or something like it."""
    asked: dict[str, Any] = {"query": choices.usually(choices.pick(QUERIES), (None, 1, [], {}, "{ hello }" * 900), 1)}
    if choices.rng(3):
        asked["variables"] = choices.pick(({}, {"to": 1}, [], 1, None, {"a": [[[[]]]] * 30}, {"": {}}, {"to": 2**70}))
    if choices.rng(2):
        asked["operationName"] = choices.pick(("A", "", None, 1, "B", "x" * 500, "\udfff"))
    if choices.rng(4):
        extensions: tuple[Any, ...] = (
            {"resumeAfter": choices.pick(PLACES)},
            {"persistedQuery": choices.pick((None, {}, {"sha256Hash": 1}, {"version": 1, "sha256Hash": "x" * 64}))},
            {"idempotencyKey": choices.pick(("k", 1, "", "x" * 500, None))},
            *(None, [], 1, {}),
        )
        asked["extensions"] = choices.pick(extensions)
    if choices.rng(1):
        asked["documentId"] = choices.pick(("x", "", 1, None, "a@b.example" * 40))
    return asked


# What a server says


def check_frames(said: bytes) -> None:
    """Hold that what a server says after its handshake are whole frames, unmasked, and the last of them one close."""
    at = 0
    closed = False
    while at < len(said):
        if closed:
            raise InvariantBroken("frame after close", repr(said[at : at + 100]))
        first, size, start = _frame_head(said, at)
        if start + size > len(said):
            return  # the connection ended within it
        data, at = said[start : start + size], start + size
        closed = first == 0x80 | CLOSE
        _CHECKS.get(first, _unknown)(data)


def _frame_head(said: bytes, at: int) -> tuple[int, int, int]:
    head = said[at : at + 10].ljust(10, b"\0")
    first, length = head[0], head[1]
    if length & 0x80:
        raise InvariantBroken("masked frame", repr(head))
    if length < 126:
        return first, length, at + 2
    wide = 2 if length == 126 else 8
    size = int.from_bytes(head[2 : 2 + wide], "big")
    if size < (126 if wide == 2 else 65_536):
        raise InvariantBroken("long length", repr(head))
    return first, size, at + 2 + wide


def _unknown(data: bytes) -> None:
    raise InvariantBroken("frame of another kind", repr(data[:100]))


def _check_text(data: bytes) -> None:
    payload = json.loads(data.decode())
    if not isinstance(payload, dict) or payload.get("type") not in _SAID:
        raise InvariantBroken("message of another kind", repr(payload))
    # An internal error is logged as well, where the rig finds it unless it is deliberate.


def _check_close(data: bytes) -> None:
    code = int.from_bytes(data[:2], "big")
    if data and (code not in _CODES and not 3000 <= code < 5000):
        raise InvariantBroken("close code", str(code))
    data[2:].decode()
    if len(data) > 125 or code == 4500:
        raise InvariantBroken("close reason", repr(data))


_CHECKS: dict[int, Callable[[bytes], None]] = {
    0x80 | TEXT: _check_text,
    0x80 | CLOSE: _check_close,
    0x80 | PONG: lambda _: None,
    0x80 | PING: lambda _: None,
}


def check_world() -> None:
    """Hold that no source of events is left open."""
    if world.held:
        held, world.opened, world.closed = world.held, 0, 0
        raise InvariantBroken("source left open", str(held))
