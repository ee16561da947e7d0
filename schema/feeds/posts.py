"""GraphQL types and fields of posts and their counts."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.feeds import posts as records
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import comments as comment_patterns
from datastore.keyspace.feeds import likes as like_patterns
from datastore.keyspace.feeds import posts as patterns
from datastore.keyspace.feeds.pipeline import LATEST_COUNTED, OWN_COUNT_UNITS
from datastore.keyspace.feeds.users import COUNTS as USER_COUNTS
from datastore.model.access_patterns import Extent
from resolvers.feeds import comments as resolve_comments
from resolvers.feeds import engagement as resolve_engagement
from resolvers.feeds import likes as resolve_likes
from resolvers.feeds import posts as resolve
from schema.connections import Connection
from schema.feeds.comments import Comment
from schema.feeds.lazy_types import user_field
from schema.feeds.likes import Like
from schema.fields import batch_field, described, pattern_field, pattern_subscription
from schema.nodes import Node, node_type, object_type


@node_type(
    records.Post,
    patterns.POST,
    parts=("post_id",),
    read=lambda context, *key: context.posts.visible(*key),
    extent=Extent(reads=2),
    description="A post. Posts never change, except for their counts, which are updated within moments. The response "
    "of a mutation contains the caller's own change.",
)
class Post(Node):
    post_id: strawberry.ID = described("The post's id, unique among posts.")
    author_id: strawberry.ID = described("The id of the author.")
    author = user_field("author_id", "The author's `User`, as it is now; null if there is none.")
    created_at: datetime = described("The time at which the post was written.")
    visibility: Visibility = described("The users who may see the post.")
    text: str = described("The text, 1 to 2,000 characters.")
    media_ref: str | None = described("A reference to a picture or video, as the author supplied it; null without one.")
    tags: list[str] = described("The tags in the text, at most 10, in their order, in lower case, without `#`.")
    mentioned_user_ids = pattern_field(
        patterns.POST,
        resolver=resolve.mentions,
        preloaded="mentions",
        graphql_type=list[strawberry.ID],
        description="The ids of the users that the text mentions (`@userId`), at most 20, in their order, whether or "
        "not such users exist.",
    )
    like_count = pattern_field(
        patterns.POST,
        resolver=resolve.like_count,
        preloaded="likes",
        graphql_type=int,
        description="The number of likes.",
    )
    comment_count = pattern_field(
        patterns.POST,
        resolver=resolve.comment_count,
        preloaded="comments",
        graphql_type=int,
        description="The number of comments.",
    )
    comments = batch_field(
        comment_patterns.COMMENTS,
        resolver=resolve_comments.comments_of_posts,
        depends_on="post_id",
        graphql_type=Connection[Comment],
        description="The comments on the post, oldest first.",
    )
    likes = batch_field(
        like_patterns.LIKES,
        resolver=resolve_likes.likes_of_posts,
        depends_on="post_id",
        graphql_type=Connection[Like],
        description="The likes of the post by `userId`, in descending order.",
    )
    liked_by_viewer = batch_field(
        like_patterns.LIKE_OF_USER,
        resolver=resolve_likes.liked_by_viewer,
        depends_on="post_id",
        graphql_type=bool | None,
        description="Whether the caller likes the post; null without a token.",
    )


@strawberry.type
class PostQueries:
    post = pattern_field(
        patterns.POST,
        resolver=resolve.post,
        graphql_type=Post | None,
        # A post for followers takes a second read: whether the caller follows its author.
        extent=Extent(reads=2),
        description="Return a post; null if it does not exist or the caller may not see it.",
    )
    posts_by_author = pattern_field(
        patterns.POSTS_BY_AUTHOR,
        resolver=resolve.posts_by_author,
        graphql_type=Connection[Post],
        description="Return the posts of an author that the caller may see, newest first. The list is empty for an "
        "unknown author.",
    )
    posts_by_tag = pattern_field(
        patterns.POSTS_BY_TAG,
        resolver=resolve.posts_by_tag,
        graphql_type=Connection[Post],
        # Posts for followers take a further read: whether the caller follows their author.
        extent=Extent(per_entry=True),
        description="Return the posts with a tag that the caller may see, newest first. Private posts are never "
        "found by tag, even by their author; `postsByAuthor` lists them.",
    )


@strawberry.type
class PostMutations:
    create_post = pattern_field(
        patterns.CREATE_POST,
        LATEST_COUNTED,
        USER_COUNTS,
        resolver=resolve.create_post,
        graphql_type=Post,
        extent=Extent(written=resolve.items_of_new_post, own_counts=OWN_COUNT_UNITS),
        description="Write a post, and return it. A repeated request with the same `postId` returns the existing "
        "post and changes nothing. The author's `postCount` contains the post, unless it is PRIVATE.",
    )
    delete_post = pattern_field(
        patterns.DELETE_POST,
        LATEST_COUNTED,
        USER_COUNTS,
        resolver=resolve.delete_post,
        graphql_type=Post | None,
        extent=Extent(written=4, own_counts=OWN_COUNT_UNITS),
        description="Delete a post of the caller. Return the post as it was, or null if it was deleted already. "
        "The author's `postCount` does not contain it. Its likes, comments and feed entries are deleted within "
        "moments.",
    )


@object_type("post_id", description="The counts of a post. Later counts of the post have the same `id`.")
class PostEngagement:
    post_id: strawberry.ID = described("The id of the post.")
    post: Post = described("The post, with these counts.")
    like_count: int = described("The number of likes.")
    comment_count: int = described("The number of comments.")


@strawberry.type
class EngagementSubscriptions:
    post_engagement = pattern_subscription(
        patterns.POST_ENGAGEMENT,
        resolver=resolve_engagement.post_engagement,
        graphql_type=AsyncGenerator[PostEngagement, None],
        description="Receive the present counts of likes and comments of a post, then each change. With "
        "`whenSlow: LATEST`, the default, the newest counts wait. The subscription ends when the post is deleted, and "
        "with FORBIDDEN when the caller may no longer see it. NOT_FOUND if it does not exist, or the caller may not "
        "see it at the start.",
    )
