"""Searches of the feed: FEED-N5, FEED-N6."""

from typing import Annotated, Any

import strawberry

from datastore.feeds.posts import Post
from datastore.feeds.searches import Record, SearchPage
from datastore.feeds.users import User
from datastore.keyspace.feeds import search as keys
from datastore.model.access_patterns import AccessPattern
from datastore.search import Position
from datastore.search.queries import LONGEST_QUERY, MOST_TERMS, Query, query_of
from datastore.session.pagination import Page
from resolvers.shared.arguments import After, First
from resolvers.shared.context import Context, Info
from resolvers.shared.paging import Connection, Edge, Listing, Paging, PlainEdge

# The parts of a result's position that its cursor holds.
PLACE = ("id", "order", "score")
LIMITS = f"1 to {LONGEST_QUERY} characters, at most {MOST_TERMS} words"
PostQuery = Annotated[
    str,
    strawberry.argument(
        description="The words that the text must contain, all of them. The last one is a prefix. A word after `#` is "
        f"a tag. {LIMITS}."
    ),
]
UserQuery = Annotated[
    str,
    strawberry.argument(
        description=f"The words that the name must contain, all of them. The last one is a prefix. {LIMITS}."
    ),
]


async def search_posts(info: Info, query: PostQuery, first: First = None, after: After = None) -> Connection[Post]:
    context, asked = info.context, query_of(query, tags=True)
    listing = _listing(context, keys.SEARCH_POSTS, "Query.searchPosts", asked)
    span = listing.span(Paging(first, after))
    found = await context.searches.posts(asked, span.size, _position(span.start))
    return _connection(listing, found, after is not None)


async def search_users(info: Info, query: UserQuery, first: First = None, after: After = None) -> Connection[User]:
    context, asked = info.context, query_of(query, tags=False)
    listing = _listing(context, keys.SEARCH_USERS, "Query.searchUsers", asked)
    span = listing.span(Paging(first, after))
    found = await context.searches.users(asked, span.size, _position(span.start))
    return _connection(listing, found, after is not None)


def _listing(context: Context, pattern: AccessPattern, field: str, query: Query) -> Listing:
    """Return the list of results. Its cursors are valid only for the same words and the same caller."""
    terms = [("#" if term.tag else "") + term.text for term in query.terms]
    caller = None if context.identity is None else context.identity.user_id
    return Listing(context.services.cursors, pattern, field, {"query": terms, "caller": caller}, PLACE)


def _position(start: dict[str, object] | None) -> Position | None:
    return None if start is None else Position(int(str(start["score"])), int(str(start["order"])), str(start["id"]))


def _connection(listing: Listing, found: SearchPage[Record], has_previous: bool) -> Connection[Record]:
    places = [_place(position) for position, _ in found.results]
    page = Page(places, found.has_next, has_previous)
    records = [record for _, record in found.results]
    edges: list[Edge[Record]] = [
        PlainEdge(listing, place, record) for place, record in zip(places, records, strict=True)
    ]
    end = PlainEdge[Any](listing, _place(found.end), None) if found.is_cut_off and found.end is not None else None
    return Connection(page, edges, end)


def _place(position: Position) -> dict[str, object]:
    return {"score": position.score, "order": position.order, "id": position.id}
