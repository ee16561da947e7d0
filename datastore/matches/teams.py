"""Teams: reference data, kept in step with the provider (TM-1 … TM-4)."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Team:
    """A team. `code` is its short name (IND), `national` tells a country's side from a club."""

    team_id: str
    name: str
    code: str
    image_url: str | None = None
    country_id: str | None = None
    national: bool = False
    updated_at: datetime | None = None
