"""The table `DisplayStateCache`: what widgets show of a match, computed for each team."""

from datastore.model.access_patterns import CROWD_MS, AccessPattern, Table, Who
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
    question="What a widget shows of a match from one team's side, built anew when its time has passed",
    table=DISPLAY_STATES,
    # Without one, the match, its live state, the teams and the league are read, and what was built is put.
    operations=("GetItem", "BatchGetItem", "PutItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=CROWD_MS,
    fields=("displayState", "Match.displayState", "node", "nodes"),
    key="cacheKey = DISPLAY#<matchId>#<teamId>",
)
KEEP = AccessPattern(
    id="DSC-2",
    question="Keep a display state for a while, unless a newer one is kept",
    table=DISPLAY_STATES,
    operations=("PutItem",),
    who=Who.INTERNAL,
    # DynamoDB deletes what has expired within days: until then it must not stand in the way.
    # A state of another program has no version.
    condition="attribute_not_exists(#version) OR #version <= :version OR #ttl <= :now",
)

PATTERNS: tuple[AccessPattern, ...] = (DISPLAY_STATE, KEEP)
