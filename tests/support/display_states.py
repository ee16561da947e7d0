"""Steps and data for the tests of display states."""

from typing import Any

from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.cricket import (
    InningsScore,
    Match,
    MatchPhase,
    Target,
)
from datastore.matches.display import MatchNames
from datastore.matches.leagues import League
from datastore.matches.live_state import ActiveMatch, LiveScore, initial_state
from datastore.matches.teams import Team
from datastore.session.store import Store
from tests.support.served import NOON

MUMBAI = Team("1", "Mumbai", "MUM")
CHENNAI = Team("2", "Chennai", "CHE")
NAMES = MatchNames(MUMBAI, CHENNAI, League("9", "Premier League", "IPL"))
LEAGUE_ITEM = {"leagueId": "9", "name": "Premier League", "code": "IPL", "active": True}


def fixture_in_chase(**changes: Any) -> Match:
    match = Match(
        match_id="m1",
        league_id="9",
        league_code="IPL",
        home_team_id="1",
        away_team_id="2",
        start_time=NOON,
        scheduled_overs=20,
        format="T20",
    )
    return replace(match, **changes)


def first(runs: int = 153, wickets: int = 6, **more: Any) -> InningsScore:
    return InningsScore(1, "2", runs, wickets, completed_overs=20, legal_balls=120, **more)


def second(runs: int = 120, wickets: int = 3, overs: int = 15, balls: int = 4) -> InningsScore:
    return InningsScore(2, "1", runs, wickets, overs, balls, legal_balls=overs * 6 + balls)


def live(match: Match, version: int = 7, **changes: Any) -> ActiveMatch:
    score = LiveScore(**{"status": "2nd Innings", "phase": MatchPhase.LIVE} | changes)
    return replace(initial_state(match), live=score, version=version, updated_at=NOON)


def in_chase(version: int = 7, **changes: Any) -> ActiveMatch:
    """Return a state in which Mumbai need 34 from 26 balls."""
    usual = {"innings": (first(), second()), "target": Target(154)}
    return live(fixture_in_chase(), version, **usual | changes)


async def store_match(store: Store, match: Match, active: ActiveMatch | None = None) -> None:
    await store.write_all(FIXTURES, puts=[replace(match, updated_at=NOON).item()])
    await store.write_all(TEAMS, puts=[MUMBAI.item(), CHENNAI.item()])
    await store.write_all(LEAGUES, puts=[LEAGUE_ITEM])
    if active is not None:
        await store.write_all(ACTIVE_MATCHES, puts=[active.item()])
