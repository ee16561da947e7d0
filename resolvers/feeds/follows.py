"""Follows between users: FEED-008, FEED-N3 and FEED-W4."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Unpack

import strawberry

from datastore.errors import BadUserInput
from datastore.feeds.follows import Follow, edge_from
from datastore.keyspace.feeds import follows as keys
from datastore.session.pagination import SortOrder
from resolvers.shared import validation as validate
from resolvers.shared.arguments import UserId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, connections_of, paged_in
from resolvers.shared.selected_fields import has_child_reads


@paged_in(SortOrder.DESCENDING)
async def followers(info: Info, user_id: UserId, **paging: Unpack[Paging]) -> Connection[Follow]:
    context, followee = info.context, validate.user_id("userId", user_id)
    connection = connection_of(info, keys.FOLLOWERS, edge_from)
    page = await context.follows.followers(followee, connection.span(**paging))
    return connection.of(page)


@paged_in(SortOrder.DESCENDING)
async def followers_of_users(
    user_ids: Sequence[str], info: Info, **paging: Unpack[Paging]
) -> Sequence[Connection[Follow] | BaseException]:
    read = partial(info.context.follows.followers_of_each, has_child_reads=has_child_reads(info))
    return await connections_of(info, keys.FOLLOWERS, edge_from, "userId", user_ids, paging, read)


@paged_in(SortOrder.ASCENDING, consistent=True)
async def following(info: Info, user_id: UserId, **paging: Unpack[Paging]) -> Connection[Follow]:
    context, follower = info.context, validate.user_id("userId", user_id)
    connection = connection_of(info, keys.FOLLOWED, Follow.decoder, {"userId": follower})
    page = await context.follows.followed_by(follower, connection.span(**paging))
    return connection.of(page)


@paged_in(SortOrder.ASCENDING)
async def followed_by_users(
    user_ids: Sequence[str], info: Info, **paging: Unpack[Paging]
) -> Sequence[Connection[Follow] | BaseException]:
    read = partial(info.context.follows.followed_by_each, has_child_reads=has_child_reads(info))
    return await connections_of(info, keys.FOLLOWED, Follow.decoder, "userId", user_ids, paging, read)


async def followed_by_viewer(user_ids: Sequence[str], info: Info) -> Sequence[bool | Exception | None]:
    context = info.context
    return [None] * len(user_ids) if context.identity is None else await context.visibility.are_followed(user_ids)


def followed_at(parent: strawberry.Parent[Follow]) -> datetime:
    return parent.since


async def follow(info: Info, user_id: UserId) -> Follow:
    caller = require(info.context.identity, keys.FOLLOW)
    followee = validate.user_id("userId", user_id)
    if followee == caller.user_id:
        raise BadUserInput("`userId` must be another user's: users cannot follow themselves.", field="userId")
    follow = await info.context.follows.follow(caller.user_id, followee)
    info.context.own_changes.follow(follow, exists=True)
    return follow


async def unfollow(info: Info, user_id: UserId) -> Follow | None:
    caller = require(info.context.identity, keys.UNFOLLOW)
    follow = await info.context.follows.unfollow(caller.user_id, validate.user_id("userId", user_id))
    if follow is not None:
        info.context.own_changes.follow(follow, exists=False)
    return follow
