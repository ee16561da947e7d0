"""Leagues and competitions: reference data (LG-1 … LG-6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from datastore.attributes import Item
from datastore.declarations import AccessPattern
from datastore.errors import NotFound
from datastore.expressions import set_or_remove
from datastore.keyspace.matches import leagues as keys
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.parts import Key
from datastore.moments import from_iso, iso
from datastore.records import readable, record
from datastore.remembered import RememberedScans
from datastore.store import Store


@dataclass(frozen=True, slots=True)
class League:
    """A league. `code` is its short name (IPL), `active` tells that its matches are synced and polled."""

    league_id: str
    name: str
    code: str
    active: bool = True
    season_id: str | None = None
    image_url: str | None = None
    country_id: str | None = None
    type: str | None = None
    updated_at: datetime | None = None


ATTRIBUTES = {
    "league_id": "leagueId",
    "name": "name",
    "code": "code",
    "active": "active",
    "season_id": "seasonId",
    "image_url": "imageUrl",
    "country_id": "countryId",
    "type": "type",
}


class Leagues:
    """One method for each access pattern. Writes are dated `now` and drop what is `remembered` of the leagues.

    Without `remembered`, as in a process that serves nobody, every read is made.
    """

    def __init__(self, store: Store, now: datetime, remembered: RememberedScans | None = None) -> None:
        self._store = store
        self._now = now
        self._remembered = remembered

    async def by_id(self, league_id: str) -> League | None:
        """LG-1."""
        return record(league_from, await self._store.get(keys.LEAGUE, Key(league_id)))

    async def all(self, *, active: bool | None = None) -> Sequence[League]:
        """LG-2, LG-3: the leagues by name, all or those that are (not) active, as they were at most 30 seconds ago."""
        if active:
            return await self._scan(keys.ACTIVE_LEAGUES, active=True)
        leagues = await self._scan(keys.ALL_LEAGUES)
        return leagues if active is None else [league for league in leagues if not league.active]

    async def active(self) -> Sequence[League]:
        """LG-3 as it is now, for jobs."""
        return _by_name(await self._store.scan(keys.ACTIVE_LEAGUES, active=True))

    async def put(self, league: League) -> League:
        """LG-4: the league as it stands now."""
        stored = replace(league, code=league.code.upper(), updated_at=self._now)
        try:
            await self._store.put(keys.PUT_LEAGUE, league_item(stored))
        finally:
            self._forget()
        return stored

    async def update(self, league_id: str, changes: Mapping[str, Any]) -> League:
        """LG-5: change fields, named as `League` names them; None takes a value away. The league as it is then.

        Raises `NotFound` when there is no such league.
        """
        attributes = {ATTRIBUTES[name]: value for name, value in changes.items()} | {"updatedAt": iso(self._now)}
        if "code" in attributes:
            attributes["code"] = attributes["code"].upper()
        expression, values = set_or_remove(attributes)
        try:
            written = await self._store.update(keys.UPDATE_LEAGUE, Key(league_id), update=expression, **values)
        finally:
            self._forget()
        return _found(written.item if written.ok else None)

    async def delete(self, league_id: str) -> League:
        """LG-6: the league that was deleted. Raises `NotFound` when there was none."""
        try:
            written = await self._store.delete(keys.DELETE_LEAGUE, Key(league_id))
        finally:
            self._forget()
        return _found(written.item)

    async def _scan(self, pattern: AccessPattern, **values: Any) -> Sequence[League]:
        if self._remembered is None:
            return _by_name(await self._store.scan(pattern, **values))
        return await self._remembered.scan(self._store, pattern, _by_name, **values)

    def _forget(self) -> None:
        if self._remembered is not None:
            self._remembered.invalidate(LEAGUES)


def _found(item: Item | None) -> League:
    league = record(league_from, item)
    if league is None:
        raise NotFound("There is no such league.")
    return league


def _by_name(items: Sequence[Item]) -> Sequence[League]:
    return tuple(sorted(readable(league_from, items), key=lambda league: (league.name, league.league_id)))


def league_item(league: League) -> Item:
    item = {attribute: getattr(league, name) for name, attribute in ATTRIBUTES.items()}
    item["updatedAt"] = league.updated_at and iso(league.updated_at)
    return {name: value for name, value in item.items() if value is not None}


def league_from(item: Mapping[str, Any]) -> League:
    updated_at = item.get("updatedAt")
    return League(
        league_id=item["leagueId"],
        name=item["name"],
        code=item["code"],
        active=item.get("active") is True,  # as LG-3 has it
        season_id=item.get("seasonId"),
        image_url=item.get("imageUrl"),
        country_id=item.get("countryId"),
        type=item.get("type"),
        updated_at=from_iso(updated_at) if updated_at else None,
    )
