"""Which changes of an item come after it was read."""

from collections import deque

from datastore.change_streams.shards.stream_reader import Change
from datastore.dynamodb.codec import Item

# Of so many changes that are published while a livestream is read it is remembered how they found it; and of so many
# that come later one should have found it as it was read.
MOST_WHILE_READ, MOST_IN_DOUBT = 100, 3


class ChangeOrder:
    """Which changes of an item come after it was read: the first of them found it as it was read.

    A change is noted while it is published: in a slow subscriber's queue a newer one may take its place. Should that
    first one not have come through, which `is_lost` tells some changes later, the item is to be read anew.
    """

    def __init__(self, *, all_count: bool) -> None:
        self._first = 1 if all_count else None
        self._noted = self._noted_when_read = 0
        self._read: Item | None = None
        # How the changes found it that were published while it is read.
        self._found: deque[Item | None] = deque(maxlen=MOST_WHILE_READ)

    def note(self, change: Change) -> int:
        """The change's place among them."""
        self._noted += 1
        if self._first is None and self._read is None:
            self._found.append(change.old)
        elif self._first is None and change.old == self._read:
            self._first = self._noted
        return self._noted

    def count_all(self) -> None:
        """All that are noted from now on come after what the client knows."""
        self._first = 0

    def forget(self) -> None:
        """It is about to be read, anew."""
        self._read, self._noted_when_read = None, self._noted
        self._found.clear()

    def was_read(self, item: Item) -> None:
        """What was noted until now and did not find it so comes before."""
        self._read, self._noted_when_read = item, self._noted
        if item in self._found:
            self._first = self._noted - len(self._found) + self._found.index(item) + 1
        self._found.clear()

    def holds(self, place: int) -> bool:
        return self._first is not None and place >= self._first

    @property
    def is_lost(self) -> bool:
        return self._first is None and self._noted - self._noted_when_read >= MOST_IN_DOUBT
