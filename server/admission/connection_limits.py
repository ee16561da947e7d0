"""Limits of connections: their number, the speed of their clients, and the file descriptors that they use."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from datastore.primitives.token_bucket import TokenBucket
from server.admission.client_address import TrustedNetworks, network_of
from server.admission.fairness import FairReader
from server.admission.quotas import KeyedQuota
from server.admission.settings import Capacity

# The size of a connection's send buffer in the kernel (Linux doubles it). Without this limit it grows to 4 MB while the
# client does not read.
SEND_BUFFER_BYTES = 65_536
# File descriptors for listeners, the engine, DynamoDB, Redis, files, and refused connections until they are closed.
RESERVED_DESCRIPTORS = 200
# The paths of health, which are served beyond the quotas of connections.
PROBE_PATHS = ("/healthz", "/readyz")
# The connections beyond the quotas that may be open for a request of health, in total and for each address. They are
# among RESERVED_DESCRIPTORS.
PROBES, PROBES_PER_ADDRESS = 100, 50
# The limit of file descriptors to set if the system sets none.
DEFAULT_DESCRIPTORS = 65_536


_log = logging.getLogger(__name__)


def bound_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Bound the data that the kernel buffers for a client, to detect soon that the client does not read."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


@dataclass(frozen=True, slots=True)
class HttpConnectionLimits:
    """Limits of an HTTP connection: the time in which a client has to send and read, and the bytes that it may send."""

    head_bytes: int = 32_768
    head_lines: int = 100
    #: The longest time from the first byte of a request, or from the connection, to the end of the request's head.
    head_seconds: float = 10.0
    #: The longest time without progress in sending a body or in reading a response.
    silent_seconds: float = 10.0
    #: The least bytes of a response that a client has to read within `silent_seconds`.
    least_bytes: int = 16_384
    linger_seconds: float = 2.0
    pipelined: int = 16
    trailer_bytes: int = 8_192
    discard_bytes: int = 65_536


class Connections:
    """The quotas of connections, per address and in total. Addresses of trusted proxies have no quota of their own.

    The protocols call `on_refusal` with the status and the code of a request that they refuse, and `on_closed` with the
    close code of a WebSocket that the server closes.
    """

    def __init__(
        self,
        capacity: Capacity = Capacity(),  # noqa: B008 - frozen
        http_limits: HttpConnectionLimits = HttpConnectionLimits(),
        *,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
        on_closed: Callable[[int], None] = lambda _code: None,
    ) -> None:
        self.http_limits = http_limits
        self.on_refusal = on_refusal
        self.on_closed = on_closed
        #: Whether the process is shutting down. Each response is then the last of its connection.
        self.draining = False
        #: The order in which WebSockets are read.
        self.fair_reader = FairReader()
        self._message_rate = capacity.websocket_messages, capacity.websocket_messages_per_second
        self._quota = KeyedQuota(
            "connections", capacity.connections, capacity.connections_per_address, "client's address"
        )
        self._probes = KeyedQuota("connections for probes", PROBES, PROBES_PER_ADDRESS, "client's address")
        self._trusted = TrustedNetworks(capacity.trusted_proxies)

    def message_bucket(self, now: float) -> TokenBucket:
        """Return the token bucket of the messages of a WebSocket. A burst or rate of 0 is unlimited."""
        burst, per_second = self._message_rate
        return TokenBucket(burst, per_second, now) if burst and per_second else TokenBucket(inf, 1.0, now)

    @property
    def open(self) -> int:
        return self._quota.total

    def begin_draining(self) -> None:
        """Make each response from now on the last of its connection."""
        self.draining = True

    def acquire(self, address: str) -> None:
        """Count a new connection. Raises `Throttled` or `Unavailable` beyond a quota."""
        # A Unix socket has no addresses: its client is a proxy.
        self._quota.acquire(network_of(address), exempt=not address or address in self._trusted)

    def adopt(self, address: str) -> None:
        """Count a connection that another protocol takes over. No quota applies."""
        self._quota.add(network_of(address))

    def release(self, address: str) -> None:
        self._quota.release(network_of(address))

    def acquire_probe(self, address: str) -> None:
        """Count a connection beyond a quota. Raises `Throttled` or `Unavailable` if too many are open."""
        self._probes.acquire(network_of(address))

    def release_probe(self, address: str) -> None:
        self._probes.release(network_of(address))

    def lifespan_state(self) -> dict[str, Any]:
        """Return the lifespan state through which the protocols receive this object."""
        return {"connections": self}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Connections":
        """Return the object in a lifespan state, or the default of the process if the state has none."""
        connections = state.get("connections")
        return connections if isinstance(connections, Connections) else _DEFAULT


_DEFAULT = Connections()


def raise_descriptor_limit() -> int | None:
    """Raise this process's limit of file descriptors as far as allowed. Return the limit, or None if there is none."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    target = DEFAULT_DESCRIPTORS if hard == unlimited else hard
    if soft == unlimited or soft >= target:
        return None if soft == unlimited else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # macOS has another limit below the hard limit
        return soft
    return target


def within_descriptors(capacity: Capacity, descriptors: int | None) -> Capacity:
    """Return `capacity` with at most as many connections as the file descriptors allow. Log a reduction."""
    if descriptors is None:
        return capacity
    most = max(descriptors - RESERVED_DESCRIPTORS, descriptors // 2)
    if 0 < capacity.connections <= most:
        return capacity
    if capacity.connections:
        _log.warning(
            "At most %s connections are accepted instead of %s (GATEWAY_MAX_CONNECTIONS): "
            "the process may open %s files. Raise `ulimit -n`",
            *(f"{count:,}" for count in (most, capacity.connections, descriptors)),
        )
    return replace(capacity, connections=most)
