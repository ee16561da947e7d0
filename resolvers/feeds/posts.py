"""Posts: FEED-002, FEED-004, FEED-007, FEED-W1, FEED-W6."""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any, Unpack

import strawberry

from datastore.errors import BadUserInput, NotFound
from datastore.feeds.hashtags import MAX_TAG_LENGTH, MAX_TAGS, tag_name
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import posts as keys
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.ids import uuid7
from datastore.session.pagination import SortOrder
from resolvers.feeds.users import reference
from resolvers.shared import validation as validate
from resolvers.shared.arguments import Consistent, UserId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import parse_global_id
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in
from resolvers.shared.selected_fields import has_child_reads

strawberry.enum(
    Visibility,
    description="The visibility of a post. PUBLIC: everyone may see it. FOLLOWERS: the author's followers. "
    "PRIVATE: the author alone.",
)

POST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Id = Annotated[strawberry.ID, argument("The post's `postId` or `id`.")]
Tag = Annotated[str, argument("A tag in upper or lower case, with or without `#`.")]


def new_post_id(field: str, value: str) -> str:
    """Return the id of a new post.

    Raises `BadUserInput` unless it has 1 to 64 letters, digits, `-`, `_` and `.`, and for a global id.
    """
    if parse_global_id(value) is not None:
        raise BadUserInput(f"`{field}` must not be a global id: choose the post's own id.", field=field)
    if not POST_ID.fullmatch(value):
        raise BadUserInput(f"`{field}` must have between 1 and 64 letters, digits, `-`, `_` and `.`.", field=field)
    return value


@strawberry.input(description="A post to write.")
class CreatePostInput:
    text: str = required(
        "The text, 1 to 2,000 characters, with at most 10 tags (`#street_food`) and 20 mentions (`@userId`)."
    )
    post_id: strawberry.ID | None = optional(
        "An id chosen by the client, which makes repeated requests safe: 1 to 64 letters, digits, "
        "`-`, `_` and `.`. By default the gateway creates one."
    )
    visibility: Visibility = strawberry.field(description="The users who may see the post.", default=Visibility.PUBLIC)
    media_ref: str | None = optional(
        "A reference to a picture or video: an address or any other text, 1 to 500 characters; by default none."
    )


NewPost = Annotated[CreatePostInput, argument("The post.")]


def items_of_new_post(arguments: Mapping[str, Any]) -> float:
    """Return the number of items of a new post: one, and one for each tag in its text."""
    input = arguments.get("input")
    text = input.get("text") if isinstance(input, Mapping) else None
    return 1.0 + (min(text.count("#"), MAX_TAGS) if isinstance(text, str) else 3)


async def post(info: Info, id: Id, consistent: Consistent = False) -> Post | None:
    return await info.context.posts.visible(validate.id("id", id, of=("Post",)), consistently(keys.POST, consistent))


async def posts_by_id(ids: Sequence[str], info: Info) -> Sequence[Post | Exception | None]:
    return info.context.own_changes.prepare_posts(await info.context.posts.all_visible(ids))


@paged_in(SortOrder.DESCENDING)
async def posts_by_author(info: Info, author_id: UserId, **paging: Unpack[Paging]) -> Connection[Post]:
    author = validate.user_id("authorId", author_id)
    return await _by_author(info, author, paging)


@paged_in(SortOrder.DESCENDING)
async def posts_of_user(parent: strawberry.Parent[User], info: Info, **paging: Unpack[Paging]) -> Connection[Post]:
    return await _by_author(info, parent.user_id, paging)


async def _by_author(info: Info, author_id: str, paging: Paging) -> Connection[Post]:
    connection = connection_of(info, keys.POSTS_BY_AUTHOR, Post.decoder, {"authorId": author_id})
    page = await info.context.posts.by_author(
        author_id, connection.span(**paging), has_child_reads=has_child_reads(info)
    )
    return connection.of(page)


@paged_in(SortOrder.DESCENDING)
async def posts_by_tag(info: Info, tag: Tag, **paging: Unpack[Paging]) -> Connection[Post]:
    name = tag_name(tag.strip())
    if name is None:
        raise BadUserInput(
            f"`tag` must have between 1 and {MAX_TAG_LENGTH} letters, digits and underscores, and at least one letter.",
            field="tag",
        )
    connection = connection_of(info, keys.POSTS_BY_TAG, Post.decoder, {"tag": name})
    page = await info.context.posts.by_tag(name, connection.span(**paging))
    return connection.of(page)


# A count that the post contains is returned without a coroutine: a list would need two for each of its posts.
def like_count(parent: strawberry.Parent[Post], info: Info) -> int | Awaitable[int]:
    return parent.likes if parent.likes is not None else _count(parent, info, "likes")


def comment_count(parent: strawberry.Parent[Post], info: Info) -> int | Awaitable[int]:
    return parent.comments if parent.comments is not None else _count(parent, info, "comments")


def mentions(parent: strawberry.Parent[Post], info: Info) -> tuple[str, ...] | Awaitable[tuple[str, ...]]:
    return parent.mentions if parent.mentions is not None else _attribute(parent, info, "mentions")


async def _count(post: Post, info: Info, name: str) -> int:
    """Return a count of the post with the caller's own change, or read the post again."""
    own = await info.context.own_changes.count_of_post(post.post_id, name)
    return own if own is not None else await _attribute(post, info, name)


async def _attribute(post: Post, info: Info, name: str) -> Any:
    """Return an attribute of the post, which is read again."""
    return getattr(await info.context.posts.with_all_attributes(post), name)


async def require_post(context: Context, post_id: str, user_id: str, pattern: AccessPattern) -> Post:
    """Return the post that a user is about to like or comment on. The post and the user are read in one batch.

    Raises `NotFound` if the user has no profile or may not see the post.
    """
    _, post = await asyncio.gather(context.users.require(user_id, pattern), context.posts.visible(post_id, pattern))
    if post is None:
        raise NotFound("There is no such post.")
    return post


async def create_post(info: Info, input: NewPost) -> Post:
    context = info.context
    caller = require(context.identity, keys.CREATE_POST)
    values = validate.fields(input, Post, own={"post_id": new_post_id, "media_ref": reference})
    post = await context.posts.create(
        values["post_id"] or uuid7(context.requested_at, context.new_id(info)),
        author_id=caller.user_id,
        text=values["text"],
        visibility=input.visibility,
        media_ref=values["media_ref"],
    )
    context.own_changes.post(post, exists=True)
    return post


async def delete_post(info: Info, id: Id) -> Post | None:
    caller = require(info.context.identity, keys.DELETE_POST)
    post = await info.context.posts.delete(validate.id("id", id, of=("Post",)), caller.user_id)
    if post is not None:
        info.context.own_changes.post(post, exists=False)
    return post
