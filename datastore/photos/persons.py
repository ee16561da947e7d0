"""Persons on photos: records and reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.keyspace.photos import persons as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso
from datastore.photos.lookups import Lookups
from datastore.session.optimistic_locking import version_of
from datastore.session.pagination import Page, SortOrder, Span, ordered, read_page
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class Person:
    """A person on photos."""

    person_id: str
    name: str
    face_count: int
    thumbnail_url: str | None
    created_at: datetime
    #: The id of the person into whom this person is being merged.
    merged_into: str | None
    version: int = 0


def person_from(item: Mapping[str, Any]) -> Person:
    """Return the person of an item of the table or of an index, which has the name only in the key."""
    person_id, name = keys.person_parts(Key(item["PK"], item["SK"]))
    return Person(
        person_id=person_id,
        name=item.get("name", name),
        face_count=int(item.get("faceCount") or 0),
        thumbnail_url=item.get("thumbnailUrl"),
        created_at=from_iso(item["createdAt"]),
        merged_into=item.get("mergedInto"),
        version=version_of(item),
    )


def person_item(person: Person) -> Item:
    """Return the item of a person."""
    key = keys.person(person.person_id, person.name)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "personId": person.person_id,
        "name": person.name,
        "faceCount": person.face_count,
        "thumbnailUrl": person.thumbnail_url,
        "createdAt": iso(person.created_at),
        "mergedInto": person.merged_into,
    }
    return {name: value for name, value in item.items() if value is not None}


class Persons:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups, now: datetime) -> None:
        self._store = store
        self._lookups = lookups
        self._now = now

    async def by_id(
        self, person_id: str, name: str | None = None, pattern: AccessPattern = keys.PERSON
    ) -> Person | None:
        """SPARKS-N1: return a person, or None. A point read with the current name; otherwise a Query."""
        item = None if name is None else await self._store.get(pattern, keys.person(person_id, name))
        if item is None:
            item = await self._lookups.find(pattern, keys.partition(person_id), keys.PREFIX)
        return record(person_from, item)

    async def all(self, span: Span, order: SortOrder) -> Page:
        """SPARKS-6: return all persons."""
        return await read_page(self._store, ordered(keys.PERSONS, order), [{"partition": keys.TYPE}], span)

    def prefetch(self, person_id: str, name: str) -> None:
        """Add a person to the current batch of reads."""
        self._store.prefetch(keys.PERSON, keys.person(person_id, name))
