"""The connections of the process: how many there may be, and how slow their clients."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from server.admission.client_address import Trusted, network_of
from server.admission.quotas import KeyedQuota
from server.admission.read_fairness import FairReader, RateLimit
from server.admission.settings import Capacity

# Of a stream, in the system's send buffer (Linux doubles it): left alone that grows to 4 MB for one who does not read.
SEND_BUFFER_BYTES = 65_536


def bound_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Keep little for a reader outside of the process, too, so that it is seen soon that it does not read."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


@dataclass(frozen=True, slots=True)
class Patience:
    """What a client may take to send and to read, in seconds and bytes.

    `head_seconds` are from its first byte (or the connection) to the end of a request's head; a body, and its reading
    of an answer, may make no progress for `silent_seconds`, and has to read `least_bytes` of an answer in that time.
    """

    head_bytes: int = 32_768
    head_lines: int = 100
    head_seconds: float = 10.0
    silent_seconds: float = 10.0
    least_bytes: int = 16_384
    linger_seconds: float = 2.0
    pipelined: int = 16
    trailer_bytes: int = 8_192
    discard_bytes: int = 65_536


class Connections:
    """How many sockets there may be: of each address, and in all. Addresses of `trusted` proxies have any number.

    `on_refusal` is told the status and the code of what the protocols refuse by themselves, and `on_closed` the code
    with which the server closed a WebSocket. WebSockets are read by `turns`, each at the `pace` of one. While the
    process is `leaving` each answer is the last of its connection.
    """

    def __init__(
        self,
        capacity: Capacity = Capacity(),  # noqa: B008 - frozen
        patience: Patience = Patience(),
        *,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
        on_closed: Callable[[int], None] = lambda _code: None,
    ) -> None:
        self.patience = patience
        self.on_refusal = on_refusal
        self.on_closed = on_closed
        self.leaving = False
        self.turns = FairReader()
        self.pace = RateLimit(capacity.websocket_messages, capacity.websocket_messages_per_second)
        self._places = KeyedQuota(
            "connections", capacity.connections, capacity.connections_per_address, "client's address"
        )
        self._trusted = Trusted(capacity.trusted_proxies)

    @property
    def open(self) -> int:
        return self._places.total

    def take(self, address: str) -> None:
        """A connection was made. Raises `Throttled` and `Unavailable` when it is one too many."""
        # A Unix socket has no addresses: whoever connects to it is a proxy.
        self._places.take(network_of(address), exempt=not address or address in self._trusted)

    def add(self, address: str) -> None:
        """A connection is carried on by another protocol."""
        self._places.add(network_of(address))

    def leave(self, address: str) -> None:
        self._places.leave(network_of(address))

    def told(self) -> dict[str, Any]:
        """The state of an application's lifespan, by which a server's protocols find this."""
        return {"connections": self}

    @staticmethod
    def of(state: Mapping[str, Any]) -> "Connections":
        """The application's, or the process's if it tells of none."""
        found = state.get("connections")
        return found if isinstance(found, Connections) else _UNTOLD


_UNTOLD = Connections()
