"""What the API says about comments: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.feeds import comments as records
from datastore.keyspace.feeds import comments as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import comments as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import ask

if TYPE_CHECKING:
    from schema.feeds.posts import Post
    from schema.feeds.users import User

LazyPost = Annotated["Post", strawberry.lazy("schema.feeds.posts")]
LazyUser = Annotated["User", strawberry.lazy("schema.feeds.users")]


@strawberry.type(description="A comment on a post. It never changes.")
class Comment(Node):
    id = strawberry.field(resolver=nodes.comment_id, graphql_type=strawberry.ID, description="Globally unique.")
    post_id: strawberry.ID = strawberry.field(description="Which post it is on.")
    post = ask(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=LazyPost | None,
        # Whether the caller follows its author is read too, of posts for followers.
        extent=Extent(reads=2),
        description="The post, or null if it is gone.",
    )
    comment_id: strawberry.ID = strawberry.field(description="Unique among the comments on the post.")
    user_id: strawberry.ID = strawberry.field(description="Who wrote it.")
    author = ask(
        user_patterns.USER,
        resolver=resolve.author,
        by="user_id",
        graphql_type=LazyUser | None,
        description="The author as they are now.",
    )
    created_at: datetime = strawberry.field(description="When it was written.")
    text: str = strawberry.field(description="What it says.")
    text_length: int = strawberry.field(description="How many characters that are.")
    mentions: list[strawberry.ID] = strawberry.field(
        description="The ids that its text mentions, whether or not there are such users."
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Comment)


@strawberry.type
class CommentQueries:
    comments = ask(
        patterns.COMMENTS,
        resolver=resolve.comments,
        graphql_type=Connection[Comment],
        description="The comments on a post, oldest first; none on one that the caller may not see.",
    )


@strawberry.type
class CommentMutations:
    add_comment = ask(
        patterns.ADD_COMMENT,
        resolver=resolve.add_comment,
        graphql_type=Comment,
        description="Comment on a post. Asked for again with the same `commentId`, it answers the comment there is and "
        "changes nothing. The post's `commentCount` follows a moment later (see `postEngagement`).",
    )
    delete_comment = ask(
        patterns.DELETE_COMMENT,
        resolver=resolve.delete_comment,
        graphql_type=Comment | None,
        description="Delete one's comment, or one on one's post: the comment as it was, or null if there is none. "
        "The post's `commentCount` follows a moment later.",
    )
