"""Protocols of a source of a table's changes, and of the sink that receives them."""

from collections.abc import Mapping
from typing import Protocol

from datastore.change_streams.change import Change


class ChangeSink(Protocol):
    """A receiver of a table's changes, in order. No method waits."""

    def start_epoch(
        self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float
    ) -> None:
        """Start an epoch at these positions (see `checkpoints`) of the shards of a stream (its ARN).

        Another stream invalidates all earlier positions. Known shards continue at their positions. A source calls this
        before the first change, and calls `lost` instead if changes were lost. `parents` has the parent of each shard,
        or None. A shard that was joined at its end was joined at `since` (seconds since 1970) or later, or was read
        without a record up to that time.
        """

    def start_shard(self, shard: str, parent: str | None) -> None:
        """Start a shard at its first record, after its parent was read to its end."""

    def deliver(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        """Receive a change of a shard. With `is_past` only clients that resume receive it; it is not new."""

    def read_empty(self, shard: str) -> None:
        """Note that a read of the shard returned no records."""

    def lost(self, problem: Exception) -> None:
        """Receive the error that ended the source. A source that is stopped does not call it."""


class ChangeSource(Protocol):
    """A source of a table's changes, which calls a sink until it is stopped or fails with `problem`."""

    problem: Exception | None

    @property
    def is_attached(self) -> bool:
        """Whether the sink will receive every write from now on."""

    async def attached(self) -> None:
        """Return once `is_attached`. Raises the error that ended the source."""

    async def stop(self) -> None: ...
