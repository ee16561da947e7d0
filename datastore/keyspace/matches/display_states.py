"""The table `DisplayStateCache`: the state of a match that widgets show, for each team."""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Table, Who
from datastore.model.composite_keys import Key, join

DISPLAY_STATES = Table(
    name="DisplayStateCache",
    partition="cacheKey",
    ttl="ttl",
    item_bytes=1000,
)


def display_state(match_id: str, team_id: str) -> Key:
    return Key(join("DISPLAY", match_id, team_id))


DISPLAY_STATE = AccessPattern(
    id="DSC-1",
    question="The state of a match that a widget shows for a team, rebuilt when it has expired",
    table=DISPLAY_STATES,
    # To rebuild it, the match, its live state, the teams and the league are read.
    operations=("GetItem", "BatchGetItem", "PutItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=SHARED_MS,
    fields=("displayState", "Match.displayState", "node", "nodes"),
    key="cacheKey = DISPLAY#<matchId>#<teamId>",
)
CACHE_STATE = AccessPattern(
    id="DSC-2",
    question="Cache a display state, unless a newer one is cached",
    table=DISPLAY_STATES,
    operations=("PutItem",),
    who=Who.INTERNAL,
    # An expired item counts as absent: DynamoDB may take days to delete it.
    # Items of other programs have no version.
    condition="attribute_not_exists(#version) OR #version <= :version OR #ttl <= :now",
)

PATTERNS: tuple[AccessPattern, ...] = (DISPLAY_STATE, CACHE_STATE)
