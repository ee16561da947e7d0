"""The bus: changes of tables relayed through Redis Streams, so that one process reads each table's stream for all."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datastore.change_streams.relay.bus import Bus


class RelayMetrics(Protocol):
    """Where figures are shown: the name of each, what it is, and how it is read."""

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None: ...

    def count(self, name: str, help_: str, read: Callable[[], float]) -> None: ...


def bus_at(url: str | None, prefix: str, figures: RelayMetrics) -> "Bus | None":
    """The bus at a URL, for the tables of a prefix; none without a URL."""
    if url is None:
        return None
    from datastore.change_streams.relay.bus import Bus  # its library, for those only who use it

    bus = Bus(url, prefix)
    for name, (meaning, read) in bus.gauges().items():
        figures.gauge(name, meaning, read)
    for name, (meaning, read) in bus.counts().items():
        figures.count(name, meaning, read)
    return bus
