"""Comments: FEED-006, FEED-W3 and FEED-W6."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Unpack

import strawberry

from datastore.errors import Forbidden
from datastore.feeds import hashtags
from datastore.feeds.comments import Comment
from datastore.keyspace.feeds import comments as keys
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.session.pagination import SortOrder, empty_page
from resolvers.feeds.posts import require_post
from resolvers.shared import validation as validate
from resolvers.shared.arguments import PostId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import CLIENT_ID, new_object_id
from resolvers.shared.context import Context, Info
from resolvers.shared.paging import Connection, Paging, connection_of, connections_of, paged_in
from resolvers.shared.selected_fields import has_child_reads

CommentId = Annotated[strawberry.ID, argument("The comment's `commentId` or `id`.")]


@strawberry.input(description="A comment to add to a post.")
class CreateCommentInput:
    comment_id: strawberry.ID | None = optional(CLIENT_ID)
    text: str = required("The text, 1 to 1,000 characters; `@userId` mentions a user.")


@paged_in(SortOrder.ASCENDING, consistent=True)
async def comments(info: Info, post_id: PostId, **paging: Unpack[Paging]) -> Connection[Comment]:
    context, of_post = info.context, validate.id("postId", post_id, of=("Post",))
    connection = connection_of(info, keys.COMMENTS, Comment.decoder, {"postId": of_post})
    span = connection.span(**paging)
    # The comments are read after the post: a read of hidden comments would reveal their number.
    post = await context.posts.visible(of_post, consistently(keys.COMMENTS, span.consistent))
    page = empty_page(span) if post is None else await context.comments.of_post(of_post, span)
    return connection.of(page)


@paged_in(SortOrder.ASCENDING)
async def comments_of_posts(
    post_ids: Sequence[str], info: Info, **paging: Unpack[Paging]
) -> Sequence[Connection[Comment] | BaseException]:
    read = partial(info.context.comments.of_posts, has_child_reads=has_child_reads(info))
    return await connections_of(info, keys.COMMENTS, Comment.decoder, "postId", post_ids, paging, read)


async def visible_comment(
    context: Context,
    post_id: str,
    comment_id: str,
    post_pattern: AccessPattern = keys.COMMENT,
    pattern: AccessPattern = keys.COMMENT,
) -> Comment | None:
    """Return a comment, or None if it does not exist or the caller may not see its post."""
    post, comment = await asyncio.gather(
        context.posts.visible(post_id, post_pattern), context.comments.by_key(post_id, comment_id, pattern)
    )
    return comment if post else None


async def create_comment(
    info: Info, post_id: PostId, input: Annotated[CreateCommentInput, argument("The comment.")]
) -> Comment:
    context = info.context
    caller = require(context.identity, keys.CREATE_COMMENT)
    comment_id = new_object_id(info, "commentId", input.comment_id)
    text = validate.field(Comment, "text", input.text)
    mentions = hashtags.mentions(text)
    of_post = validate.id("postId", post_id, of=("Post",))
    post = await require_post(context, of_post, caller.user_id, keys.CREATE_COMMENT)
    comment = await context.comments.add(post, comment_id, caller.user_id, text, mentions)
    context.own_changes.comment(comment, exists=True)
    return comment


async def delete_comment(info: Info, post_id: PostId, comment_id: CommentId) -> Comment | None:
    context = info.context
    caller = require(context.identity, keys.DELETE_COMMENT)
    of_post = validate.id("postId", post_id, of=("Post",))
    of_comment = validate.id("commentId", comment_id, of=("Comment",), within=(of_post,))
    try:
        comment = await context.comments.delete(of_post, of_comment, caller.user_id)
    except Forbidden:
        if await context.posts.visible(of_post, keys.DELETE_COMMENT) is None:
            return None  # the same result as for a comment that does not exist
        raise
    if comment is not None:
        context.own_changes.comment(comment, exists=False)
    return comment
