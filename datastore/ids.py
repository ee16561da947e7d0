"""Ids that sort by time: UUIDs of version 7 (RFC 9562, section 5.7)."""

from datetime import datetime
from hashlib import sha256
from uuid import UUID

from datastore.moments import epoch_ms, from_epoch_ms

VERSION, VARIANT = 0x7 << 76, 0b10 << 62
RANDOM_A, RANDOM_B = (1 << 12) - 1, (1 << 62) - 1


def uuid7(now: datetime, new_id: str) -> str:
    """The id of the moment, to the millisecond. Its 74 bits of chance come from `new_id`, any text that comes once."""
    chance = int.from_bytes(sha256(new_id.encode()).digest()[:16])
    middle = (chance >> 64 & RANDOM_A) << 64
    return str(UUID(int=epoch_ms(now) << 80 | VERSION | middle | VARIANT | chance & RANDOM_B))


def uuid7_moment(text: str) -> datetime | None:
    """The moment of a UUID of version 7 as it is written: lower case, with hyphens. None for any other text."""
    try:
        given = UUID(text)
        # Of an id in two spellings there would be two things.
        return from_epoch_ms(given.int >> 80) if given.version == 7 and str(given) == text else None
    except (ValueError, OverflowError):
        return None
