"""Leagues and competitions: reference data (LG-1 … LG-6)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, flag, number, text
from datastore.dynamodb.records import readable_records, record
from datastore.errors import Conflict, NotFound, possibly_deleted
from datastore.keyspace.matches import leagues as keys
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.matches.json_records import Reference
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.identifiers import ascii_upper
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

ATTEMPTS = 5


class League(Reference, frozen=True):
    """A league. `code` is its short name (IPL). The matches of an `active` league are synced and polled."""

    league_id: str
    name: str
    code: str
    active: bool = True
    season_id: str | None = None
    image_url: str | None = None
    country_id: str | None = None
    type: str | None = None
    updated_at: datetime | None = None
    version: int = 0


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
    """One method for each access pattern. Writes have the time `now`, and invalidate the leagues in the scan cache.

    Without a scan cache, as in a process without clients, every call reads the table.
    """

    def __init__(self, store: Store, now: datetime, scan_cache: ScanCache | None = None) -> None:
        self._store = store
        self._now = now
        self._scan_cache = scan_cache

    async def by_id(self, league_id: str) -> League | None:
        """LG-1: return a league, or None. The id is empty for a fixture of another program without a league."""
        if not league_id:
            return None
        item = await self._store.find(keys.LEAGUE, Key(league_id))
        return None if item is None else item.record(league_from)

    async def all(self, *, active: bool | None = None) -> Sequence[League]:
        """LG-2, LG-3: return all, or the (in)active, leagues by name, at most 30 seconds old."""
        if active:
            return await self._scan(keys.ACTIVE_LEAGUES, active=True)
        leagues = await self._scan(keys.ALL_LEAGUES)
        return leagues if active is None else [league for league in leagues if not league.active]

    async def check_code(self, code: str) -> None:
        """LG-2: raise `NotFound` unless a league has this code. The leagues are at most 30 seconds old."""
        if all(league.code != code for league in await self.all()):
            raise NotFound(f"There is no league with the code {code!r}.")

    async def active(self) -> Sequence[League]:
        """LG-3: return the active leagues without the cache, for jobs."""
        return _by_name(await self._store.scan(keys.ACTIVE_LEAGUES, active=True))

    async def put(self, league: League) -> League:
        """LG-4: store a league. Return it as stored. Repeats the write if the stored version is greater than observed.

        Raises `Conflict` if other requests change the league at each attempt.
        """
        stored = replace(league, code=ascii_upper(league.code), updated_at=self._now)
        stored_version, address = 0, _address(league.league_id)
        for _ in range(ATTEMPTS):
            stored = replace(stored, version=PUT_VERSIONS.next(self._now, address, above=stored_version))
            item = league_item(stored)
            try:
                written = await self._store.put(keys.PUT_LEAGUE, item, version=stored.version, null_type="NULL")
            finally:
                self._invalidate()
            if written.ok or (written.is_retry and written.item == item):
                return stored
            stored_version = version_of(written.item or {})
        raise Conflict("Other requests are changing the league at the same time; try again.", retryable=True)

    async def update(self, league_id: str, changes: Mapping[str, Any], expected: int | None = None) -> League:
        """LG-5: change fields, named as in `League`; None removes a value. Return the changed league.

        Raises `NotFound` if there is no such league, `Outdated` if the stored version is not the expected one.
        """
        attributes = {ATTRIBUTES[name]: value for name, value in changes.items()}
        if "code" in attributes:
            attributes["code"] = ascii_upper(attributes["code"])
        expression, values = versioned_update(attributes | {"updatedAt": iso(self._now)})
        values |= version_values(expected)
        try:
            written = await self._store.update(keys.UPDATE_LEAGUE, Key(league_id), update=expression, **values)
        finally:
            self._invalidate()
        return updated_record(written, expected, attributes, league_from, _no_league)

    async def delete(self, league_id: str) -> League:
        """LG-6: delete a league. Return it as it was.

        Raises `NotFound` if there was none, `Unavailable` if an ambiguous write may have deleted it.
        """
        try:
            written = await self._store.delete(keys.DELETE_LEAGUE, Key(league_id))
        finally:
            self._invalidate()
        if written.item is not None:
            PUT_VERSIONS.observe(_address(league_id), version_of(written.item))
        elif written.is_retry:
            raise possibly_deleted("The league")
        return _existing(written.item)

    async def _scan(self, pattern: AccessPattern, **values: Any) -> Sequence[League]:
        if self._scan_cache is None:
            return _by_name(await self._store.scan(pattern, **values))
        return await self._scan_cache.scan(self._store, pattern, _by_name, **values)

    def _invalidate(self) -> None:
        if self._scan_cache is not None:
            self._scan_cache.invalidate(LEAGUES)


def _address(league_id: str) -> ItemAddress:
    return LEAGUES.name, Key(league_id)


def _existing(item: Item | None) -> League:
    league = record(league_from, item)
    if league is None:
        raise _no_league()
    return league


def _no_league() -> NotFound:
    return NotFound("There is no such league.")


def _by_name(items: Sequence[Item]) -> Sequence[League]:
    return tuple(sorted(readable_records(league_from, items), key=lambda league: (league.name, league.league_id)))


def league_item(league: League) -> Item:
    item = {attribute: getattr(league, name) for name, attribute in ATTRIBUTES.items()}
    item |= {"updatedAt": league.updated_at and iso(league.updated_at), "version": league.version}
    return {name: value for name, value in item.items() if value is not None}


def _is_exactly_true(value: object) -> bool:
    return value is True


def _updated(moment: str | None) -> datetime | None:
    return from_iso(moment) if moment else None


league_from = RecordDecoder(
    League,
    league_id=text("leagueId"),
    # Only the key is required.
    name=text("name", default=text("leagueId")),
    code=text("code", default=text("leagueId")),
    active=flag("active", _is_exactly_true, default=False),  # as in the condition of LG-3
    season_id=text("seasonId", default=None),
    image_url=text("imageUrl", default=None),
    country_id=text("countryId", default=None),
    type=text("type", default=None),
    updated_at=text("updatedAt", _updated, default=None),
    version=number(VERSION, version, default=0),
)
