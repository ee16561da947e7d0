"""Notifications: FEED-009, FEED-W5 and the subscription FEED-S1."""

from collections.abc import Sequence
from typing import Annotated, Unpack

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import EventSource
from datastore.feeds.comments import Comment
from datastore.feeds.notifications import Notification
from datastore.feeds.posts import Post
from datastore.keyspace.feeds import comments as comment_keys
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.identity import Identity
from datastore.session.pagination import SortOrder
from resolvers.feeds.comments import visible_comment
from resolvers.shared import validation as validate
from resolvers.shared.arguments import DEFAULT_BUFFER, Buffer, UserId, WhenSlow, argument
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.event_source import is_event, owned_changes
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in

LONGEST_ID = 1000

NotificationId = Annotated[strawberry.ID, argument("The `notificationId` or `id` of a notification of the caller.")]


@paged_in(SortOrder.DESCENDING)
async def notifications(info: Info, user_id: UserId, **paging: Unpack[Paging]) -> Connection[Notification]:
    return await _of_user(info, validate.user_id("userId", user_id), paging)


@paged_in(SortOrder.DESCENDING)
async def my_notifications(
    parent: strawberry.Parent[Identity], info: Info, **paging: Unpack[Paging]
) -> Connection[Notification]:
    return await _of_user(info, parent.user_id, paging)


async def _of_user(info: Info, owner: str, paging: Paging) -> Connection[Notification]:
    connection = connection_of(info, keys.UNREAD, Notification.decoder, {"userId": owner}, owner=owner)
    page = await info.context.notifications.unread(owner, connection.span(**paging))
    return connection.of(page)


async def posts(ids: Sequence[str], info: Info) -> Sequence[Post | Exception | None]:
    return await info.context.posts.all_visible(ids, _post_pattern(info))


def _post_pattern(info: Info) -> AccessPattern:
    return post_keys.POST_OF_EVENT if is_event(info) else post_keys.POST


async def comment(parent: strawberry.Parent[Notification], info: Info) -> Comment | None:
    if parent.post_id is None or parent.comment_id is None:
        return None
    pattern = comment_keys.COMMENT_OF_EVENT if is_event(info) else comment_keys.COMMENT
    return await visible_comment(info.context, parent.post_id, parent.comment_id, _post_pattern(info), pattern)


async def mark_notification_read(info: Info, id: NotificationId) -> Notification | None:
    caller = require(info.context.identity, keys.MARK_READ)
    own = validate.id("id", id, LONGEST_ID, of=("Notification",), within=(caller.user_id,))
    return await info.context.notifications.mark_read(caller.user_id, own)


async def notification_received(
    info: Info,
    user_id: UserId,
    when_slow: WhenSlow = keys.NOTIFICATION_RECEIVED.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[Notification]:
    return owned_changes(
        info, keys.NOTIFICATION_RECEIVED, Notification, user_id, when_slow, buffer, is_event=_has_further_actors
    )


def _has_further_actors(notification: Notification, change: Change) -> bool:
    before = -1 if change.old is None else int(change.old.get("actor_count", 0))
    return notification.actor_count > before
