"""The order of the changes of an item relative to a read of it."""

from collections import deque

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item

# The number of changes during a read whose old images are kept.
MAX_CHANGES_DURING_READ = 100
# Of this many changes after a read, one should have had the item that was read as its old image.
MAX_UNMATCHED_CHANGES = 3


class ChangeOrder:
    """The order of the changes of an item relative to a read: which changes are later than the read.

    The old image of the first later change is the item that was read. Changes are recorded when they are published,
    because a newer change may replace them in the queue of a slow subscriber. If the first later change does not arrive
    (`is_lost`, which is known after some further changes), the item must be read again.

    With `all_later` every change is later.
    """

    def __init__(self, *, all_later: bool) -> None:
        # The number of the first later change, if it is known.
        self._first_later = 1 if all_later else None
        self._recorded = self._recorded_before_read = 0
        self._item: Item | None = None
        # The old images of the changes that are published during the read.
        self._old_images: deque[Item | None] = deque(maxlen=MAX_CHANGES_DURING_READ)

    def record(self, change: Change) -> int:
        """Record a change when it is published, and return its number."""
        self._recorded += 1
        if self._first_later is None and self._item is None:
            self._old_images.append(change.old)
        elif self._first_later is None and change.old == self._item:
            self._first_later = self._recorded
        return self._recorded

    def accept_all(self) -> None:
        """Let every change be later: the client has the state before all of them."""
        self._first_later = 0

    def begin_read(self) -> None:
        """Prepare for a read of the item, which may repeat an earlier one."""
        self._item, self._recorded_before_read = None, self._recorded
        self._old_images.clear()

    def end_read(self, item: Item) -> None:
        """Record the result of the read. Recorded changes with other old images are earlier."""
        self._item, self._recorded_before_read = item, self._recorded
        if item in self._old_images:
            self._first_later = self._recorded - len(self._old_images) + self._old_images.index(item) + 1
        self._old_images.clear()

    def is_later(self, number: int) -> bool:
        """Return whether the change with this number is later than the read."""
        return self._first_later is not None and number >= self._first_later

    @property
    def is_lost(self) -> bool:
        """Whether the first later change was missed."""
        return self._first_later is None and self._recorded - self._recorded_before_read >= MAX_UNMATCHED_CHANGES
