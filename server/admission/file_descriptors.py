"""File descriptors: each connection is one, and a process without any left accepts nobody and cannot say so."""

import logging
import sys
from dataclasses import replace

from server.admission.settings import Capacity

# For listeners, the engine, DynamoDB, Redis, files, and connections that are refused and linger.
KEPT = 200
# Where a system sets no limit.
ENOUGH = 65_536

_log = logging.getLogger(__name__)


def most_descriptors() -> int | None:
    """How many this process may have, once it has raised that as far as it may; None where nobody counts them."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = ENOUGH if hard == unlimited else hard
    if soft == unlimited or soft >= wanted:
        return None if soft == unlimited else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has a limit of its own below the hard one
        return soft
    return wanted


def fitting(capacity: Capacity, descriptors: int | None) -> Capacity:
    """The capacity with no more connections than there are descriptors for; the log tells of fewer than configured."""
    if descriptors is None:
        return capacity
    most = max(descriptors - KEPT, descriptors // 2)
    if 0 < capacity.connections <= most:
        return capacity
    if capacity.connections:
        _log.warning(
            "At most %s connections, and not %s (GATEWAY_MAX_CONNECTIONS): the process may open %s files (ulimit -n)",
            *(f"{count:,}" for count in (most, capacity.connections, descriptors)),
        )
    return replace(capacity, connections=most)
