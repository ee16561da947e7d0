"""Live Activities: LA-1 … LA-6."""

from typing import Annotated, Unpack

import strawberry

from datastore.errors import NotFound
from datastore.keyspace.matches import live_activities as keys
from datastore.matches.cricket import Match
from datastore.matches.fixtures import existing
from datastore.matches.live_activities import LiveActivity
from datastore.model.identity import Identity
from datastore.session.pagination import SortOrder
from resolvers.matches import ids
from resolvers.matches.devices import push_token
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, MatchId, UserId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, paged, paged_in

LONGEST_REASON = 100

DeviceId = Annotated[
    strawberry.ID,
    argument(
        "The id that the app has given the phone, the same at each start, 1 to 100 characters; it names no `Device`. "
        "For an existing session also the `id` of the `LiveActivity`."
    ),
]
Owner = Annotated[strawberry.ID | None, argument("The `userId` or `id` of the session's user; by default the caller.")]
UPDATE_TOKEN = "The Live Activity's push token, as supplied by iOS: 32 to 200 hexadecimal digits."


@strawberry.input(description="A Live Activity session to start.")
class RegisterLiveActivityInput:
    update_token: str = required(UPDATE_TOKEN)


@strawberry.input(description="The changes of a Live Activity session.")
class UpdateLiveActivityInput:
    update_token: str = required(UPDATE_TOKEN)
    expected_version: int | None = optional(EXPECTED_VERSION)


@strawberry.input(description="The end of a Live Activity session.")
class EndLiveActivityInput:
    reason: str | None = optional(
        "The reason, 1 to 100 characters; by default `user`, or `system` for another user's session."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


NewSession = Annotated[RegisterLiveActivityInput, argument("The session.")]
Changes = Annotated[UpdateLiveActivityInput, argument("The changes.")]
End = Annotated[
    EndLiveActivityInput | None, argument("The reason and the condition; by default those of an empty input.")
]


@paged
async def live_activities(info: Info, user_id: UserId, **paging: Unpack[Paging]) -> Connection[LiveActivity]:
    return await _of_user(info, user_id, paging)


@paged
async def my_live_activities(
    parent: strawberry.Parent[Identity], info: Info, **paging: Unpack[Paging]
) -> Connection[LiveActivity]:
    return await _of_user(info, parent.user_id, paging)


async def _of_user(info: Info, user_id: str, paging: Paging) -> Connection[LiveActivity]:
    user_id = validate.user_id("userId", user_id)
    owner = {"userId": user_id}
    connection = connection_of(info, keys.ACTIVITIES_OF_USER, LiveActivity.decoder, owner, owner=user_id)
    page = await info.context.live_activities.of_user(user_id, connection.span(**paging))
    return connection.of(page)


@paged_in(SortOrder.ASCENDING)
async def live_activities_of_match(
    parent: strawberry.Parent[Match], info: Info, **paging: Unpack[Paging]
) -> Connection[LiveActivity]:
    connection = connection_of(info, keys.ACTIVITIES_OF_MATCH, LiveActivity.decoder, {"matchId": parent.match_id})
    page = await info.context.live_activities.of_match(parent.match_id, connection.span(**paging))
    return connection.of(page)


async def register_live_activity(info: Info, match_id: MatchId, device_id: DeviceId, input: NewSession) -> LiveActivity:
    caller = require(info.context.identity, keys.REGISTER_ACTIVITY)
    token = push_token("updateToken", input.update_token)
    id, device = _session(match_id, caller.user_id, device_id)
    match = existing(await info.context.fixtures.by_id(id), id)
    return await info.context.live_activities.register(match, caller.user_id, device, token)


async def update_live_activity(info: Info, match_id: MatchId, device_id: DeviceId, input: Changes) -> LiveActivity:
    caller = require(info.context.identity, keys.UPDATE_TOKEN)
    token = push_token("updateToken", input.update_token)
    match, device = _session(match_id, caller.user_id, device_id)
    expected = validate.version(input.expected_version)
    return await info.context.live_activities.update_token(match, caller.user_id, device, token, expected)


async def end_live_activity(
    info: Info, match_id: MatchId, device_id: DeviceId, user_id: Owner = None, input: End = None
) -> LiveActivity:
    given_owner = None if user_id is None else validate.user_id("userId", user_id)
    caller = require(info.context.identity, keys.END_ACTIVITY, owner=given_owner)
    owner = caller.user_id if given_owner is None else given_owner
    given = EndLiveActivityInput() if input is None else input
    reason, expected = given.reason, validate.version(given.expected_version)
    if reason is None:
        reason = "user" if owner == caller.user_id else "system"
    end_reason = validate.line("reason", reason, LONGEST_REASON)
    match, device = _session(match_id, owner, device_id)
    activity = await info.context.live_activities.end(match, owner, device, end_reason, expected)
    if activity is None:
        raise NotFound(f"There is no Live Activity session of this device for the match {match!r}.")
    return activity


async def suspend_live_activity(info: Info, match_id: MatchId, user_id: UserId, device_id: DeviceId) -> LiveActivity:
    require(info.context.identity, keys.SUSPEND_ACTIVITY)
    owner = validate.user_id("userId", user_id)
    match, device = _session(match_id, owner, device_id)
    activity = await info.context.live_activities.suspend(match, owner, device)
    if activity is None:
        raise NotFound(f"There is no Live Activity session of this device for the match {match!r}, or it has ended.")
    return activity


def _session(match_id: str, user_id: str, device_id: str) -> tuple[str, str]:
    """Return the ids of the match and of the device of a user's session. The device may be a session's global id."""
    match = ids.match_id("matchId", match_id)
    return match, validate.id("deviceId", device_id, of=("LiveActivity",), within=(match, user_id))
