"""GraphQL types and fields of comments."""

from datetime import datetime

import strawberry

from datastore.feeds import comments as records
from datastore.keyspace.feeds import comments as patterns
from datastore.keyspace.feeds.pipeline import LATEST_COUNTED, OWN_COUNT_UNITS
from datastore.keyspace.feeds.posts import COUNTS as POST_COUNTS
from datastore.model.access_patterns import Extent
from resolvers.feeds import comments as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import post_field, user_field
from schema.fields import described, pattern_field
from schema.nodes import Node, node_type


@node_type(
    records.Comment,
    patterns.COMMENT,
    parts=("post_id", "comment_id"),
    read=resolve.visible_comment,
    extent=Extent(reads=3),
    description="A comment on a post. Comments never change.",
)
class Comment(Node):
    post_id: strawberry.ID = described("The id of the post.")
    post = post_field("The post; null if it was deleted or the caller may not see it.")
    comment_id: strawberry.ID = described("The comment's id, unique among the comments on the post. Ids sort by time.")
    author_id: strawberry.ID = described("The id of the author.")
    author = user_field("author_id", "The author's `User`, as it is now; null if there is none.")
    created_at: datetime = described("The time at which the comment was written.")
    text: str = described("The text, 1 to 1,000 characters.")
    text_length: int = described("The length of the text in characters.")
    mentions: list[strawberry.ID] = described(
        "The ids of the users that the text mentions (`@userId`), at most 20, in their order, whether or not such "
        "users exist.",
        name="mentionedUserIds",
    )


@strawberry.type
class CommentQueries:
    comments = pattern_field(
        patterns.COMMENTS,
        resolver=resolve.comments,
        graphql_type=Connection[Comment],
        description="Return the comments on a post, oldest first. The list is empty for a post that does not exist or "
        "that the caller may not see.",
    )


@strawberry.type
class CommentMutations:
    create_comment = pattern_field(
        patterns.CREATE_COMMENT,
        LATEST_COUNTED,
        POST_COUNTS,
        resolver=resolve.create_comment,
        graphql_type=Comment,
        extent=Extent(own_counts=OWN_COUNT_UNITS),
        description="Comment on a post, and return the comment. A repeated request with the same `commentId` "
        "returns the existing comment and changes nothing. The post's `commentCount` contains the comment, in other "
        "responses within moments (see `postEngagement`). NOT_FOUND if the caller has no user in the feed or may not "
        "see the post.",
    )
    delete_comment = pattern_field(
        patterns.DELETE_COMMENT,
        LATEST_COUNTED,
        POST_COUNTS,
        resolver=resolve.delete_comment,
        graphql_type=Comment | None,
        extent=Extent(own_counts=OWN_COUNT_UNITS),
        description="Delete a comment of the caller, or a comment on a post of the caller. Return the comment as "
        "it was, or null if it does not exist. The post's `commentCount` no longer contains it.",
    )
