"""What a socket may take: of time, and of room."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Seconds, counts, and bytes that wait for a peer who does not read."""

    init_timeout: float = 5.0
    ping_every: float = 12.0
    unanswered_pings: int = 2
    send_timeout: float = 10.0
    max_operations: int = 100
    waiting_bytes: int = 262_144


LIMITS = SocketLimits()
