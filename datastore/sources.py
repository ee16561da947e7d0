"""What brings a table's changes, and what is told them."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datastore.streams import Change


class Sink(Protocol):
    """Who is told a table's changes, in order. Nothing here waits."""

    def begin(self, order: str, stream: str, *, single: str | None, is_new: bool = True, at: int | None = None) -> None:
        """What is told from now on is in this order: an id of whoever put the changes of several shards in it.

        `stream` is the stream's ARN: with another, all that was told before counts for nothing. `single` is the id of
        its shard as long as it has had no other: then sequences alone tell what comes after what. Told before the first
        change, again when either becomes another, and never when changes were lost: that is `lost`. `is_new`: nothing
        has been told in this order yet, by anybody. `at`: all that comes is what the single shard has after this
        sequence.
        """

    def tell(self, shard: str, change: "Change", *, is_past: bool = False) -> None:
        """A change of a shard. `is_past`: it is no news, and only remembered for those who were away."""

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
