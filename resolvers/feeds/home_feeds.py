"""Home feeds: FEED-003."""

import strawberry

from datastore.feeds.home_feeds import (
    FeedEntry,
    entry_from,
    with_authors,
)
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, UserId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.event_source import is_event
from resolvers.shared.paging import Connection


async def home_feed(
    info: Info, user_id: UserId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[FeedEntry]:
    context, owner = info.context, validate.user_id("userId", user_id)
    require(context.identity, keys.HOME_FEED, owner=owner)
    connection = Connection(context.services.cursors, keys.HOME_FEED, "Query.homeFeed", {"userId": owner}, entry_from)
    page = await context.home_feeds.of_user(owner, connection.span(first, after, last, before))
    return connection.of(await with_authors(page, context.posts))


async def author(parent: strawberry.Parent[FeedEntry], info: Info) -> User | None:
    return None if parent.author_id is None else await info.context.users.by_id(parent.author_id)


async def post(parent: strawberry.Parent[FeedEntry], info: Info) -> Post | None:
    """Return the post. For a post for followers the caller's follow is read in the same batch."""
    pattern = post_keys.POST_OF_EVENT if is_event(info) else post_keys.POST
    if parent.followers_only and parent.author_id is not None:
        info.context.visibility.prefetch_follow(parent.author_id, pattern)
    return await info.context.posts.visible(parent.post_id, pattern)
