"""WebSocket frames as a server reads and writes them (RFC 6455, section 5)."""

from collections.abc import Callable
from typing import NamedTuple

from websockets.exceptions import ProtocolError
from websockets.frames import Close

try:
    from websockets.speedups import apply_mask
except ImportError:  # the compiled version is not available on every platform
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_OPCODES = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
# 5.5: the limit of a control frame. A close frame begins with its code, in two bytes.
MAX_CONTROL_BYTES = 125
MAX_REASON_BYTES = MAX_CONTROL_BYTES - 2

unmask: Callable[[bytes | bytearray, bytes | bytearray], bytes] = apply_mask


class Fault(Exception):
    """A violation of the protocol by the peer: the connection is closed with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Frame(NamedTuple):
    """A frame, and the index of its end in the input."""

    opcode: int
    final: bool
    data: bytes
    end: int


def read_frame(read: bytearray, start: int, stop: int, room: int) -> Frame | None:
    """Return the frame at `start`; None while it is incomplete. `stop` is the end of the input.

    `room` is the number of bytes that its message may still have. Raises `Fault`.
    """
    if stop - start < 2:
        return None
    first, second = read[start], read[start + 1]
    opcode = first & 0x0F
    if first & _RESERVED or opcode not in _OPCODES:
        raise Fault(1002, "a frame of an unknown kind")
    if not second & _MASKED:
        raise Fault(1002, "a frame without a mask")
    length, at = second & 0x7F, start + 2
    if opcode >= CLOSE and (length > MAX_CONTROL_BYTES or not first & _FINAL):
        raise Fault(1002, "a control frame that is too long, or in parts")
    if length >= 126:
        size = 2 if length == 126 else 8
        if stop - at < size:
            return None
        length, shortest = int.from_bytes(read[at : at + size], "big"), 126 if size == 2 else 65_536
        at += size
        if length < shortest or length >> 63:
            raise Fault(1002, "a frame whose length is not in the shortest form, or has 64 bits")
    if length > room and opcode < CLOSE:
        raise Fault(1009, f"a frame of {length:,} bytes, where the message may have {room:,} more")
    end = at + 4 + length
    if stop < end:
        return None
    data = unmask(read[at + 4 : end], read[at : at + 4]) if length else b""
    return Frame(opcode, first >= _FINAL, data, end)


def code_of(data: bytes) -> int:
    """Return the code of a close frame; 1005 without one (RFC 6455, 7.1.5). Raises `Fault`."""
    try:
        return Close.parse(data).code
    except ProtocolError:
        raise Fault(1002, "a close frame with an invalid code") from None
    except UnicodeDecodeError:
        raise Fault(1007, "a close frame whose reason is not UTF-8") from None


def head(opcode: int, length: int) -> bytes:
    """Return the header of an unfragmented frame. A server does not mask."""
    if length < 126:
        return bytes((_FINAL | opcode, length))
    if length < 65_536:
        return bytes((_FINAL | opcode, 126, length >> 8, length & 0xFF))
    return bytes((_FINAL | opcode, 127)) + length.to_bytes(8, "big")


# Prepared heads of text frames by length: a broadcast event needs one per member.
TEXT_HEADS = tuple(head(TEXT, length) for length in range(4096))


def frame(opcode: int, data: bytes) -> bytes:
    return head(opcode, len(data)) + data


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame. A `reason` that is too long is cut."""
    cut = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    return frame(CLOSE, code.to_bytes(2, "big") + cut.encode())
