"""Teams: reference data, synced with the provider (TM-1 … TM-4)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, flag, number, text
from datastore.dynamodb.records import readable_records
from datastore.errors import NotFound
from datastore.keyspace.matches import teams as keys
from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.json_records import Reference
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso
from datastore.model.versioning import VERSION
from datastore.session.optimistic_locking import (
    PUT_VERSIONS,
    ItemAddress,
    updated_record,
    version,
    version_of,
    version_values,
    versioned_update,
)
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store


class Team(Reference, frozen=True):
    """A team. `code` is its short name (IND). `national` is true for a country's side, false for a club."""

    team_id: str
    name: str
    code: str
    image_url: str | None = None
    country_id: str | None = None
    national: bool = False
    updated_at: datetime | None = None
    version: int = 0


ATTRIBUTES = {
    "team_id": "teamId",
    "name": "name",
    "code": "code",
    "image_url": "imageUrl",
    "country_id": "countryId",
    "national": "national",
}


class Teams:
    """One method for each access pattern. Writes have the time `now`, and invalidate the teams in the scan cache.

    Without a scan cache, as in a process without clients, every call reads the table.
    """

    def __init__(self, store: Store, now: datetime, scan_cache: ScanCache | None = None) -> None:
        self._store = store
        self._now = now
        self._scan_cache = scan_cache

    async def by_id(self, team_id: str) -> Team | None:
        """TM-1: return a team, or None. The id is empty for a fixture of another program without a team."""
        if not team_id:
            return None
        item = await self._store.find(keys.TEAM, Key(team_id))
        return None if item is None else item.record(team_from)

    async def all(self) -> Sequence[Team]:
        """TM-2: return all teams by name, at most 30 seconds old."""
        if self._scan_cache is None:
            return _by_name(await self._store.scan(keys.ALL_TEAMS))
        return await self._scan_cache.scan(self._store, keys.ALL_TEAMS, _by_name)

    async def put_all(self, teams: Iterable[Team]) -> list[Team]:
        """TM-3: store teams, each with a version above its `version`, the last observed one. Return them as stored.

        If two teams have one id, the last is stored.
        """
        last = {team.team_id: team for team in teams}
        for team_id, team in last.items():
            version = PUT_VERSIONS.next(self._now, _address(team_id), above=team.version)
            last[team_id] = replace(team, updated_at=self._now, version=version)
        try:
            await self._store.write_all(keys.SYNC_TEAMS, puts=[team_item(team) for team in last.values()])
        finally:
            self._invalidate()
        return list(last.values())

    async def update(self, team_id: str, changes: Mapping[str, Any], expected: int | None = None) -> Team:
        """TM-4: change fields, named as in `Team`; None removes a value. Return the changed team.

        Raises `NotFound` if there is no such team, `Outdated` if the stored version is not the expected one.
        """
        attributes = {ATTRIBUTES[name]: value for name, value in changes.items()}
        expression, values = versioned_update(attributes | {"updatedAt": iso(self._now)})
        values |= version_values(expected)
        try:
            written = await self._store.update(keys.UPDATE_TEAM, Key(team_id), update=expression, **values)
        finally:
            self._invalidate()
        if written.item is not None:
            PUT_VERSIONS.observe(_address(team_id), version_of(written.item))
        return updated_record(written, expected, attributes, team_from, _no_team)

    def _invalidate(self) -> None:
        if self._scan_cache is not None:
            self._scan_cache.invalidate(TEAMS)


def _address(team_id: str) -> ItemAddress:
    return TEAMS.name, Key(team_id)


def _no_team() -> NotFound:
    return NotFound("There is no such team.")


def _by_name(items: Sequence[Item]) -> Sequence[Team]:
    return tuple(sorted(readable_records(team_from, items), key=lambda team: (team.name, team.team_id)))


def team_item(team: Team) -> Item:
    item = {attribute: getattr(team, name) for name, attribute in ATTRIBUTES.items()}
    item |= {"updatedAt": team.updated_at and iso(team.updated_at), "version": team.version}
    return {name: value for name, value in item.items() if value is not None}


def _is_exactly_true(value: object) -> bool:
    return value is True


def _updated(moment: str | None) -> datetime | None:
    return from_iso(moment) if moment else None


team_from = RecordDecoder(
    Team,
    team_id=text("teamId"),
    # Only the key is required.
    name=text("name", default=text("teamId")),
    code=text("code", default=text("teamId")),
    image_url=text("imageUrl", default=None),
    country_id=text("countryId", default=None),
    national=flag("national", _is_exactly_true, default=False),
    updated_at=text("updatedAt", _updated, default=None),
    version=number(VERSION, version, default=0),
)
