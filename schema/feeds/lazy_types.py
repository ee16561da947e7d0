"""Types of the feed that refer to each other, and fields of these types.

Strawberry resolves the types once all modules are imported.
"""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.feeds.posts import POST
from datastore.keyspace.feeds.users import USER
from datastore.model.access_patterns import Extent
from resolvers.feeds.posts import posts_by_id
from resolvers.feeds.users import users_by_id
from schema.fields import BatchResolver, batch_field

if TYPE_CHECKING:
    from schema.feeds.posts import Post
    from schema.feeds.users import User
    from schema.sightings import UserProfile

LazyPost = Annotated["Post", strawberry.lazy("schema.feeds.posts")]
LazyUser = Annotated["User", strawberry.lazy("schema.feeds.users")]
LazyUserProfile = Annotated["UserProfile", strawberry.lazy("schema.sightings")]


def user_field(depends_on: str, description: str) -> Any:
    """Return a field with the user whose id is the attribute `depends_on` of the parent."""
    return batch_field(
        USER, resolver=users_by_id, depends_on=depends_on, graphql_type=LazyUser | None, description=description
    )


def post_field(description: str, *, resolver: BatchResolver = posts_by_id, depends_on: str | None = "post_id") -> Any:
    """Return a field with a post. A post for followers takes a second read: whether the caller follows its author."""
    return batch_field(
        POST,
        resolver=resolver,
        depends_on=depends_on,
        graphql_type=LazyPost | None,
        extent=Extent(reads=2),
        description=description,
    )
