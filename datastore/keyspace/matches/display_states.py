"""The table `DisplayStateCache`: the state of a match that widgets show, for each team."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import GET, PUT, SHARED_MS, AccessPattern, Table, Who

DISPLAY_STATES = Table(name="DisplayStateCache", partition="cacheKey", ttl="ttl")


@item_key(DISPLAY_STATES)
def display_state(match_id: str, team_id: str) -> KeyParts:
    return ("DISPLAY", match_id, team_id), ()


DISPLAY_STATE = AccessPattern(
    "DSC-1",
    "The state of a match that a widget shows for a team, rebuilt when it has expired",
    DISPLAY_STATES,
    # To rebuild it, the match, its live state, the teams and the league are read.
    GET + PUT,
    Who.ANY,
    ("displayState", "Match.displayState", "node", "nodes"),
    max_age=2,
    shared_ms=SHARED_MS,
    key=display_state.documented,
)
CACHE_STATE = display_state.put(
    "DSC-2",
    "Cache a display state, unless a newer one is cached",
    # Items of other programs have no version.
    condition="attribute_not_exists(#version) OR #version <= :version",
)
