"""A recorded match, as the replay plays it."""

from collections.abc import Mapping
from dataclasses import dataclass

from datastore.matches.cricket import Ball, LineupPlayer, Match, Result, Target
from datastore.matches.leagues import League
from datastore.matches.teams import Team
from pipelines.matches.scoring.scorebook import Player


@dataclass(frozen=True, slots=True)
class RecordedInnings:
    """One innings; its balls are those of the recording from `first` up to `end`. Numbers count super overs too."""

    number: int
    team_id: str
    first: int
    end: int
    super_over: bool = False
    declared: bool = False
    forfeited: bool = False
    penalty_before: int = 0
    penalty_after: int = 0
    absent: tuple[Player, ...] = ()
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Substitution:
    """Somebody takes another's place for the rest of the match; `out_id` is None when nobody leaves for it."""

    team_id: str
    out_id: str | None
    incoming: Player


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole match. `match` is the fixture before a ball is bowled; `result` and what follows come at the end.

    `over_ends` are the ids of the balls that complete an over, as the umpires counted. `substitutions` come before the
    ball whose id they have.
    """

    match: Match
    teams: tuple[Team, Team]
    league: League
    season: str | None
    days: int
    balls: tuple[Ball, ...]
    over_ends: frozenset[int]
    innings: tuple[RecordedInnings, ...]
    squads: Mapping[str, tuple[Player, ...]]
    lineups: tuple[LineupPlayer, ...]
    substitutions: Mapping[int, tuple[Substitution, ...]]
    result: Result | None
    outcome: str | None
    player_of_match: str | None
    revision: int

    @property
    def match_id(self) -> str:
        return self.match.match_id
