"""The context of an operation: the protocol between the server, which opens it, and the resolvers, which use it."""

from collections.abc import Callable
from typing import Protocol

from datastore.model.identity import Identity
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness


class OperationContext(Protocol):
    """The `info.context` of resolvers; every operation has its own."""

    @property
    def meter(self) -> Meter:
        """The calls that were made to the store."""

    @property
    def used_identity(self) -> bool:
        """Whether a result has depended on the identity of the caller."""

    def use_id_source(self, source: IdSource) -> None:
        """Set the source of new ids and keys, before the first read or write. Without it they are random."""

    def advance_watermark(self) -> None:
        """Let no later read of this process return older data: a subscription has read the current state."""

    def close(self) -> None:
        """Abandon the reads that are still in flight."""


# Opens a context: for the caller, with the reads of other operations that may serve it, and whether compiled code
# executes it.
OpenContext = Callable[[Identity | None, ReadFreshness, bool], OperationContext]
