"""Teams: reference data, synced with the provider (TM-1 … TM-4)."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from datastore.items import attributes as stored
from datastore.items.forms import Boolean, Identifier, Line, Url
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import teams as keys
from datastore.matches.reference_data import Reference, ReferenceTable, is_exactly_true
from datastore.session.optimistic_locking import PUT_VERSIONS


class Team(StoredItem, Reference, key=keys.team):
    """A team. `code` is its short name (IND). `national` is true for a country's side, false for a club."""

    team_id: str = stored.part(form=Identifier())
    # Only the key is required in items.
    name: str = stored.text("name", missing=stored.text("teamId"), form=Line(200))
    code: str = stored.text("code", missing=stored.text("teamId"), form=Identifier(20), typical=3)
    image_url: str | None = stored.text("imageUrl", default=None, form=Url(), removable=True, typical=0)
    country_id: str | None = stored.text("countryId", default=None, form=Identifier(), removable=True)
    national: bool = stored.flag("national", is_exactly_true, default=False, form=Boolean())
    updated_at: datetime | None = stored.moment("updatedAt", default=None)
    version: int = stored.version(default=0)


class Teams(ReferenceTable[Team]):
    """One method for each access pattern."""

    kind, noun, by_key, change = Team, "team", keys.TEAM, keys.UPDATE_TEAM

    async def all(self) -> Sequence[Team]:
        """TM-2: return all teams by name, at most 30 seconds old."""
        return await self._scan(keys.ALL_TEAMS)

    async def put_all(self, teams: Iterable[Team]) -> list[Team]:
        """TM-3: store teams, each with a version above its `version`, the last observed one. Return them as stored.

        If two teams have one id, the last is stored.
        """
        last = {team.team_id: team for team in teams}
        for team_id, team in last.items():
            version = PUT_VERSIONS.next(self._now, self._address(team_id), above=team.version)
            last[team_id] = replace(team, updated_at=self._now, version=version)
        with self._writing():
            await self._store.write_all(keys.SYNC_TEAMS, puts=[team.item() for team in last.values()])
        return list(last.values())
