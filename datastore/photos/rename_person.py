"""Persons are named, and named otherwise: with a new name the item of a person moves, and nothing of it is lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import Internal
from datastore.keyspace.photos import persons as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import key_of
from datastore.model.timestamps import from_iso, iso
from datastore.photos.lookups import Lookups
from datastore.photos.optimistic_update import Changed, OptimisticUpdate, no_person, until_unchanged
from datastore.photos.persons import Person, person_from, person_item
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

# What others may change of a person while they move.
CHANGING = ("name", "faceCount", "thumbnailUrl", "mergedInto", "mergedAt", "receives", "version")


@dataclass(frozen=True, slots=True)
class PersonRename:
    """SPARKS-W1."""

    store: Store
    lookups: Lookups
    now: datetime

    async def create(self, person_id: str, *, name: str, thumbnail_url: str | None, may_be_there: bool) -> Person:
        """A person, or the one that is there with the id (looked for if they `may_be_there`), as they stand."""
        current = OptimisticUpdate(self.store, self.lookups)
        there = await current.person(person_id, patient=False) if may_be_there else None
        if there is not None:
            return whole(there)
        person = Person(person_id, name, 0, thumbnail_url, from_iso(iso(self.now)), None)
        written = await self.store.put(keys.CREATE_PERSON, person_item(person))
        self.lookups.clear_all()
        only = await until_unchanged(lambda: self._only(person_id)) if may_be_there and written.ok else None
        return whole(only or written.item)

    async def _only(self, person_id: str) -> Item | None:
        """The one item of a person.

        Two with the same id and other names may have been named at once, or one while the other got that name: who
        has faces stays, then who came first, however often it is looked at.
        """
        values = {"partition": keys.partition(person_id), "prefix": keys.PREFIX}
        found = sorted([item async for item in self.store.query_all(keys.PERSON_CONSISTENT, values)], key=_standing)
        if going := [other for other in found[1:] if not _is_used(other)]:
            stays = Action("ConditionCheck", key=key_of(SPARKS, found[0]), condition="attribute_exists(PK)")
            await OptimisticUpdate(self.store, self.lookups).commit(keys.CREATE_PERSON, [*map(_gone, going), stays])
        return found[0] if found else None

    async def update(self, person_id: str, changes: Mapping[str, Any], expected: int | None = None) -> Person:
        """Change `name` and `thumbnailUrl`; None takes away. Raises `NotFound` and `Outdated`."""
        return await until_unchanged(lambda: self._update(person_id, changes, expected))

    async def _update(self, person_id: str, changes: Mapping[str, Any], expected: int | None) -> Person:
        current = OptimisticUpdate(self.store, self.lookups)
        before = await current.person(person_id)
        if before is None:
            raise no_person(person_id)
        if self.store.is_retry and may_be_applied(before, expected, changes):
            return whole(before)
        check_version(before, expected, person_from)
        after = {name: value for name, value in {**before, **changes}.items() if value is not None}
        key = keys.person(person_id, after["name"])
        # Of a name that stays the key stays too, in whatever form others wrote it.
        if after["name"] == before["name"] or key == key_of(SPARKS, before):
            return await self._update_in_place(before, changes, expected)
        after |= {"SK": key.sort, "version": version_of(before) + 1}
        named = Action("Put", item=after, condition="attribute_not_exists(PK)")
        await current.commit(keys.UPDATE_PERSON, [_gone(before), named])
        return whole(after)

    async def _update_in_place(self, before: Item, changes: Mapping[str, Any], expected: int | None) -> Person:
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        written = await self.store.update(keys.UPDATE_PERSON, key_of(SPARKS, before), update=expression, **values)
        self.lookups.clear_all()
        return updated_record(written, expected, changes, person_from, Changed)


def _is_used(person: Item) -> bool:
    """Whether more is known of a person than how they were named."""
    return bool(person.get("faceCount") or person.get("mergedInto") or person.get("receives"))


def _standing(person: Item) -> tuple[bool, str, str]:
    return not _is_used(person), str(person.get("createdAt")), person["SK"]


def _gone(before: Item) -> Action:
    """Delete the item as it was read: otherwise what was counted meanwhile would be lost."""
    known = [name for name in CHANGING if name in before]
    conditions = [f"#{name} = :{name}" for name in known]
    conditions += [f"attribute_not_exists(#{name})" for name in CHANGING if name not in before]
    values = {name: before[name] for name in known}
    return Action("Delete", key=key_of(SPARKS, before), condition=" AND ".join(conditions), values=values)


def whole(item: Item | None) -> Person:
    person = record(person_from, item)
    if person is None:
        raise Internal("A stored record is damaged.")
    return person
