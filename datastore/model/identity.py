"""The identity of a caller: user id and role, as the verified token states them."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """The role in a caller's token: a person, an administrator, or a service (pollers, jobs, operators' tools)."""

    USER = "user"
    ADMIN = "admin"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified caller."""

    user_id: str
    role: Role
    #: Set only if the token states that the address is verified.
    email: str | None = None
    #: Epoch seconds.
    expires_at: float | None = None
