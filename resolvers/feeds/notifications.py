"""Notifications: FEED-009, FEED-W5 and the subscription FEED-S1."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import UnsharedSource
from datastore.feeds.comments import Comment
from datastore.feeds.notifications import Notification, notification_from
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import comments as comment_keys
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, Buffer, First, Last, UserId, WhenSlow
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, is_event, queue_limits
from resolvers.shared.paging import Connection

LONGEST_ID = 1000

NotificationId = Annotated[strawberry.ID, strawberry.argument(description="The notification's `notificationId`.")]


async def notifications(
    info: Info, user_id: UserId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[Notification]:
    context, owner = info.context, validate.user_id("userId", user_id)
    require(context.identity, keys.UNREAD, owner=owner)
    connection = Connection(
        context.services.cursors, keys.UNREAD, "Query.notifications", {"userId": owner}, notification_from
    )
    page = await context.notifications.unread(owner, connection.span(first, after, last, before))
    return connection.of(page)


async def actor(parent: strawberry.Parent[Notification], info: Info) -> User | None:
    return None if parent.actor_id is None else await info.context.users.by_id(parent.actor_id)


async def post(parent: strawberry.Parent[Notification], info: Info) -> Post | None:
    if parent.post_id is None:
        return None
    return await info.context.posts.visible(parent.post_id, _post_pattern(info))


def _post_pattern(info: Info) -> AccessPattern:
    return post_keys.POST_OF_EVENT if is_event(info) else post_keys.POST


async def comment(parent: strawberry.Parent[Notification], info: Info) -> Comment | None:
    context = info.context
    if parent.post_id is None or parent.comment_id is None:
        return None
    pattern = comment_keys.COMMENT_OF_EVENT if is_event(info) else comment_keys.COMMENT
    post, comment = await asyncio.gather(
        context.posts.visible(parent.post_id, _post_pattern(info)),
        context.comments.by_key(parent.post_id, parent.comment_id, pattern),
    )
    return comment if post else None


async def mark_notification_read(info: Info, notification_id: NotificationId) -> Notification | None:
    caller = require(info.context.identity, keys.MARK_READ)
    id = validate.id("notificationId", notification_id, LONGEST_ID)
    return await info.context.notifications.mark_read(caller.user_id, id)


async def notification_received(
    info: Info, user_id: UserId, when_slow: WhenSlow = keys.NOTIFICATION_RECEIVED.default_policy, buffer: Buffer = None
) -> UnsharedSource[Notification]:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.NOTIFICATION_RECEIVED, owner=owner)

    def received(change: Change) -> Notification | None:
        if change.keys["PK"] != keys.unread(owner) or change.new is None:
            return None
        notification = notification_from(change.new)
        before = -1 if change.old is None else int(change.old.get("actor_count", 0))
        return notification if notification.actor_count > before else None

    limits = queue_limits(when_slow, buffer)
    notifications = follow(info.context, FEED, received, limits, key=_id)
    return UnsharedSource(limits, _unexpired(info.context, notifications), _id)


def _id(notification: Notification) -> str:
    return notification.notification_id


async def _unexpired(
    context: Context, notifications: AsyncGenerator[Notification, None]
) -> AsyncGenerator[Notification, None]:
    """Yield the notifications that have not expired by the time they are delivered."""
    async with aclosing(notifications):
        async for notification in notifications:
            if notification.is_kept_at(context.services.now()):
                yield notification
