"""Resume tokens: the position in each open shard of a table's stream, which clients hold between two connections.

A token names no ended shard of which a child was started: the child implies that the parent was read to its end. Any
process can continue from a token, since it does not depend on the process that created it.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import starmap

from datastore.change_streams.shards.checkpoints import START, joined, joined_by, sequence_at

# A token of more open shards would not fit into a header. A shard of AWS takes 16 bytes.
MAX_SHARDS = 128
KEY_BYTES = 6
ORIGIN_BYTES = 4
MAX_SEQUENCE_DIGITS = 254  # AWS writes up to 40 digits
# The number of moves after which a new set of positions is stored.
MOVES = 64
_VERSION = 1
_HEAD_BYTES = 1 + KEY_BYTES + 4
_IDLE = 255
_SIZES = [((10**digits - 1).bit_length() + 7) // 8 for digits in range(MAX_SEQUENCE_DIGITS + 1)]

# The name of a shard in positions.
Key = bytes
Positions = Mapping[Key, str]


@lru_cache(maxsize=8192)
def key_of(stream: str, shard: str) -> Key:
    """Return the key of a shard: another stream of the same table may have shards with the same names."""
    return blake2b(f"{stream}/{shard}".encode(), digest_size=KEY_BYTES).digest()


def idle(origin: str, seconds: float) -> str:
    """Return the position in a shard joined at its end at a time (seconds since 1970) that has shown no record.

    `origin` identifies the joining: there is no record between two positions of the same origin.
    """
    return joined(blake2b(origin.encode(), digest_size=ORIGIN_BYTES).hexdigest(), str(int(seconds)))


def idle_again(position: str, seconds: int) -> str:
    """Return an `idle` position of the same origin at another time."""
    parts = joined_by(position)
    return joined("" if parts is None else parts[0], str(max(0, seconds)))


def idle_since(position: str) -> int | None:
    """Return the time of an `idle` position; None for others."""
    parts = joined_by(position)
    return None if parts is None else int(parts[1])


class Moves:
    """A set of positions, followed by a few moves of single shards.

    The positions after a move are computed on demand: storing them would take too much memory.
    """

    __slots__ = ("_at", "_base", "_encoded", "_found", "moves")

    def __init__(self, base: Positions) -> None:
        self._base = dict(base)  # the caller may change its mapping
        self.moves: list[tuple[Key, str]] = []
        self._at, self._found = 0, dict(base)
        # The encoded positions after a number of moves: many subscribers receive the same event.
        self._encoded: tuple[int, bytes] | None = None

    def after(self, count: int) -> Positions:
        """Return the positions after the first `moves` moves: a mapping that is valid until the next call."""
        if count < self._at:
            self._at, self._found = 0, dict(self._base)
        self._found.update(self.moves[self._at : count])
        self._at = count
        return self._found

    def encoded(self, count: int) -> bytes:
        """Return the encoded positions after the first `moves` moves; nothing for more than `MAX_SHARDS`."""
        if self._encoded is None or self._encoded[0] != count:
            positions = self.after(count)
            shards = () if len(positions) > MAX_SHARDS else sorted(positions.items())
            self._encoded = count, b"".join(starmap(_encoded, shards))
        return self._encoded[1]


class ResumeToken:
    """A position in each open shard of a stream."""

    #: The key of the stream.
    stream: Key
    #: The time of the last change (seconds since 1970), which orders tokens approximately.
    time: int

    __slots__ = ("_count", "_moves", "stream", "time")

    def __init__(self, stream: Key, time: int, moves: Moves, count: int = 0) -> None:
        self.stream = stream
        self.time = time
        self._moves = moves
        self._count = count

    @classmethod
    def at(cls, stream: Key, time: int, positions: Positions) -> "ResumeToken":
        return cls(stream, time, Moves(positions))

    @property
    def positions(self) -> dict[Key, str]:
        return dict(self._moves.after(self._count))

    def encode(self) -> bytes:
        """Return the bytes of the token. They name no shard if there are more than `MAX_SHARDS`."""
        return bytes((_VERSION,)) + self.stream + self.time.to_bytes(4, "big") + self._moves.encoded(self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResumeToken) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


# A token from which no process can continue.
UNKNOWN = ResumeToken.at(bytes(KEY_BYTES), 0, {})


def decode(content: bytes) -> ResumeToken:
    """Return the token that `encode` encoded. Raises `ValueError`."""
    if len(content) < _HEAD_BYTES or content[0] != _VERSION:
        raise ValueError("This is not an encoded resume token.")
    stream, time = content[1 : 1 + KEY_BYTES], int.from_bytes(content[1 + KEY_BYTES : _HEAD_BYTES], "big")
    positions: dict[Key, str] = {}
    at = _HEAD_BYTES
    while at < len(content):
        key, kind = content[at : at + KEY_BYTES], content[at + KEY_BYTES : at + KEY_BYTES + 1]
        at += KEY_BYTES + 1
        if not kind or key in positions or len(positions) == MAX_SHARDS:
            raise ValueError("This is not an encoded resume token.")
        size = ORIGIN_BYTES + 4 if kind[0] == _IDLE else _size(kind[0])
        body = content[at : at + size]
        if len(body) < size:
            raise ValueError("This is not an encoded resume token.")
        positions[key] = _decoded(kind[0], body)
        at += size
    return ResumeToken.at(stream, time, positions)


def _size(digits: int) -> int:
    if digits > MAX_SEQUENCE_DIGITS:
        raise ValueError("This is not a position.")
    size: int = _SIZES[digits]
    return size


@lru_cache(maxsize=8192)  # from one encoded token to the next, one shard of many has moved
def _encoded(key: Key, position: str) -> bytes:
    parts = joined_by(position)
    if parts is not None:
        return key + bytes((_IDLE,)) + bytes.fromhex(parts[0]) + int(parts[1]).to_bytes(4, "big")
    digits = len(position)
    return key + bytes((digits,)) + (sequence_at(position) or 0).to_bytes(_SIZES[digits], "big")


def _decoded(kind: int, body: bytes) -> str:
    if kind == _IDLE:
        return joined(body[:ORIGIN_BYTES].hex(), str(int.from_bytes(body[ORIGIN_BYTES:], "big")))
    if kind == 0:
        return START
    text = str(int.from_bytes(body, "big")).zfill(kind)
    if len(text) > kind:
        raise ValueError("This is not a position.")
    return text
