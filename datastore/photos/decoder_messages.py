"""Messages between a gateway and its decoder processes, over pipes.

A message is a JSON object and a list of byte strings. In front of them stand their lengths, which the reader checks
before it takes memory: a decoder that was taken over by its input can send anything.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

MOST_FACTS, MOST_PARTS = 65_536, 4
_COUNTS = struct.Struct("!IB")  # the length of the JSON, and how many byte strings follow
_LENGTH = struct.Struct("!I")


class BadMessage(Exception):
    """The other process sent something that is no message, or too long for one."""


def write_message(stream: BinaryIO, facts: Mapping[str, Any], *parts: bytes) -> None:
    """Send a message. Raises `OSError` when the other process has ended."""
    encoded = json.dumps(facts).encode()
    stream.write(_COUNTS.pack(len(encoded), len(parts)) + encoded)
    for part in parts:
        stream.write(_LENGTH.pack(len(part)))
        stream.write(part)
    stream.flush()


def read_message(stream: BinaryIO, most_bytes: int) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the next message, or None when the other process has closed its end.

    All byte strings together have at most `most_bytes`. Raises `BadMessage`, also for one that breaks off.
    """
    counts = stream.read(_COUNTS.size)
    if not counts:
        return None
    length, number = _COUNTS.unpack(_whole(counts, _COUNTS.size))
    if length > MOST_FACTS or number > MOST_PARTS:
        raise BadMessage(f"{length} bytes of JSON and {number} parts")
    facts = _facts(_whole(stream.read(length), length))
    parts, left = [], most_bytes
    for _ in range(number):
        (size,) = _LENGTH.unpack(_whole(stream.read(_LENGTH.size), _LENGTH.size))
        left -= size
        if left < 0:
            raise BadMessage(f"more than {most_bytes} bytes")
        parts.append(_whole(stream.read(size), size))
    return facts, parts


def _whole(content: bytes, length: int) -> bytes:
    if len(content) < length:
        raise BadMessage("it breaks off")
    return content


def _facts(encoded: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(encoded)
    except (ValueError, RecursionError) as problem:
        raise BadMessage("no JSON") from problem
    if not isinstance(facts, dict):
        raise BadMessage("no object")
    return facts
