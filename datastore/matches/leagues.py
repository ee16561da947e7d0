"""Leagues and competitions: reference data (LG-1 … LG-6)."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from datastore.dynamodb.records import record
from datastore.errors import Conflict, NotFound, possibly_deleted
from datastore.items import attributes as stored
from datastore.items.forms import Boolean, Identifier, Line, Url
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import leagues as keys
from datastore.matches.reference_data import Reference, ReferenceTable, is_exactly_true
from datastore.model.identifiers import ascii_upper
from datastore.session.optimistic_locking import PUT_VERSIONS, version_of

ATTEMPTS = 5


class League(StoredItem, Reference, key=keys.league):
    """A league. `code` is its short name (IPL). The matches of an `active` league are synced and polled."""

    league_id: str = stored.part(form=Identifier())
    # Only the key is required in items.
    name: str = stored.text("name", missing=stored.text("leagueId"), form=Line(200), typical=40)
    code: str = stored.text("code", missing=stored.text("leagueId"), form=Identifier(20), encode=ascii_upper)
    # As in the condition of LG-3.
    active: bool = stored.flag("active", is_exactly_true, missing=False, default=True, form=Boolean())
    current_season_id: str | None = stored.text("seasonId", default=None, form=Identifier(), removable=True)
    image_url: str | None = stored.text("imageUrl", default=None, form=Url(), removable=True)
    country_id: str | None = stored.text("countryId", default=None, form=Identifier(), removable=True)
    type: str | None = stored.text("type", default=None, form=Identifier(), removable=True)
    updated_at: datetime | None = stored.moment("updatedAt", default=None)
    version: int = stored.version(default=0)


class Leagues(ReferenceTable[League]):
    """One method for each access pattern."""

    kind, noun, by_key, change = League, "league", keys.LEAGUE, keys.UPDATE_LEAGUE

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
        return self._by_name(await self._store.scan(keys.ACTIVE_LEAGUES, active=True))

    async def put(self, league: League) -> League:
        """LG-4: store a league. Return it as stored. Repeats the write if the stored version is greater than observed.

        Raises `Conflict` if other requests change the league at each attempt.
        """
        league = replace(league, code=ascii_upper(league.code), updated_at=self._now)
        stored_version, address = 0, self._address(league.league_id)
        for _ in range(ATTEMPTS):
            league = replace(league, version=PUT_VERSIONS.next(self._now, address, above=stored_version))
            item = league.item()
            with self._writing():
                written = await self._store.put(keys.PUT_LEAGUE, item, version=league.version, null_type="NULL")
            if written.ok or (written.is_retry and written.item == item):
                return league
            stored_version = version_of(written.item or {})
        raise Conflict("Other requests are changing the league at the same time; try again.", retryable=True)

    async def delete(self, league_id: str) -> League | None:
        """LG-6: delete a league. Return it as it was, or None if there was none.

        Raises `Unavailable` if an ambiguous write may have deleted it.
        """
        with self._writing():
            written = await self._store.delete(keys.DELETE_LEAGUE, keys.league(league_id))
        if written.item is None:
            if written.is_retry:
                raise possibly_deleted("The league")
            return None
        PUT_VERSIONS.observe(self._address(league_id), version_of(written.item))
        return record(League.decoder, written.item)
