"""What the API says about posts: the shape only."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.feeds import posts as records
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import comments as comment_patterns
from datastore.keyspace.feeds import likes as like_patterns
from datastore.keyspace.feeds import posts as patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import comments as resolve_comments
from resolvers.feeds import likes as resolve_likes
from resolvers.feeds import posts as resolve
from resolvers.feeds import users as resolve_users
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.feeds.comments import Comment
from schema.feeds.likes import Like
from schema.feeds.users import User
from schema.fields import ask


@strawberry.type(description="A post. It never changes; counts follow what happens within moments.")
class Post(Node):
    id = strawberry.field(resolver=nodes.post_id, graphql_type=strawberry.ID, description="Globally unique.")
    post_id: strawberry.ID = strawberry.field(description="Unique among posts.")
    author_id: strawberry.ID = strawberry.field(description="Who wrote it.")
    author = ask(
        user_patterns.USER,
        resolver=resolve_users.author,
        by="author_id",
        graphql_type=User | None,
        description="The author as they are now.",
    )
    created_at: datetime = strawberry.field(description="When it was written.")
    visibility: Visibility = strawberry.field(description="Who may see it.")
    text: str = strawberry.field(description="What it says.")
    media_ref: str | None = strawberry.field(description="Where its picture or film is, as the author gave it.")
    tags: list[str] = strawberry.field(description="The tags in its text, lower-cased, without `#`.")
    mentions = ask(
        patterns.POST,
        resolver=resolve.mentions,
        at_hand="mentions",
        graphql_type=list[strawberry.ID],
        description="The ids that its text mentions, whether or not there are such users.",
    )
    like_count = ask(
        patterns.POST,
        resolver=resolve.like_count,
        at_hand="likes",
        graphql_type=int,
        description="How many like it.",
    )
    comment_count = ask(
        patterns.POST,
        resolver=resolve.comment_count,
        at_hand="comments",
        graphql_type=int,
        description="How many comments it has.",
    )
    comments = ask(
        comment_patterns.COMMENTS,
        resolver=resolve_comments.comments_of_post,
        graphql_type=Connection[Comment],
        description="Its comments, oldest first.",
    )
    likes = ask(
        like_patterns.LIKES,
        resolver=resolve_likes.likes_of_post,
        graphql_type=Connection[Like],
        description="Who likes it, by user id, the last first.",
    )
    liked_by_viewer = ask(
        like_patterns.LIKE_OF_USER,
        resolver=resolve_likes.liked_by_viewer,
        graphql_type=bool | None,
        description="Whether the caller likes it; null for one who is not signed in.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Post)


@strawberry.type
class PostQueries:
    post = ask(
        patterns.POST,
        resolver=resolve.post,
        graphql_type=Post | None,
        # Whether the caller follows its author is read too, of posts for followers.
        extent=Extent(reads=2),
        description="A post, or null if there is none that the caller may see.",
    )
    posts_by_author = ask(
        patterns.POSTS_BY_AUTHOR,
        resolver=resolve.posts_by_author,
        graphql_type=Connection[Post],
        description="The posts of an author that the caller may see, newest first.",
    )
    posts_by_tag = ask(
        patterns.POSTS_BY_TAG,
        resolver=resolve.posts_by_tag,
        graphql_type=Connection[Post],
        # Of posts for followers: whether the caller follows their author.
        extent=Extent(each=True),
        description="The posts with a tag that the caller may see, newest first. Private posts are not found by their "
        "tags, not by their author either, whose own list (`postsByAuthor`) has them.",
    )


@strawberry.type
class PostMutations:
    create_post = ask(
        patterns.CREATE_POST,
        resolver=resolve.create_post,
        graphql_type=Post,
        extent=Extent(written=resolve.items_of_new_post),
        description="Write a post. Asked for again with the same `postId`, it answers the post there is and changes "
        "nothing. Its author's `postCount` follows a moment later.",
    )
    delete_post = ask(
        patterns.DELETE_POST,
        resolver=resolve.delete_post,
        graphql_type=Post | None,
        extent=Extent(written=4),
        description="Delete one's post: the post as it was, or null if it was deleted already. Its likes, comments "
        "and feed entries are removed within moments.",
    )
