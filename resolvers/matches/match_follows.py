"""Follows of matches: FOL-1 … FOL-6."""

from typing import Annotated

import strawberry

from datastore.keyspace.matches import match_follows as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import no_match
from datastore.matches.match_follows import MatchFollow, match_follow_from
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, ExpectedVersion, First, Last, MatchId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection

Side = Annotated[strawberry.ID, strawberry.argument(description="The `teamId` of one of the match's two teams.")]


async def match_follow(info: Info, match_id: MatchId) -> MatchFollow | None:
    caller = require(info.context.identity, keys.FOLLOW_OF_USER)
    return await info.context.match_follows.by_key(validate.id("matchId", match_id), caller.user_id)


async def is_followed(parent: strawberry.Parent[Match], info: Info) -> bool:
    caller = require(info.context.identity, keys.FOLLOW_OF_USER)
    return await info.context.match_follows.by_key(parent.match_id, caller.user_id) is not None


async def match(parent: strawberry.Parent[MatchFollow], info: Info) -> Match | None:
    return await info.context.fixtures.by_id(parent.match_id)


async def followers(
    parent: strawberry.Parent[Match],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[MatchFollow]:
    require(info.context.identity, keys.FOLLOWERS)
    arguments = {"matchId": parent.match_id}
    connection = Connection(
        info.context.services.cursors, keys.FOLLOWERS, "Match.followers", arguments, match_follow_from
    )
    page = await info.context.match_follows.of_match(parent.match_id, connection.span(first, after, last, before))
    return connection.of(page)


async def follow_match(info: Info, match_id: MatchId, team_id: Side) -> MatchFollow:
    caller = require(info.context.identity, keys.FOLLOW)
    side = validate.id("teamId", team_id)
    match = await info.context.fixtures.by_id(validate.id("matchId", match_id))
    if match is None:
        raise no_match(match_id)
    return await info.context.match_follows.follow(match, caller.user_id, side)


async def unfollow_match(info: Info, match_id: MatchId) -> MatchFollow | None:
    caller = require(info.context.identity, keys.UNFOLLOW)
    return await info.context.match_follows.unfollow(validate.id("matchId", match_id), caller.user_id)


async def update_match_follow(
    info: Info, match_id: MatchId, team_id: Side, expected_version: ExpectedVersion = None
) -> MatchFollow:
    caller = require(info.context.identity, keys.CHANGE_TEAM)
    match, side = validate.id("matchId", match_id), validate.id("teamId", team_id)
    expected = validate.version(expected_version)
    return await info.context.match_follows.change_team(match, caller.user_id, side, expected)


async def remove_match_follows(info: Info, match_id: MatchId) -> int:
    require(info.context.identity, keys.REMOVE_FOLLOWS)
    return await info.context.match_follows.remove_all(validate.id("matchId", match_id))
