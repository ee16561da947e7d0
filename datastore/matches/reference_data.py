"""Reference data that is synced with the provider: what the tables of teams and of leagues have in common."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec.structs import astuple

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import point_records, readable_records
from datastore.errors import NotFound
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.items.updates import ItemChange, update_item
from datastore.matches.cricket import Record
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import Key
from datastore.session.optimistic_locking import PUT_VERSIONS, ItemAddress, Outdated
from datastore.session.pagination import Page, SortOrder, Span
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store


class Reference(Record, frozen=True):
    """A record of reference data whose last field is its `version`, which equality ignores."""

    def __eq__(self, other: object) -> bool:
        return self.__class__ is other.__class__ and astuple(self)[:-1] == astuple(other)[:-1]

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])


T = TypeVar("T", bound=StoredItem)


def is_exactly_true(value: object) -> bool:
    """Return whether a stored flag is true. Other programs may store other values, which conditions do not match."""
    return value is True


class ReferenceTable(Repository, Generic[T]):
    """A table of reference data. Writes have the time `now`, and invalidate the table in the scan cache.

    Without a scan cache, as in a process without clients, every call reads the table.
    """

    kind: type[T]
    #: The word for a record in errors.
    noun: str
    by_key: AccessPattern
    change: AccessPattern

    def __init__(self, store: Store, now: datetime, scan_cache: ScanCache | None = None) -> None:
        super().__init__(store, now)
        self._scan_cache = scan_cache

    async def by_id(self, id: str, *, consistent: bool = False) -> T | None:
        """TM-1, LG-1: return a record, or None. The id is empty for a fixture of another program without the record."""
        if not id:
            return None
        item = await self._store.find(consistently(self.by_key, consistent), Key(id))
        return None if item is None else item.record(self.kind.decoder)

    async def by_ids(self, ids: Sequence[str]) -> list[T | Exception | None]:
        """TM-1, LG-1: return each record, None, or the error of its read. An empty id has none."""
        known = [id for id in ids if id]
        items = await self._store.find_all(self.by_key, list(map(Key, known)))
        found = dict(zip(known, point_records(self.kind.decoder, items), strict=True))
        return list(map(found.get, ids))

    def page(self, records: Sequence[T], span: Span) -> Page:
        """TM-2, LG-2, LG-3: return a page of records that are sorted by name and id.

        Each of its items has the attributes `name` and that of the id, for a cursor, and the record as `record`.
        """
        names = ("name", self.by_key.table.partition)
        downward = span.backward is not (span.order is SortOrder.DESCENDING)
        rest = records
        if span.start is not None:
            place = tuple(str(span.start[name]) for name in names)
            if downward:
                rest = records[: bisect_left(records, place, key=self._place)]
            else:
                rest = records[bisect_right(records, place, key=self._place) :]
        found = rest[::-1][: span.size + 1] if downward else rest[: span.size + 1]
        more, is_continued = len(found) > span.size, span.start is not None
        items = [
            dict(zip(names, self._place(record), strict=True)) | {"record": record} for record in found[: span.size]
        ]
        if span.backward:
            return Page(items[::-1], is_continued, more)
        return Page(items, more, is_continued)

    async def update(self, id: str, changes: Mapping[str, Any], expected: int | None = None) -> T:
        """TM-4, LG-5: change fields, named as in the record; None removes a value. Return the changed record.

        Raises `NotFound` if there is no such record, `Outdated` if the stored version is not the expected one.
        """
        change = ItemChange(self.kind, changes, expected, stamps={"updated_at": self._now})
        with self._writing():
            try:
                updated = await update_item(self._store, self.change, Key(id), change, self._missing)
            except Outdated as outdated:
                PUT_VERSIONS.observe(self._address(id), outdated.extensions["currentVersion"])
                raise
        PUT_VERSIONS.observe(self._address(id), attrgetter("version")(updated))
        return updated

    async def _scan(self, pattern: AccessPattern, **values: Any) -> Sequence[T]:
        """Return the records that a Scan finds, by name, at most 30 seconds old."""
        if self._scan_cache is None:
            return self._by_name(await self._store.scan(pattern, **values))
        return await self._scan_cache.scan(self._store, pattern, self._by_name, **values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Invalidate the table in the scan cache after a write, also after one that failed."""
        try:
            yield
        finally:
            if self._scan_cache is not None:
                self._scan_cache.invalidate(self.by_key.table)

    def _address(self, id: str) -> ItemAddress:
        return self.by_key.table.name, Key(id)

    def _missing(self) -> NotFound:
        return NotFound(f"There is no such {self.noun}.")

    @classmethod
    def _by_name(cls, items: Sequence[Item]) -> Sequence[T]:
        return tuple(sorted(readable_records(cls.kind.decoder, items), key=cls._place))

    @classmethod
    def _place(cls, record: T) -> tuple[str, ...]:
        """Return the name and the id of a record, by which lists are sorted."""
        place: tuple[str, ...] = attrgetter("name", *cls.kind.__declaration__.key.parameters)(record)
        return place
