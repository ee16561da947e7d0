"""Team seasons: the table of a league's season, one row for each team (TS-1, TS-2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.records import record
from datastore.items import attributes as stored
from datastore.items.forms import Identifier, Line, Whole
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import team_seasons as keys
from datastore.session.pagination import Page, Span, read_page

MAX_MATCHES = 10_000


def _float(number: Any) -> float | None:
    return None if number is None else float(number)


class TeamSeason(StoredItem, key=keys.team_season):
    """A team's row in the table of a season. Figures that the provider does not report are None."""

    season_id: str = stored.part(form=Identifier())
    team_id: str = stored.part(form=Identifier())
    season_name: str | None = stored.text("seasonName", default=None, form=Line(200), typical=20)
    league_id: str | None = stored.text("leagueId", default=None, form=Identifier())
    position: int | None = stored.number("position", default=None, form=Whole(1, MAX_MATCHES))
    played: int | None = stored.number("played", default=None, form=Whole(0, MAX_MATCHES))
    won: int | None = stored.number("won", default=None, form=Whole(0, MAX_MATCHES))
    lost: int | None = stored.number("lost", default=None, form=Whole(0, MAX_MATCHES))
    drawn: int | None = stored.number("drawn", default=None, form=Whole(0, MAX_MATCHES))
    no_result: int | None = stored.number("noResult", default=None, form=Whole(0, MAX_MATCHES))
    points: float | None = stored.number("points", _float, default=None)
    net_run_rate: float | None = stored.number("netRunRate", _float, default=None)
    updated_at: datetime | None = stored.moment("updatedAt", default=None)


@dataclass(frozen=True, slots=True)
class Season:
    """A season. The tables contain only its id and its teams."""

    season_id: str


class TeamSeasons(Repository):
    """One method for each access pattern. Writes have the time `now`."""

    async def of_season(self, season_id: str, span: Span) -> Page:
        """TS-1: return the rows of a season by team id."""
        return await read_page(self._store, keys.TEAMS_OF_SEASON, [{"partition": season_id}], span)

    async def by_key(self, season_id: str, team_id: str) -> TeamSeason | None:
        """TS-N1: return the row of a team, or None."""
        return record(TeamSeason.decoder, await self._store.get(keys.TEAM_SEASON, keys.team_season(season_id, team_id)))

    async def put_all(self, rows: Iterable[TeamSeason]) -> list[TeamSeason]:
        """TS-2: store rows, and return them as stored. If two rows have one season and team, the last is stored."""
        last = {(row.season_id, row.team_id): replace(row, updated_at=self._now) for row in rows}
        await self._store.write_all(keys.SYNC_TEAM_SEASONS, puts=[row.item() for row in last.values()])
        return list(last.values())
