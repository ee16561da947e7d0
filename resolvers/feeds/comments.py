"""Comments: FEED-006, FEED-W3 and FEED-W6."""

from typing import Annotated

import strawberry

from datastore.errors import Forbidden
from datastore.feeds import hashtags
from datastore.feeds.comments import Comment, comment_from
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import comments as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.session.pagination import empty_page
from resolvers.feeds.posts import require_post
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, PostId
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import new_object_id
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection
from resolvers.shared.selected_fields import has_child_reads

LONGEST_TEXT = 1000

CommentId = Annotated[strawberry.ID, strawberry.argument(description="The comment's `commentId`.")]


@strawberry.input(description="A comment to add to a post.")
class AddCommentInput:
    post_id: strawberry.ID = strawberry.field(description="The post's `postId`.")
    comment_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case, whose time is at most one day ago and at most five minutes ahead. By default the gateway creates "
        "one.",
    )
    text: str = strawberry.field(description="The text, 1 to 1,000 characters; `@userId` mentions a user.")


async def comments(
    info: Info, post_id: PostId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[Comment]:
    context, of_post = info.context, validate.id("postId", post_id)
    connection = Connection(
        context.services.cursors, keys.COMMENTS, "Query.comments", {"postId": of_post}, comment_from
    )
    span = connection.span(first, after, last, before)
    # The comments are read after the post: a read of hidden comments would reveal their number.
    post = await context.posts.visible(of_post, keys.COMMENTS)
    page = empty_page(span) if post is None else await context.comments.of_post(of_post, span)
    return connection.of(page)


async def comments_of_post(
    parent: strawberry.Parent[Post],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Comment]:
    context = info.context
    connection = Connection(
        context.services.cursors, keys.COMMENTS, "Post.comments", {"postId": parent.post_id}, comment_from
    )
    span = connection.span(first, after, last, before)
    page = await context.comments.of_post(parent.post_id, span, has_child_reads=has_child_reads(info, "author", "post"))
    return connection.of(page)


async def author(parent: strawberry.Parent[Comment], info: Info) -> User | None:
    return await info.context.users.by_id(parent.user_id)


async def post(parent: strawberry.Parent[Comment], info: Info) -> Post | None:
    return await info.context.posts.visible(parent.post_id, post_keys.POST)


async def add_comment(
    info: Info, input: Annotated[AddCommentInput, strawberry.argument(description="The comment.")]
) -> Comment:
    context = info.context
    caller = require(context.identity, keys.ADD_COMMENT)
    comment_id = new_object_id(info, "commentId", input.comment_id)
    text = validate.prose("text", input.text, LONGEST_TEXT)
    mentions = hashtags.mentions(text)
    post = await require_post(context, validate.id("postId", input.post_id), caller.user_id, keys.ADD_COMMENT)
    return await context.comments.add(post, comment_id, caller.user_id, text, mentions)


async def delete_comment(info: Info, post_id: PostId, comment_id: CommentId) -> Comment | None:
    context = info.context
    caller = require(context.identity, keys.DELETE_COMMENT)
    of_post, comment = validate.id("postId", post_id), validate.id("commentId", comment_id)
    try:
        return await context.comments.delete(of_post, comment, caller.user_id)
    except Forbidden:
        if await context.posts.visible(of_post, keys.DELETE_COMMENT) is None:
            return None  # the same result as for a comment that does not exist
        raise
