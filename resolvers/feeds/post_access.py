"""What likes and comments ask for alike before they are written."""

import asyncio

from datastore.errors import NotFound
from datastore.feeds.posts import Post
from datastore.model.access_patterns import AccessPattern
from resolvers.shared.context import Context


async def post_to_answer(context: Context, post_id: str, user_id: str, pattern: AccessPattern) -> Post:
    """The post that a user is about to like or comment on. Post and user are read in one batch, as `pattern` reads.

    Raises `NotFound` where the user has no profile, and where there is no post that they may see.
    """
    _, post = await asyncio.gather(context.users.require(user_id, pattern), context.posts.visible(post_id, pattern))
    if post is None:
        raise NotFound("There is no such post.")
    return post
