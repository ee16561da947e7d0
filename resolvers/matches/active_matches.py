"""The states of active matches, AM-1 … AM-7, and the public live score."""

import strawberry

from datastore.keyspace.matches import active_matches as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import existing
from datastore.matches.live_state import ActiveMatch, LiveScore
from datastore.model.access_patterns import consistently
from resolvers.matches import ids
from resolvers.shared.arguments import Consistent, MatchId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.selected_fields import selected_child_fields

# The fields of a live score that the index of live matches contains.
SUMMARY_FIELDS = frozenset(
    {
        *("__typename", "version", "updatedAt", "status", "phase"),
        *("innings", "partnership", "target", "result", "note"),
    }
)


async def active_match(info: Info, id: MatchId, consistent: Consistent = False) -> ActiveMatch | None:
    require(info.context.identity, keys.STATE)
    return await info.context.active_matches.by_id(ids.match_id("id", id), consistently(keys.STATE, consistent))


async def active_match_of(parent: strawberry.Parent[Match], info: Info) -> ActiveMatch | None:
    require(info.context.identity, keys.STATE)
    return await info.context.active_matches.by_id(parent.match_id)


def previous_ball_id(parent: strawberry.Parent[ActiveMatch]) -> strawberry.ID | None:
    return strawberry.ID(str(parent.previous_ball_id)) if parent.previous_ball_id else None


async def live_score(parent: strawberry.Parent[Match], info: Info) -> LiveScore | None:
    state = await info.context.active_matches.by_id(parent.match_id, keys.LIVE_SCORE)
    return None if state is None else state.live


async def active_matches(info: Info, consistent: Consistent = False) -> list[ActiveMatch]:
    require(info.context.identity, keys.ALL_ACTIVE)
    return await info.context.active_matches.all(consistently(keys.ALL_ACTIVE, consistent))


async def live_matches(info: Info) -> list[ActiveMatch]:
    details = not SUMMARY_FIELDS.issuperset(selected_child_fields(info, "liveScore"))
    return await info.context.active_matches.live(details=details)


def listed_score(parent: strawberry.Parent[ActiveMatch]) -> LiveScore:
    """Return the score that `live_matches` read together with all other matches of the list."""
    return parent.live


async def register_active_match(info: Info, id: MatchId) -> ActiveMatch:
    require(info.context.identity, keys.REGISTER)
    match_id = ids.match_id("id", id)
    match = existing(await info.context.fixtures.latest(match_id), match_id)
    return await info.context.active_matches.register(match)


async def end_active_match(info: Info, id: MatchId) -> ActiveMatch:
    require(info.context.identity, keys.DEACTIVATE)
    return await info.context.active_matches.deactivate(ids.match_id("id", id))


async def delete_active_match(info: Info, id: MatchId) -> ActiveMatch | None:
    require(info.context.identity, keys.DELETE)
    return await info.context.active_matches.delete(ids.match_id("id", id))
