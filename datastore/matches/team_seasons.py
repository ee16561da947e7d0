"""Team seasons: the table of a league's season, one row for each team (TS-1, TS-2)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.keyspace.matches import team_seasons as keys
from datastore.matches.json_records import Record
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store


class TeamSeason(Record, frozen=True):
    """A team's row in the table of a season. Figures that the provider does not report are None."""

    season_id: str
    team_id: str
    league_id: str | None = None
    season_name: str | None = None
    position: int | None = None
    played: int | None = None
    won: int | None = None
    lost: int | None = None
    drawn: int | None = None
    no_result: int | None = None
    points: float | None = None
    net_run_rate: float | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Season:
    """A season. The tables contain only its id and its teams."""

    season_id: str


ATTRIBUTES = {
    "season_id": "seasonId",
    "team_id": "teamId",
    "league_id": "leagueId",
    "season_name": "seasonName",
    "position": "position",
    "played": "played",
    "won": "won",
    "lost": "lost",
    "drawn": "drawn",
    "no_result": "noResult",
    "points": "points",
    "net_run_rate": "netRunRate",
}


class TeamSeasons:
    """One method for each access pattern. Writes have the time `now`."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_season(self, season_id: str, span: Span) -> Page:
        """TS-1: return the rows of a season by team id."""
        return await read_page(self._store, keys.TEAMS_OF_SEASON, [{"partition": season_id}], span)

    async def put_all(self, rows: Iterable[TeamSeason]) -> list[TeamSeason]:
        """TS-2: store rows, and return them as stored. If two rows have one season and team, the last is stored."""
        last = {(row.season_id, row.team_id): replace(row, updated_at=self._now) for row in rows}
        await self._store.write_all(keys.SYNC_TEAM_SEASONS, puts=[team_season_item(row) for row in last.values()])
        return list(last.values())


def team_season_item(row: TeamSeason) -> Item:
    item = {attribute: getattr(row, name) for name, attribute in ATTRIBUTES.items()}
    item["updatedAt"] = row.updated_at and iso(row.updated_at)
    return {name: value for name, value in item.items() if value is not None}


def team_season_from(item: Mapping[str, Any]) -> TeamSeason:
    updated_at = item.get("updatedAt")
    return TeamSeason(
        season_id=item["seasonId"],
        team_id=item["teamId"],
        league_id=item.get("leagueId"),
        season_name=item.get("seasonName"),
        position=item.get("position"),
        played=item.get("played"),
        won=item.get("won"),
        lost=item.get("lost"),
        drawn=item.get("drawn"),
        no_result=item.get("noResult"),
        points=_float(item.get("points")),
        net_run_rate=_float(item.get("netRunRate")),
        updated_at=from_iso(updated_at) if updated_at else None,
    )


def _float(number: Any) -> float | None:
    return None if number is None else float(number)
