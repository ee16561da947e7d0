"""How each team fares in a season of a league (TS-1, TS-2)."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TeamSeason:
    """A team's row in the table of a season; a figure is None where the provider does not tell it."""

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
