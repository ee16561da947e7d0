"""Likes: FEED-005, FEED-N1 and FEED-W2."""

import strawberry

from datastore.feeds.likes import Like, like_from
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import likes as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.session.pagination import empty_page
from resolvers.feeds.posts import require_post
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, PostId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection
from resolvers.shared.selected_fields import has_child_reads


async def likes(
    info: Info, post_id: PostId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[Like]:
    context, of_post = info.context, validate.id("postId", post_id)
    connection = Connection(context.services.cursors, keys.LIKES, "Query.likes", {"postId": of_post}, like_from)
    span = connection.span(first, after, last, before)
    post = await context.posts.visible(of_post, keys.LIKES)
    page = empty_page(span) if post is None else await context.likes.of_post(of_post, span)
    return connection.of(page)


async def likes_of_post(
    parent: strawberry.Parent[Post],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Like]:
    context = info.context
    connection = Connection(context.services.cursors, keys.LIKES, "Post.likes", {"postId": parent.post_id}, like_from)
    span = connection.span(first, after, last, before)
    page = await context.likes.of_post(parent.post_id, span, has_child_reads=has_child_reads(info, "user", "post"))
    return connection.of(page)


async def liked_by_viewer(parent: strawberry.Parent[Post], info: Info) -> bool | None:
    caller = info.context.identity
    return None if caller is None else await info.context.likes.is_liked(parent.post_id, caller.user_id)


async def user(parent: strawberry.Parent[Like], info: Info) -> User | None:
    return await info.context.users.by_id(parent.user_id)


async def post(parent: strawberry.Parent[Like], info: Info) -> Post | None:
    return await info.context.posts.visible(parent.post_id, post_keys.POST)


async def like_post(info: Info, post_id: PostId) -> Like:
    context = info.context
    caller = require(context.identity, keys.LIKE_POST)
    post = await require_post(context, validate.id("postId", post_id), caller.user_id, keys.LIKE_POST)
    return await context.likes.like(post, caller.user_id)


async def unlike_post(info: Info, post_id: PostId) -> Like | None:
    caller = require(info.context.identity, keys.UNLIKE_POST)
    return await info.context.likes.unlike(validate.id("postId", post_id), caller.user_id)
