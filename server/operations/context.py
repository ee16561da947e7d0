"""The context of an operation: the protocol between the server, which opens it, and the resolvers, which use it."""

from collections.abc import Callable
from typing import Protocol

from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.model.identity import Identity
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness


class OperationContext(Protocol):
    """The `info.context` of resolvers; every operation has its own."""

    progress: SubscriptionProgress | None

    @property
    def meter(self) -> Meter:
        """The calls that were made to the store."""

    @property
    def used_identity(self) -> bool:
        """Whether a result has depended on the identity of the caller."""

    def set_freshness(self, freshness: ReadFreshness) -> None:
        """Set which reads of other operations may serve this one. Call it before the first read."""

    def use_id_source(self, source: IdSource) -> None:
        """Set the source of new ids and keys. Call it before the first write; without it they are random."""

    def advance_watermark(self) -> None:
        """Let no later read of this process return older data: a subscription has read the current state."""

    def reset(self) -> None:
        """Discard the reads so far, before the next event of a subscription is resolved."""

    def close(self) -> None:
        """Abandon the reads that are still in flight."""


OpenContext = Callable[[Identity | None], OperationContext]
