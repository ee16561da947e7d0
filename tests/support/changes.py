"""A sink that records changes by number."""

from typing import Any

from datastore.change_streams.change import Change


def number_of(change: Change) -> int:
    assert change.new is not None
    number: int = change.new["n"]
    return number


class Numbers:
    """A sink that records the numbers of the changes."""

    def __init__(self) -> None:
        self.delivered: list[int] = []

    def start_epoch(self, *_: Any) -> None: ...
    def start_shard(self, *_: Any) -> None: ...
    def read_empty(self, *_: Any) -> None: ...

    def deliver(self, shard: str, change: Change, **_: Any) -> None:
        self.delivered.append(number_of(change))

    def lost(self, problem: Exception) -> None: ...
