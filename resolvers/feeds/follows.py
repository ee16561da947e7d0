"""Follows between users: FEED-008, FEED-N3 and FEED-W4."""

from datetime import datetime

import strawberry

from datastore.errors import BadUserInput
from datastore.feeds.follows import Follow, edge_from, following_from
from datastore.feeds.users import User
from datastore.keyspace.feeds import follows as keys
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, UserId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection
from resolvers.shared.selected_fields import has_child_reads


async def followers(
    info: Info, user_id: UserId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[Follow]:
    context, followee = info.context, validate.user_id("userId", user_id)
    connection = Connection(
        context.services.cursors, keys.FOLLOWERS, "Query.followers", {"userId": followee}, edge_from
    )
    page = await context.follows.followers(followee, connection.span(first, after, last, before))
    return connection.of(page)


async def followers_of_user(
    parent: strawberry.Parent[User],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Follow]:
    context = info.context
    connection = Connection(
        context.services.cursors, keys.FOLLOWERS, "User.followers", {"userId": parent.user_id}, edge_from
    )
    span = connection.span(first, after, last, before)
    page = await context.follows.followers(parent.user_id, span, has_child_reads=has_child_reads(info, "user"))
    return connection.of(page)


async def followed_by_user(
    parent: strawberry.Parent[User],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Follow]:
    context = info.context
    connection = Connection(
        context.services.cursors, keys.FOLLOWED, "User.following", {"userId": parent.user_id}, following_from
    )
    span = connection.span(first, after, last, before)
    page = await context.follows.followed(parent.user_id, span, has_child_reads=has_child_reads(info, "user"))
    return connection.of(page)


async def followed_by_viewer(parent: strawberry.Parent[User], info: Info) -> bool | None:
    return None if info.context.identity is None else await info.context.visibility.follows(parent.user_id)


async def follower(parent: strawberry.Parent[Follow], info: Info) -> User | None:
    return await info.context.users.by_id(parent.follower_id)


async def followed(parent: strawberry.Parent[Follow], info: Info) -> User | None:
    return await info.context.users.by_id(parent.followee_id)


def follower_id(parent: strawberry.Parent[Follow]) -> str:
    return parent.follower_id


def followee_id(parent: strawberry.Parent[Follow]) -> str:
    return parent.followee_id


def followed_at(parent: strawberry.Parent[Follow]) -> datetime:
    return parent.since


async def follow(info: Info, user_id: UserId) -> Follow:
    caller = require(info.context.identity, keys.FOLLOW)
    followee = validate.user_id("userId", user_id)
    if followee == caller.user_id:
        raise BadUserInput("`userId` must be another user's: users cannot follow themselves.", field="userId")
    return await info.context.follows.follow(caller.user_id, followee)


async def unfollow(info: Info, user_id: UserId) -> Follow | None:
    caller = require(info.context.identity, keys.UNFOLLOW)
    return await info.context.follows.unfollow(caller.user_id, validate.user_id("userId", user_id))
