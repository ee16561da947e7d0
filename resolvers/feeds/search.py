"""Searches of the feed: FEED-N5, FEED-N6."""

from operator import itemgetter
from typing import Annotated, Any

from datastore.feeds.posts import Post
from datastore.feeds.searches import SearchPage
from datastore.feeds.users import User
from datastore.keyspace.feeds import search as keys
from datastore.model.access_patterns import AccessPattern
from datastore.search import Position
from datastore.search.queries import MAX_QUERY_LENGTH, MAX_TERMS, Query, query_of
from datastore.session.pagination import Page
from resolvers.shared.arguments import After, First, argument
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, connection_of

# The attributes of a result's position that its cursor contains.
CURSOR_ATTRIBUTES = ("id", "order", "score")
LIMITS = f"1 to {MAX_QUERY_LENGTH} characters, at most {MAX_TERMS} words"
PostQuery = Annotated[
    str,
    argument(
        "The words that the text must contain, all of them. The last one is a prefix. A word after `#` is "
        f"a tag. {LIMITS}."
    ),
]
UserQuery = Annotated[
    str, argument(f"The words that the name must contain, all of them. The last one is a prefix. {LIMITS}.")
]


async def search_posts(info: Info, query: PostQuery, first: First = None, after: After = None) -> Connection[Post]:
    context, parsed = info.context, query_of(query, tags=True)
    connection = _connection(info, keys.SEARCH_POSTS, parsed)
    span = connection.span(first, after)
    search_page = await context.searches.posts(parsed, span.size, _position(span.start))
    return _filled(connection, search_page, after is not None)


async def search_users(info: Info, query: UserQuery, first: First = None, after: After = None) -> Connection[User]:
    context, parsed = info.context, query_of(query, tags=False)
    connection = _connection(info, keys.SEARCH_USERS, parsed)
    span = connection.span(first, after)
    search_page = await context.searches.users(parsed, span.size, _position(span.start))
    return _filled(connection, search_page, after is not None)


def _connection(info: Info, pattern: AccessPattern, query: Query) -> Connection[Any]:
    """Return the list of results. Its cursors are valid only for the same words and the same caller."""
    terms = [("#" if term.tag else "") + term.text for term in query.terms]
    identity = info.context.identity
    values = {"query": terms, "caller": None if identity is None else identity.user_id}
    return connection_of(info, pattern, itemgetter("record"), values, cursor_attributes=CURSOR_ATTRIBUTES)


def _position(start: dict[str, object] | None) -> Position | None:
    return None if start is None else Position(int(str(start["score"])), int(str(start["order"])), str(start["id"]))


def _filled(connection: Connection[Any], search_page: SearchPage[Any], has_previous: bool) -> Connection[Any]:
    items = [_item(position, record) for position, record in search_page.results]
    if search_page.is_cut_off and search_page.end is not None:
        connection.end_item = _item(search_page.end)
    return connection.of(Page(items, search_page.has_next, has_previous))


def _item(position: Position, record: object = None) -> dict[str, object]:
    return {"score": position.score, "order": position.order, "id": position.id, "record": record}
