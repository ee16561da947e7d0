"""Ids that sort by time, and where the ids of a mutation that may be executed twice come from."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid5

from datastore.model.timestamps import epoch_ms, from_epoch_ms

VERSION, VARIANT = 0x7 << 76, 0b10 << 62
RANDOM_A, RANDOM_B = (1 << 12) - 1, (1 << 62) - 1
NAMESPACE = UUID("3f0c1d6e-58b4-4b0b-9a57-0d6d3c1e7a42")


@dataclass(frozen=True, slots=True)
class IdSource:
    """The source of a mutation's ids and keys, so that every execution of it derives the same ones.

    `moment` is when it was first asked for, to the millisecond, and `seed` any text that comes once. `again` tells that
    another process may have executed it before, in part or to its end.
    """

    requested_at: datetime
    seed: str
    is_retry: bool = False

    def id(self, name: str) -> str:
        """The id that is made at that place of the mutation, and nowhere else."""
        return str(uuid5(NAMESPACE, f"{self.seed} {name}"))


def uuid7(now: datetime, new_id: str) -> str:
    """A UUID of version 7 (RFC 9562, section 5.7): of the moment, to the millisecond.

    Its 74 bits of chance come from `new_id`, any text that comes once.
    """
    random_bits = int.from_bytes(sha256(new_id.encode()).digest()[:16])
    middle = (random_bits >> 64 & RANDOM_A) << 64
    return str(UUID(int=epoch_ms(now) << 80 | VERSION | middle | VARIANT | random_bits & RANDOM_B))


def uuid7_moment(text: str) -> datetime | None:
    """The moment of a UUID of version 7 as it is written: lower case, with hyphens. None for any other text."""
    try:
        given = UUID(text)
        # Of an id in two spellings there would be two things.
        return from_epoch_ms(given.int >> 80) if given.version == 7 and str(given) == text else None
    except (ValueError, OverflowError):
        return None
