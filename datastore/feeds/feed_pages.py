"""Pages of a home feed in the order of time, from stored entries and from posts that are merged at read time.

Times have two forms (`model.timestamp_forms`), so the table's keys are not in the order of time within a second. All
comparisons use canonical keys: a post that is stored as an entry in one form and merged in the other is listed once. A
page reads the second of its cursor again, and skips the entries of earlier pages.
"""

from collections.abc import Sequence

from datastore.dynamodb.codec import Item, Raw
from datastore.keyspace.feeds import home_feeds as keys
from datastore.model.timestamp_forms import LAST_CHARACTER, canonical, is_delayed, is_settled, second_of
from datastore.session.pagination import Page, Span

# Sorts after all entries of a feed, which begin with digits.
END = keys.SOURCE_PREFIX
# The entries that a page reads in addition: the rest of its last second, and the entries of its first second that
# earlier pages contained.
EXTRA_ENTRIES = 6


class StoredEntries:
    """Entries of a feed as they are read, without the entries of earlier pages."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._position = None if span.start is None else str(span.start["GSI3SK"])
        self._last: str | None = None
        self._entries: dict[str, Raw] = {}

    @property
    def entries(self) -> list[Raw]:
        return list(self._entries.values())

    @property
    def missing(self) -> int:
        """Return the number of entries that the page lacks, including one that shows whether there is a next page."""
        return max(self._span.size + 1 - len(self._entries), 0)

    def bounds(self, oldest: str, end: str) -> tuple[str, str, Item | None]:
        """Return the least and the greatest key to read, and the key to start after."""
        if self._position is None or is_delayed(self._position, backward=self._span.backward):
            return oldest, end, self._span.start
        second = second_of(self._position)
        return (second, end, None) if self._span.backward else (oldest, second + LAST_CHARACTER, None)

    def add(self, entries: Sequence[Raw]) -> None:
        for entry in entries:
            if is_after(entry, self._position, backward=self._span.backward):
                self._entries[_canonical_position(entry)] = entry
        if entries:
            self._last = _position(entries[-1])

    def is_complete(self) -> bool:
        """Return whether the page is complete: no entry that is not read yet belongs on it."""
        if self._last is None or self.missing:
            return False
        backward = self._span.backward
        return sum(is_settled(key, self._last, backward=backward) for key in self._entries) >= self._span.size


class MergedPosts:
    """Posts of one author as entries, of `since` and later, without the entries of earlier pages.

    GSI1 orders the posts of one time by their ids, the feed by their shards.
    """

    def __init__(self, span: Span, since: str) -> None:
        self._span = span
        self._since = canonical(since)
        self._position = None if span.start is None else str(span.start["GSI3SK"])
        self._entries: list[Raw] = []

    @property
    def entries(self) -> list[Raw]:
        return self._entries

    def bounds(self) -> tuple[str, str]:
        """Return the least and the greatest key in GSI1. The full second of the position is included."""
        since = second_of(self._since)
        if self._position is None:
            return since, END
        second = second_of(self._position)
        return (max(since, second), END) if self._span.backward else (since, second + LAST_CHARACTER)

    def add(self, entries: Sequence[Raw]) -> None:
        self._entries += [
            entry
            for entry in entries
            if _moment(_canonical_position(entry)) >= self._since
            and is_after(entry, self._position, backward=self._span.backward)
        ]

    def is_complete_through(self, last: str) -> bool:
        """Return whether the page is complete when all posts up to `last`, a key of GSI1, were read."""
        moment = _moment(last)
        settled = 0
        for entry in self._entries:
            own = _moment(_canonical_position(entry))
            # Unread posts may precede the posts that were read of the same time.
            settled += own != canonical(moment) and is_settled(own, moment, backward=self._span.backward)
        return settled >= self._span.size


def is_after(entry: Raw, position: str | None, *, backward: bool) -> bool:
    """Return whether an entry comes after a position in the direction of the page."""
    if position is None:
        return True
    own, start = _canonical_position(entry), canonical(position)
    return own > start if backward else own < start


def cut_page(entries: Sequence[Raw], span: Span) -> Page:
    """Return the page of unordered entries. Two entries with one canonical key are one post, and are listed once."""
    by_key = {_canonical_position(entry): entry for entry in entries}
    ordered = [by_key[key] for key in sorted(by_key, reverse=not span.backward)]
    more, kept = len(ordered) > span.size, ordered[: span.size]
    if span.backward:
        return Page(None, span.start is not None, more, raw=kept[::-1])
    return Page(None, more, span.start is not None, raw=kept)


def _position(entry: Raw) -> str:
    position: str = entry["GSI3SK"]["S"]
    return position


def _canonical_position(entry: Raw) -> str:
    return canonical(_position(entry))


def _moment(position: str) -> str:
    return position.partition("#")[0]
