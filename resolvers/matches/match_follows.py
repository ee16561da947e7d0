"""Follows of matches: FOL-1 … FOL-6."""

from typing import Annotated, Unpack

import strawberry

from datastore.keyspace.matches import match_follows as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import existing
from datastore.matches.match_follows import MatchFollow
from datastore.session.pagination import SortOrder
from resolvers.matches import ids
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, MatchId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in


@strawberry.input(description="A follow of a match.")
class FollowMatchInput:
    team_id: strawberry.ID = required("The `teamId` or `id` of one of the match's two teams.")


@strawberry.input(description="The changes of a follow of a match.")
class UpdateMatchFollowInput:
    team_id: strawberry.ID = required("The `teamId` or `id` of one of the match's two teams.")
    expected_version: int | None = optional(EXPECTED_VERSION)


NewFollow = Annotated[FollowMatchInput, argument("The follow.")]
Changes = Annotated[UpdateMatchFollowInput, argument("The changes.")]


async def match_follow(info: Info, match_id: MatchId, consistent: Consistent = False) -> MatchFollow | None:
    caller = require(info.context.identity, keys.FOLLOW_OF_USER)
    id = ids.match_id("matchId", match_id)
    return await info.context.match_follows.by_key(id, caller.user_id, consistent=consistent)


async def followed_by_viewer(parent: strawberry.Parent[Match], info: Info) -> bool | None:
    caller = info.context.identity
    if caller is None:
        return None
    return await info.context.match_follows.by_key(parent.match_id, caller.user_id) is not None


@paged_in(SortOrder.ASCENDING)
async def follows_of_match(
    parent: strawberry.Parent[Match], info: Info, **paging: Unpack[Paging]
) -> Connection[MatchFollow]:
    connection = connection_of(info, keys.FOLLOWERS, MatchFollow.decoder, {"matchId": parent.match_id})
    page = await info.context.match_follows.of_match(parent.match_id, connection.span(**paging))
    return connection.of(page)


async def follow_match(info: Info, match_id: MatchId, input: NewFollow) -> MatchFollow:
    caller = require(info.context.identity, keys.FOLLOW)
    side = ids.team_id("teamId", input.team_id)
    id = ids.match_id("matchId", match_id)
    match = existing(await info.context.fixtures.by_id(id), id)
    return await info.context.match_follows.follow(match, caller.user_id, side)


async def unfollow_match(info: Info, match_id: MatchId) -> MatchFollow | None:
    caller = require(info.context.identity, keys.UNFOLLOW)
    return await info.context.match_follows.unfollow(ids.match_id("matchId", match_id), caller.user_id)


async def update_match_follow(info: Info, match_id: MatchId, input: Changes) -> MatchFollow:
    caller = require(info.context.identity, keys.CHANGE_TEAM)
    match, side = ids.match_id("matchId", match_id), ids.team_id("teamId", input.team_id)
    expected = validate.version(input.expected_version)
    return await info.context.match_follows.change_team(match, caller.user_id, side, expected)


async def delete_match_follows(info: Info, match_id: MatchId) -> int:
    require(info.context.identity, keys.REMOVE_FOLLOWS)
    return await info.context.match_follows.remove_all(ids.match_id("matchId", match_id))
