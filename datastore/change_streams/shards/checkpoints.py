"""Checkpoints: the positions up to which the shards of a stream were read, as texts that are valid in every process.

A position is the sequence number of the last record. Before the first record it is `START` for a shard that is read
from its first record. For a shard that was joined at its end it is the iterator and the `origin` of that joining.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

START = ""
_MARK = "@"


@dataclass(frozen=True, slots=True)
class Reached:
    """The positions up to which a stream was read."""

    #: The ARN of the stream.
    stream: str
    #: The position in each started shard that is still listed.
    shards: Mapping[str, str]
    #: The known parents of the shards. They are not compared.
    parents: Mapping[str, str | None] = field(default_factory=dict, compare=False)


def joined(origin: str, iterator: str) -> str:
    """Return the position of a shard joined at its end without a record since. Iterators of one `origin` are equal."""
    return f"{_MARK}{origin} {iterator}"


def joined_by(position: str) -> tuple[str, str] | None:
    """Return the origin and the iterator of a `joined` position; None for others."""
    if not position.startswith(_MARK):
        return None
    origin, _, iterator = position[1:].partition(" ")
    return origin, iterator


def sequence_at(position: str | None) -> int | None:
    """Return the sequence number of a position; None for a position before the first record."""
    return int(position) if position and position.isascii() and position.isdigit() else None


def lacks(known: str | None, target: str | None) -> bool:
    """Return whether there may be a record after `known` and up to `target`."""
    if not target:
        return False
    sequence, reached = sequence_at(target), sequence_at(known)
    if sequence is not None:
        return reached is None or reached < sequence
    known_joining, target_joining = joined_by(known or START), joined_by(target)
    return known_joining is None or target_joining is None or known_joining[0] != target_joining[0]


def lacking(known: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Return whether `lacks` holds for any shard of `target`."""
    return any(lacks(known.get(shard), position) for shard, position in target.items())
