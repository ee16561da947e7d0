"""Types of the feed that refer to each other: Strawberry resolves them once all modules are imported."""

from typing import TYPE_CHECKING, Annotated

import strawberry

if TYPE_CHECKING:
    from schema.feeds.posts import Post
    from schema.feeds.users import User

LazyPost = Annotated["Post", strawberry.lazy("schema.feeds.posts")]
LazyUser = Annotated["User", strawberry.lazy("schema.feeds.users")]
