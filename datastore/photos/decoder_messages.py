"""Messages between a gateway and its decoder processes, over pipes.

A message is a JSON object and a list of byte strings, preceded by their lengths. The reader checks the lengths before
it allocates memory: a decoder that its input has taken over can send anything.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

MAX_JSON_BYTES, MAX_PARTS = 65_536, 4
_COUNTS = struct.Struct("!IB")  # the length of the JSON, and the number of byte strings
_LENGTH = struct.Struct("!I")


class BadMessage(Exception):
    """The other process sent an invalid or oversized message."""


def write_message(stream: BinaryIO, facts: Mapping[str, Any], *parts: bytes) -> None:
    """Send a message. Raises `OSError` if the other process has ended."""
    encoded = json.dumps(facts).encode()
    stream.write(_COUNTS.pack(len(encoded), len(parts)) + encoded)
    for part in parts:
        stream.write(_LENGTH.pack(len(part)))
        stream.write(part)
    stream.flush()


def read_message(stream: BinaryIO, max_bytes: int) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the next message, or None if the other process has closed its end.

    Raises `BadMessage` for an invalid or incomplete message, and if all byte strings together exceed `max_bytes`.
    """
    counts = stream.read(_COUNTS.size)
    if not counts:
        return None
    length, number = _COUNTS.unpack(_complete(counts, _COUNTS.size))
    if length > MAX_JSON_BYTES or number > MAX_PARTS:
        raise BadMessage(f"{length} bytes of JSON and {number} parts")
    facts = _facts(_complete(stream.read(length), length))
    parts, remaining = [], max_bytes
    for _ in range(number):
        (size,) = _LENGTH.unpack(_complete(stream.read(_LENGTH.size), _LENGTH.size))
        remaining -= size
        if remaining < 0:
            raise BadMessage(f"more than {max_bytes} bytes")
        parts.append(_complete(stream.read(size), size))
    return facts, parts


def _complete(content: bytes, length: int) -> bytes:
    if len(content) < length:
        raise BadMessage("incomplete message")
    return content


def _facts(encoded: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(encoded)
    except (ValueError, RecursionError) as problem:
        raise BadMessage("no JSON") from problem
    if not isinstance(facts, dict):
        raise BadMessage("no object")
    return facts
