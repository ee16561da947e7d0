"""What a consumer of a stream does about changes."""

from collections.abc import Sequence
from typing import Protocol

from datastore.change_streams.shards.stream_reader import Change


class Handler(Protocol):
    """One concern of a pipeline.

    `handle` gets changes in the order of each item, some of them perhaps again, and perhaps late: it passes over those
    that are none of its concern, and leaves the same state however often it is called. It raises when some could not
    be handled; then all of them come again, in smaller pieces, until the one at fault is alone.
    """

    name: str

    async def handle(self, changes: Sequence[Change]) -> None: ...
