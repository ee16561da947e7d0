"""Live Activities: LA-1 … LA-6."""

from typing import Annotated

import strawberry

from datastore.errors import NotFound
from datastore.keyspace.matches import live_activities as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import no_match
from datastore.matches.live_activities import LiveActivity, live_activity_from
from datastore.model.identity import Identity
from resolvers.matches.devices import may_see_tokens, push_token
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, ExpectedVersion, First, Last, MatchId, UserId
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.paging import Connection, PagingArguments

LONGEST_REASON = 100

DeviceId = Annotated[
    strawberry.ID,
    strawberry.argument(description="The app's id of the device, the same at each start, 1 to 100 characters."),
]
UpdateToken = Annotated[
    str,
    strawberry.argument(
        description="The Live Activity's push token, as supplied by iOS: 32 to 200 hexadecimal digits."
    ),
]
Owner = Annotated[
    strawberry.ID | None, strawberry.argument(description="The id of the session's user; by default the caller.")
]
Reason = Annotated[
    str | None,
    strawberry.argument(
        description="The reason, 1 to 100 characters; by default `user`, or `system` for another user's session."
    ),
]


async def live_activities(
    info: Info,
    user_id: UserId,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[LiveActivity]:
    require(info.context.identity, keys.ACTIVITIES_OF_USER, owner=user_id)
    return await _of_user(
        info.context, "Query.liveActivities", validate.user_id("userId", user_id), (first, after, last, before)
    )


async def my_live_activities(
    parent: strawberry.Parent[Identity],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[LiveActivity]:
    return await _of_user(info.context, "Me.liveActivities", parent.user_id, (first, after, last, before))


async def _of_user(context: Context, field: str, user_id: str, paging: PagingArguments) -> Connection[LiveActivity]:
    connection = Connection(
        context.services.cursors, keys.ACTIVITIES_OF_USER, field, {"userId": user_id}, live_activity_from
    )
    page = await context.live_activities.of_user(user_id, connection.span(*paging))
    return connection.of(page)


async def live_activities_of_match(
    parent: strawberry.Parent[Match],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[LiveActivity]:
    require(info.context.identity, keys.ACTIVITIES_OF_MATCH)
    arguments = {"matchId": parent.match_id}
    connection = Connection(
        info.context.services.cursors, keys.ACTIVITIES_OF_MATCH, "Match.liveActivities", arguments, live_activity_from
    )
    page = await info.context.live_activities.of_match(parent.match_id, connection.span(first, after, last, before))
    return connection.of(page)


async def match(parent: strawberry.Parent[LiveActivity], info: Info) -> Match | None:
    return await info.context.fixtures.by_id(parent.match_id)


def update_token(parent: strawberry.Parent[LiveActivity], info: Info) -> str | None:
    return parent.update_token if may_see_tokens(info.context, parent.user_id) else None


async def register_live_activity(
    info: Info, match_id: MatchId, device_id: DeviceId, update_token: UpdateToken
) -> LiveActivity:
    caller = require(info.context.identity, keys.REGISTER_ACTIVITY)
    token = push_token("updateToken", update_token)
    device = validate.id("deviceId", device_id)
    match = await info.context.fixtures.by_id(validate.id("matchId", match_id))
    if match is None:
        raise no_match(match_id)
    return await info.context.live_activities.register(match, caller.user_id, device, token)


async def update_live_activity_token(
    info: Info,
    match_id: MatchId,
    device_id: DeviceId,
    update_token: UpdateToken,
    expected_version: ExpectedVersion = None,
) -> LiveActivity:
    caller = require(info.context.identity, keys.UPDATE_TOKEN)
    token = push_token("updateToken", update_token)
    match, device = validate.id("matchId", match_id), validate.id("deviceId", device_id)
    expected = validate.version(expected_version)
    return await info.context.live_activities.update_token(match, caller.user_id, device, token, expected)


async def end_live_activity(
    info: Info, match_id: MatchId, device_id: DeviceId, user_id: Owner = None, reason: Reason = None
) -> LiveActivity:
    given_owner = None if user_id is None else validate.user_id("userId", user_id)
    caller = require(info.context.identity, keys.END_ACTIVITY, owner=given_owner)
    owner = caller.user_id if given_owner is None else given_owner
    if reason is None:
        reason = "user" if owner == caller.user_id else "system"
    end_reason = validate.line("reason", reason, LONGEST_REASON)
    match, device = validate.id("matchId", match_id), validate.id("deviceId", device_id)
    activity = await info.context.live_activities.end(match, owner, device, end_reason)
    if activity is None:
        raise NotFound(f"There is no Live Activity session of this device for the match {match_id!r}.")
    return activity


async def suspend_live_activity(info: Info, match_id: MatchId, user_id: UserId, device_id: DeviceId) -> LiveActivity:
    require(info.context.identity, keys.SUSPEND_ACTIVITY)
    match, device = validate.id("matchId", match_id), validate.id("deviceId", device_id)
    activity = await info.context.live_activities.suspend(match, validate.user_id("userId", user_id), device)
    if activity is None:
        raise NotFound(f"There is no Live Activity session of this device for the match {match_id!r}, or it has ended.")
    return activity
