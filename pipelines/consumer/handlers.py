"""The protocol of a consumer's handlers."""

from collections.abc import Sequence
from typing import Protocol

from datastore.change_streams.change import Change


class Handler(Protocol):
    """A handler of changes, identified by its `name`."""

    name: str

    async def handle(self, changes: Sequence[Change]) -> None:
        """Handle changes, which are in order for each item. They may be late or repeated: a handler is idempotent.

        The handler skips changes that do not concern it. After an error the caller passes all changes again, in smaller
        batches, until the change at fault is alone.
        """
