"""The part of the API that searches the feed: the shape only."""

import strawberry

from datastore.feeds.searches import FOLLOWED_UNITS, SEARCH_UNITS
from datastore.keyspace.feeds import search as patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import search as resolve
from schema.connections import Connection
from schema.feeds.posts import Post
from schema.feeds.users import User
from schema.fields import ask

ORDER = (
    "First where the words stand next to each other, then where all are there, then where the last is the beginning of "
    "a word; each the newest first. Case and accents do not matter. Follows what is written within moments."
)


@strawberry.type
class SearchQueries:
    search_posts = ask(
        patterns.SEARCH_POSTS,
        patterns.SEARCH_FOLLOWED,
        resolver=resolve.search_posts,
        graphql_type=Connection[Post],
        # For posts shown to followers: whether the caller follows the author.
        extent=Extent(each=True, reads=2, searched=SEARCH_UNITS + FOLLOWED_UNITS),
        description=f"The posts with some words or tags that the caller may see. {ORDER}",
    )
    search_users = ask(
        patterns.SEARCH_USERS,
        resolver=resolve.search_users,
        graphql_type=Connection[User],
        extent=Extent(each=True, searched=SEARCH_UNITS),
        description=f"The users whose names hold some words. {ORDER}",
    )
