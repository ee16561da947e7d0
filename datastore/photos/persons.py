"""Persons on photos: records, reads, creation and renaming.

The name is part of the key, so a rename replaces the item in a transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import Internal
from datastore.items import attributes as stored
from datastore.items.forms import Line, Url
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import persons as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import key_of, split
from datastore.model.timestamps import from_iso, iso
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import ChangedMeanwhile, OptimisticUpdate, no_person, retry_if_changed
from datastore.session.optimistic_locking import (
    check_version,
    may_be_applied,
    updated_record,
    version_of,
    version_values,
    versioned_update,
)
from datastore.session.store import Store
from datastore.session.writes import Action

# The attributes that may change during a rename.
MUTABLE = ("name", "faceCount", "thumbnailUrl", "mergedInto", "mergedAt", "receives", "version")


def _name_in_key(sort: str) -> str:
    """Return the name in a sort key. Other programs may write a name with an unescaped `#`."""
    return "#".join(split(sort)[1:])


class Person(StoredItem, key=keys.person):
    """A person on photos. Indexes have the name only in the key."""

    entity_type = stored.constant("entityType", keys.TYPE)
    person_id: str = stored.part("personId")
    name: str = stored.text("name", missing=stored.text("SK", _name_in_key), form=Line(100))
    face_count: int | None = stored.number("faceCount", stored.if_null(None, int), missing=None)
    thumbnail_url: str | None = stored.text("thumbnailUrl", missing=None, form=Url(), removable=True)
    created_at: datetime = stored.moment("createdAt")
    #: The id of the person into whom this person is being merged.
    merged_into: str | None = stored.text("mergedInto", missing=None)
    version: int = stored.version(default=0)


class Persons:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups) -> None:
        self._store = store
        self._lookups = lookups

    async def by_id(
        self, person_id: str, name: str | None = None, pattern: AccessPattern = keys.PERSON
    ) -> Person | None:
        """SPARKS-N1: return a person, or None. A point read with the current name; otherwise a Query."""
        item = None if name is None else await self._store.get(pattern, keys.person(person_id, name))
        if item is None:
            item = await self._lookups.find(pattern, keys.person.partition_of(person_id), keys.person.prefix)
        return record(Person.decoder, item)

    def prefetch(self, person_id: str, name: str) -> None:
        """Add a person to the current batch of reads."""
        self._store.prefetch(keys.PERSON, keys.person(person_id, name))


@dataclass(frozen=True, slots=True)
class PersonRename:
    """SPARKS-W1: creates and changes persons."""

    store: Store
    lookups: Lookups
    now: datetime

    async def create(self, person_id: str, *, name: str, thumbnail_url: str | None, may_exist: bool) -> Person:
        """Create a person. If the person `may_exist`, return the existing person of the id, unchanged."""
        current = OptimisticUpdate(self.store, self.lookups)
        existing = await current.person(person_id, retry=False) if may_exist else None
        if existing is not None:
            return require_person(existing)
        person = Person(person_id, name, 0, thumbnail_url, from_iso(iso(self.now)), None)
        written = await self.store.put(keys.CREATE_PERSON, person.item())
        self.lookups.clear_all()
        only = await retry_if_changed(lambda: self._only(person_id)) if may_exist and written.ok else None
        return require_person(only or written.item)

    async def _only(self, person_id: str) -> Item | None:
        """Return the only item of a person, after deleting duplicates with other names.

        Duplicates result from concurrent creations, or a creation during a rename. The item with faces remains, then
        the oldest: every process makes the same choice.
        """
        values = keys.person.values_of(person_id)
        stored = sorted(
            [item async for item in self.store.query_all(consistently(keys.PERSON), values)], key=_precedence
        )
        if duplicates := [other for other in stored[1:] if not _is_used(other)]:
            exists = Action("ConditionCheck", key=key_of(SPARKS, stored[0]), condition="attribute_exists(PK)")
            actions = [*map(_delete_unchanged, duplicates), exists]
            await OptimisticUpdate(self.store, self.lookups).commit(keys.CREATE_PERSON, actions)
        return stored[0] if stored else None

    async def update(self, person_id: str, changes: Mapping[str, Any], expected: int | None = None) -> Person:
        """Change fields, named as in `Person`; None removes a value. Return the changed person.

        Raises `NotFound` if there is no such person, `Outdated` if the stored version is not the expected one.
        """
        return await retry_if_changed(lambda: self._update(person_id, Person.attributes(changes), expected))

    async def _update(self, person_id: str, changes: Mapping[str, Any], expected: int | None) -> Person:
        current = OptimisticUpdate(self.store, self.lookups)
        before = await current.person(person_id)
        if before is None:
            raise no_person(person_id)
        if self.store.is_retry and may_be_applied(before, expected, changes):
            return require_person(before)
        check_version(before, expected, Person.decoder)
        after = {name: value for name, value in {**before, **changes}.items() if value is not None}
        key = keys.person(person_id, after["name"])
        # With an unchanged name the key is unchanged too, even if another program stored it in another form.
        if after["name"] == before["name"] or key == key_of(SPARKS, before):
            return await self._update_in_place(before, changes, expected)
        after |= {"SK": key.sort, "version": version_of(before) + 1}
        put = Action("Put", item=after, condition="attribute_not_exists(PK)")
        await current.commit(keys.UPDATE_PERSON, [_delete_unchanged(before), put])
        return require_person(after)

    async def _update_in_place(self, before: Item, changes: Mapping[str, Any], expected: int | None) -> Person:
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        written = await self.store.update(keys.UPDATE_PERSON, key_of(SPARKS, before), update=expression, **values)
        self.lookups.clear_all()
        return updated_record(written, expected, changes, Person.decoder, ChangedMeanwhile)


def _is_used(person: Item) -> bool:
    """Return whether a person has faces, or takes part in a merge."""
    return bool(person.get("faceCount") or person.get("mergedInto") or person.get("receives"))


def _precedence(person: Item) -> tuple[bool, str, str]:
    return not _is_used(person), str(person.get("createdAt")), person["SK"]


def _delete_unchanged(before: Item) -> Action:
    """Return the action that deletes an item on the condition that it is unchanged, so that no change is lost."""
    present = [name for name in MUTABLE if name in before]
    conditions = [f"#{name} = :{name}" for name in present]
    conditions += [f"attribute_not_exists(#{name})" for name in MUTABLE if name not in before]
    values = {name: before[name] for name in present}
    return Action("Delete", key=key_of(SPARKS, before), condition=" AND ".join(conditions), values=values)


def require_person(item: Item | None) -> Person:
    person = record(Person.decoder, item)
    if person is None:
        raise Internal("A stored record is damaged.")
    return person
