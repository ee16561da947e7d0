"""What brings a table's changes, and what is told them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datastore.change_streams.shards.stream_reader import Change


class Sink(Protocol):
    """Who is told a table's changes, in order. Nothing here waits."""

    def begin(self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float) -> None:
        """Begin after these positions (see `checkpoints`) of the shards of a stream (its ARN).

        Another stream invalidates all that came before. Shards that are known continue where they are.
        Called before the first change, and never when changes were lost: that is `lost`. `parents` are those of the
        shards, None for one that has no parent. Shards that were joined at their end were joined no earlier than at
        `since` (seconds since 1970), or read without a record up to then.
        """

    def start(self, shard: str, parent: str | None) -> None:
        """Begin a shard at its first record, after its parent has been read to its end."""

    def tell(self, shard: str, change: "Change", *, parent: str | None = None, is_past: bool = False) -> None:
        """A change of a shard. `is_past`: it is no news, and only remembered for those who were away."""

    def answered(self, shard: str) -> None:
        """Note that the shard answered without records."""

    def lost(self, problem: Exception) -> None:
        """There will be no more, for this problem. Not told when the source is stopped."""


class Source(Protocol):
    """Tells a sink a table's changes from when it is made until it is stopped, or has a problem."""

    problem: Exception | None

    @property
    def is_attached(self) -> bool:
        """Whether every write from now on will be told."""

    async def attached(self) -> None:
        """Returns once it is. Raises the problem."""

    async def stop(self) -> None: ...
