"""Likes: FEED-005, FEED-N1 and FEED-W2."""

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from datastore.feeds.likes import Like
from datastore.keyspace.feeds import likes as keys
from datastore.model.access_patterns import consistently
from datastore.session.pagination import SortOrder, empty_page
from resolvers.feeds.posts import require_post
from resolvers.shared import validation as validate
from resolvers.shared.arguments import PostId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, connections_of, paged_in
from resolvers.shared.selected_fields import has_child_reads


@paged_in(SortOrder.DESCENDING, consistent=True)
async def likes(info: Info, post_id: PostId, **paging: Unpack[Paging]) -> Connection[Like]:
    context, of_post = info.context, validate.id("postId", post_id, of=("Post",))
    connection = connection_of(info, keys.LIKES, Like.decoder, {"postId": of_post})
    span = connection.span(**paging)
    post = await context.posts.visible(of_post, consistently(keys.LIKES, span.consistent))
    page = empty_page(span) if post is None else await context.likes.of_post(of_post, span)
    return connection.of(page)


@paged_in(SortOrder.DESCENDING)
async def likes_of_posts(
    post_ids: Sequence[str], info: Info, **paging: Unpack[Paging]
) -> Sequence[Connection[Like] | BaseException]:
    read = partial(info.context.likes.of_posts, has_child_reads=has_child_reads(info))
    return await connections_of(info, keys.LIKES, Like.decoder, "postId", post_ids, paging, read)


async def liked_by_viewer(post_ids: Sequence[str], info: Info) -> Sequence[bool | Exception | None]:
    caller = info.context.identity
    return [None] * len(post_ids) if caller is None else await info.context.likes.are_liked(post_ids, caller.user_id)


async def like_post(info: Info, post_id: PostId) -> Like:
    context = info.context
    caller = require(context.identity, keys.LIKE_POST)
    post = await require_post(context, validate.id("postId", post_id, of=("Post",)), caller.user_id, keys.LIKE_POST)
    like = await context.likes.like(post, caller.user_id)
    context.own_changes.like(like, exists=True)
    return like


async def unlike_post(info: Info, post_id: PostId) -> Like | None:
    context = info.context
    caller = require(context.identity, keys.UNLIKE_POST)
    like = await context.likes.unlike(validate.id("postId", post_id, of=("Post",)), caller.user_id)
    if like is not None:
        context.own_changes.like(like, exists=False)
    return like
