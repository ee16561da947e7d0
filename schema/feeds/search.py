"""GraphQL fields that search the feed."""

import strawberry

from datastore.feeds.searches import FOLLOWED_UNITS, SEARCH_UNITS
from datastore.keyspace.feeds import search as patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import search as resolve
from schema.connections import Connection
from schema.feeds.posts import Post
from schema.feeds.users import User
from schema.fields import pattern_field

ORDER = (
    "Results with the words next to each other come first, then results with all the words, then results in which the "
    "last word is a prefix. Within each of these groups the newest come first. Case and accents are ignored. New texts "
    "are found within moments."
)


@strawberry.type
class SearchQueries:
    search_posts = pattern_field(
        patterns.SEARCH_POSTS,
        patterns.SEARCH_FOLLOWED,
        resolver=resolve.search_posts,
        graphql_type=Connection[Post],
        # Posts for followers take a further read: whether the caller follows their author.
        extent=Extent(per_entry=True, reads=2, searched=SEARCH_UNITS + FOLLOWED_UNITS),
        description=f"Search for posts by words and tags, among those that the caller may see. {ORDER}",
    )
    search_users = pattern_field(
        patterns.SEARCH_USERS,
        resolver=resolve.search_users,
        graphql_type=Connection[User],
        extent=Extent(per_entry=True, searched=SEARCH_UNITS),
        description=f"Search for users by the words of their names. {ORDER}",
    )
