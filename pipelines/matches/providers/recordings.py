"""The records of a recorded match, which the replay provider plays."""

from collections.abc import Mapping
from dataclasses import dataclass

from datastore.matches.cricket import Ball, LineupPlayer, Match, Result, Target
from datastore.matches.leagues import League
from datastore.matches.teams import Team
from pipelines.matches.scoring.scorebook import Player


@dataclass(frozen=True, slots=True)
class RecordedInnings:
    """One innings of a recording."""

    #: From 1, super overs included.
    number: int
    team_id: str
    #: The index of its first ball in the recording, and the index after its last ball.
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
    """A player who replaces another for the rest of the match."""

    team_id: str
    #: None when no player leaves.
    out_id: str | None
    incoming: Player


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole match."""

    #: The fixture before the first ball.
    match: Match
    teams: tuple[Team, Team]
    league: League
    season: str | None
    days: int
    balls: tuple[Ball, ...]
    #: The ids of the balls that complete an over, as the umpires counted.
    over_ends: frozenset[int]
    innings: tuple[RecordedInnings, ...]
    squads: Mapping[str, tuple[Player, ...]]
    lineups: tuple[LineupPlayer, ...]
    #: By the id of the ball before which they take effect.
    substitutions: Mapping[int, tuple[Substitution, ...]]
    #: Like `outcome` and `player_of_match`, shown once the match is over.
    result: Result | None
    outcome: str | None
    player_of_match: str | None
    revision: int

    @property
    def match_id(self) -> str:
        return self.match.match_id
