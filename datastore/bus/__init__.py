"""The bus: changes of tables relayed through Redis Streams, so that one process reads each table's stream for all."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datastore.bus.host import Bus


def bus_at(url: str | None, prefix: str) -> "Bus | None":
    """The bus at a URL, for the tables of a prefix; none without a URL."""
    if url is None:
        return None
    from datastore.bus.host import Bus  # its library, for those only who use it

    return Bus(url, prefix)
