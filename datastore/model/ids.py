"""UUIDs that sort by time, and reproducible ids for mutations that may be executed twice."""

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
    """The source of a mutation's ids and keys, so that every execution of the mutation derives the same ones."""

    #: When the mutation was requested first, to the millisecond.
    requested_at: datetime
    #: A unique text.
    seed: str
    #: Whether another process may have executed the mutation before, in part or completely.
    is_retry: bool = False

    def id(self, name: str) -> str:
        """Return the id for a name. Each id of a mutation needs its own name."""
        return str(uuid5(NAMESPACE, f"{self.seed} {name}"))


def uuid7(now: datetime, new_id: str) -> str:
    """Return a UUID of version 7 (RFC 9562, section 5.7) for the moment, to the millisecond.

    Its 74 random bits are a hash of `new_id`, which is any unique text.
    """
    random_bits = int.from_bytes(sha256(new_id.encode()).digest()[:16])
    middle = (random_bits >> 64 & RANDOM_A) << 64
    return str(UUID(int=epoch_ms(now) << 80 | VERSION | middle | VARIANT | random_bits & RANDOM_B))


def uuid7_moment(text: str) -> datetime | None:
    """Return the moment of a UUID of version 7 in lower case with hyphens. Return None for any other text."""
    try:
        parsed = UUID(text)
        # Only one spelling is accepted: two spellings of one id would name two items.
        return from_epoch_ms(parsed.int >> 80) if parsed.version == 7 and str(parsed) == text else None
    except (ValueError, OverflowError):
        return None
