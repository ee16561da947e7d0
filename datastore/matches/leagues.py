"""Leagues and competitions: reference data (LG-1 … LG-6)."""

from dataclasses import dataclass
from datetime import datetime


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
