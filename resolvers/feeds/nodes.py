"""Global ids of the feed."""

import asyncio

import strawberry

from datastore.feeds.comments import Comment
from datastore.feeds.notifications import Notification
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import comments as comment_keys
from datastore.keyspace.feeds import notifications as notification_keys
from resolvers.shared.authorization import require
from resolvers.shared.context import Context
from resolvers.shared.node_ids import NodeReaders, global_id


def user_id(parent: strawberry.Parent[User]) -> strawberry.ID:
    return global_id("User", parent.user_id)


def post_id(parent: strawberry.Parent[Post]) -> strawberry.ID:
    return global_id("Post", parent.post_id)


def comment_id(parent: strawberry.Parent[Comment]) -> strawberry.ID:
    return global_id("Comment", parent.post_id, parent.comment_id)


def notification_id(parent: strawberry.Parent[Notification]) -> strawberry.ID:
    return global_id("Notification", parent.user_id, parent.notification_id)


async def _user(context: Context, user_id: str) -> User | None:
    return await context.users.by_id(user_id)


async def _post(context: Context, post_id: str) -> Post | None:
    return await context.posts.visible(post_id)


async def _comment(context: Context, post_id: str, comment_id: str) -> Comment | None:
    post, comment = await asyncio.gather(
        context.posts.visible(post_id, comment_keys.COMMENT), context.comments.by_key(post_id, comment_id)
    )
    return comment if post else None


async def _notification(context: Context, user_id: str, notification_id: str) -> Notification | None:
    require(context.identity, notification_keys.NOTIFICATION, owner=user_id)
    return await context.notifications.by_id(user_id, notification_id)


NODE_READERS: NodeReaders = {
    "Comment": (2, _comment),
    "Notification": (2, _notification),
    "Post": (1, _post),
    "User": (1, _user),
}
