"""The relay of tables' changes through Redis Streams (the bus): one process reads each stream for all others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datastore.change_streams.relay.bus import Bus


class RelayMetrics(Protocol):
    """The registry of metrics: each has a name, a help text and a function that reads its value."""

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None: ...

    def count(self, name: str, help_: str, read: Callable[[], float]) -> None: ...


def bus_at(url: str | None, prefix: str, metrics: RelayMetrics) -> "Bus | None":
    """Return the bus at a URL for the tables of a prefix, or None without a URL."""
    if url is None:
        return None
    from datastore.change_streams.relay.bus import Bus  # imports redis only where a bus is used

    bus = Bus(url, prefix)
    bus.register_metrics(metrics)
    return bus
