"""GraphQL types and fields of comments."""

from datetime import datetime

import strawberry

from datastore.feeds import comments as records
from datastore.keyspace.feeds import comments as patterns
from datastore.keyspace.feeds import posts as post_patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import comments as resolve
from resolvers.feeds import nodes
from schema.connections import Connection, Node, is_record, node_id
from schema.feeds.lazy_types import LazyPost, LazyUser
from schema.fields import pattern_field


@strawberry.type(description="A comment on a post. Comments never change.")
class Comment(Node):
    id = node_id(nodes.comment_id)
    post_id: strawberry.ID = strawberry.field(description="The id of the post.")
    post = pattern_field(
        post_patterns.POST,
        resolver=resolve.post,
        graphql_type=LazyPost | None,
        # A post for followers takes a second read: whether the caller follows its author.
        extent=Extent(reads=2),
        description="The post; null if it was deleted or the caller may not see it.",
    )
    comment_id: strawberry.ID = strawberry.field(
        description="The comment's id, unique among the comments on the post. Ids sort by time."
    )
    user_id: strawberry.ID = strawberry.field(description="The id of the author.")
    author = pattern_field(
        user_patterns.USER,
        resolver=resolve.author,
        depends_on="user_id",
        graphql_type=LazyUser | None,
        description="The author's present profile; null if there is none.",
    )
    created_at: datetime = strawberry.field(description="The time at which the comment was written.")
    text: str = strawberry.field(description="The text, 1 to 1,000 characters.")
    text_length: int = strawberry.field(description="The length of the text in characters.")
    mentions: list[strawberry.ID] = strawberry.field(
        description="The user ids that the text mentions (`@userId`), whether or not such users exist."
    )

    is_type_of = is_record(records.Comment)


@strawberry.type
class CommentQueries:
    comments = pattern_field(
        patterns.COMMENTS,
        resolver=resolve.comments,
        graphql_type=Connection[Comment],
        description="Return the comments on a post, oldest first. The list is empty for a post that the caller "
        "may not see.",
    )


@strawberry.type
class CommentMutations:
    add_comment = pattern_field(
        patterns.ADD_COMMENT,
        resolver=resolve.add_comment,
        graphql_type=Comment,
        description="Comment on a post, and return the comment. A repeated request with the same `commentId` "
        "returns the existing comment and changes nothing. The post's `commentCount` is updated within moments "
        "(see `postEngagement`). NOT_FOUND if the caller has no user in the feed or may not see the post.",
    )
    delete_comment = pattern_field(
        patterns.DELETE_COMMENT,
        resolver=resolve.delete_comment,
        graphql_type=Comment | None,
        description="Delete a comment of the caller, or a comment on a post of the caller. Return the comment as "
        "it was, or null if it does not exist. The post's `commentCount` is updated within moments.",
    )
