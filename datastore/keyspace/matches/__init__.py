"""The eleven tables of the matches: a module for each."""

from datastore.keyspace.matches import (
    active_matches,
    devices,
    display_states,
    fixture_cache,
    fixtures,
    leagues,
    live_activities,
    locks,
    match_follows,
    team_seasons,
    teams,
)
from datastore.model.access_patterns import AccessPattern, Table

TABLES: tuple[Table, ...] = (
    fixtures.FIXTURES,
    active_matches.ACTIVE_MATCHES,
    teams.TEAMS,
    team_seasons.TEAM_SEASONS,
    leagues.LEAGUES,
    match_follows.MATCH_FOLLOWS,
    devices.DEVICES,
    live_activities.LIVE_ACTIVITIES,
    display_states.DISPLAY_STATES,
    fixture_cache.FIXTURE_CACHE,
    locks.LOCKS,
)
PATTERNS: tuple[AccessPattern, ...] = (
    *fixtures.PATTERNS,
    *active_matches.PATTERNS,
    *teams.PATTERNS,
    *team_seasons.PATTERNS,
    *leagues.PATTERNS,
    *match_follows.PATTERNS,
    *devices.PATTERNS,
    *live_activities.PATTERNS,
    *display_states.PATTERNS,
    *fixture_cache.PATTERNS,
    *locks.PATTERNS,
)
