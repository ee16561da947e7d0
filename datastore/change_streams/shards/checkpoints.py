"""Where the shards of a stream have been read to, as texts that any process can go on from.

A position is the sequence number of the last record; before there is one, the iterator that stands where the shard was
joined, with the `origin` of that joining; `START` for a shard that is read from its first record on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

START = ""
_MARK = "@"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a stream (its ARN) has been read: the position in each shard that has been begun and is still listed.

    `parents` are those of the shards, where they are known: they are no part of how far it has been read.
    """

    stream: str
    shards: Mapping[str, str]
    parents: Mapping[str, str | None] = field(default_factory=dict, compare=False)


def joined(origin: str, iterator: str) -> str:
    """No record has come since the shard was joined at its end. Iterators of one `origin` enclose no record."""
    return f"{_MARK}{origin} {iterator}"


def joined_by(position: str) -> tuple[str, str] | None:
    """The origin and the iterator of a position that `joined` made; None for others."""
    if not position.startswith(_MARK):
        return None
    origin, _, iterator = position[1:].partition(" ")
    return origin, iterator


def sequence_at(position: str | None) -> int | None:
    return int(position) if position and position.isascii() and position.isdigit() else None


def lacks(known: str | None, noted: str | None) -> bool:
    """Whether there may be a record up to `noted` that who has read to `known` has not seen."""
    if not noted:
        return False
    sequence, reached = sequence_at(noted), sequence_at(known)
    if sequence is not None:
        return reached is None or reached < sequence
    ours, theirs = joined_by(known or START), joined_by(noted)
    return ours is None or theirs is None or ours[0] != theirs[0]


def lacking(known: Mapping[str, str], noted: Mapping[str, str]) -> bool:
    """The same of all shards that are noted."""
    return any(lacks(known.get(shard), position) for shard, position in noted.items())
