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
from datastore.model.access_patterns import Table, patterns_of

_MODULES = (
    *(fixtures, active_matches, teams, team_seasons, leagues, match_follows),
    *(devices, live_activities, display_states, fixture_cache, locks),
)
TABLES = tuple(value for module in _MODULES for value in vars(module).values() if isinstance(value, Table))
PATTERNS = patterns_of(*_MODULES)
