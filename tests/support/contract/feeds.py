"""The contract of feeds: each field with its access patterns, callers, calls, and an operation."""

from collections.abc import Sequence

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import Who
from tests.support.contract.pages import Again, Field, Followed, Nested, NodeType, Owner, Page, Use
from tests.support.served import Served

SETUP = """mutation {
  createUser(input: {name: "Ada"}) { userId }
  createPost(input: {postId: "p1", text: "Hello #cats, dear @grace"}) { postId }
}"""
# The marks of counted changes and the count, for a count with the caller's own change.
OWN_COUNTS: Sequence[Use] = (("FEED-N7", Who.USER, {"Query"}), ("FEED-N7", Who.USER, {"GetItem", "BatchGetItem"}))
MARKED_COUNTS: Sequence[Use] = (*OWN_COUNTS, ("FEED-N7", Who.USER, {"PutItem"}))
GRACE = 'mutation { createUser(input: {name: "Grace"}) { userId } }'
FOLLOW = 'mutation { follow(userId: "grace") { userId } }'


async def prepare_feeds(served: Served) -> dict[str, str]:
    assert (await served.ask(SETUP, user="ada")).errors is None
    assert (await served.ask(GRACE, user="grace")).errors is None
    assert (await served.ask(FOLLOW, user="ada")).errors is None
    return {}


PAGE = Page(
    name="feeds",
    prepare=prepare_feeds,
    elsewhere={name: "tests/api/feeds/test_search.py" for name in ("searchPosts", "searchUsers")},
    fields=(
        Field(
            "user",
            ("FEED-001", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ user(id: "ada") { name postCount } }',
            ["GetItem feed"],
        ),
        # For posts for followers: whether the caller is one.
        Field(
            "postsByAuthor",
            ("FEED-002", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ postsByAuthor(authorId: "grace") { nodes { text likeCount } } }',
            ["Query feed.GSI1"],
        ),
        # For authors with very many followers: their posts since the user follows them.
        Field(
            "homeFeed",
            ("FEED-003", Who.USER, {"Query"}),
            '{ homeFeed(userId: "ada") { nodes { postId } } }',
            ["Query feed.GSI3"],
            owner=Owner.NAMED,
        ),
        Field(
            "post",
            ("FEED-004", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ post(id: "p1") { text mentionedUserIds likeCount } }',
            ["GetItem feed"],
        ),
        # The post is read too: callers who may not see it get no likes.
        Field(
            "likes",
            ("FEED-005", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ likes(postId: "p1") { nodes { createdAt } } }',
            ["GetItem feed", "Query feed"],
        ),
        Field(
            "comments",
            ("FEED-006", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ comments(postId: "p1") { nodes { text mentionedUserIds } } }',
            ["GetItem feed", "Query feed"],
        ),
        Field(
            "postsByTag",
            ("FEED-007", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ postsByTag(tag: "#Cats") { nodes { text } } }',
            ["Query feed.GSI2"],
        ),
        Field(
            "followers",
            ("FEED-008", Who.ANY, {"Query"}),
            '{ followers(userId: "grace") { nodes { createdAt } } }',
            ["Query feed.GSI_FOL"],
        ),
        Field(
            "following",
            ("FEED-008", Who.ANY, {"Query"}),
            '{ following(userId: "ada") { nodes { createdAt } } }',
            ["Query feed"],
        ),
        Field(
            "notifications",
            ("FEED-009", Who.USER, {"Query"}),
            '{ notifications(userId: "ada") { nodes { kind } } }',
            ["Query feed.GSI_NOTIF"],
            owner=Owner.NAMED,
        ),
        Field(
            "topAuthors",
            ("FEED-010", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ topAuthors(at: "2026-06-25T12:00:00Z") { score } }',
            ["GetItem feed-metrics"],
        ),
        Field(
            "trendingTags",
            ("FEED-010", Who.ANY, {"GetItem", "BatchGetItem"}),
            "{ trendingTags { postsPerHour } }",
            ["GetItem feed-metrics"],
        ),
        # The read checks that the author is a user.
        Field(
            "createPost",
            ("FEED-W1", Who.USER, {"GetItem", "BatchGetItem", "TransactWriteItems"}),
            'mutation { createPost(input: {text: "Hello #dogs"}) { text tags likeCount } }',
            ["GetItem feed", "TransactWriteItems feed"],
            also=OWN_COUNTS,
            missing="NOT_FOUND",
        ),
        # The reads check that the caller has a profile and may see the post.
        Field(
            "likePost",
            ("FEED-W2", Who.USER, {"GetItem", "BatchGetItem", "PutItem"}),
            'mutation { likePost(postId: "p1") { createdAt } }',
            ["BatchGetItem feed", "PutItem feed"],
            also=OWN_COUNTS,
            missing="NOT_FOUND",
        ),
        Field(
            "unlikePost",
            ("FEED-W2", Who.USER, {"DeleteItem"}),
            'mutation { unlikePost(postId: "p1") { createdAt } }',
            ["DeleteItem feed"],
            also=MARKED_COUNTS,
            again=Again.NOTHING_THERE,
        ),
        Field(
            "createComment",
            ("FEED-W3", Who.USER, {"GetItem", "BatchGetItem", "PutItem"}),
            'mutation { createComment(postId: "p1", input: {text: "Nice"}) { text } }',
            ["BatchGetItem feed", "PutItem feed"],
            also=OWN_COUNTS,
            missing="NOT_FOUND",
        ),
        # The reads check that both users exist.
        Field(
            "follow",
            ("FEED-W4", Who.USER, {"GetItem", "BatchGetItem", "TransactWriteItems"}),
            'mutation { follow(userId: "ada") { createdAt } }',
            ["BatchGetItem feed", "Query feed", "TransactWriteItems feed"],
            also=OWN_COUNTS,
            user="grace",
            missing="NOT_FOUND",
        ),
        # The time of the follow is a part of its key, and is read first.
        Field(
            "unfollow",
            ("FEED-W4", Who.USER, {"GetItem", "BatchGetItem", "TransactWriteItems"}),
            'mutation { unfollow(userId: "grace") { createdAt } }',
            ["GetItem feed", "TransactWriteItems feed"],
            also=MARKED_COUNTS,
            again=Again.NOTHING_THERE,
        ),
        Field(
            "markNotificationRead",
            ("FEED-W5", Who.USER, {"DeleteItem"}),
            'mutation { markNotificationRead(id: "none") { kind } }',
            ["DeleteItem feed"],
            again=Again.NOTHING_EITHER_TIME,
        ),
        Field(
            "createUser",
            ("FEED-W6", Who.USER, {"PutItem"}),
            'mutation { createUser(input: {name: "Ada"}) { name } }',
            ["PutItem feed"],
        ),
        Field(
            "updateUser",
            ("FEED-W6", Who.USER, {"UpdateItem"}),
            'mutation { updateUser(input: {name: "Ada"}) { name } }',
            ["UpdateItem feed"],
            again=Again.WRITTEN,
        ),
        # If the deletion is refused, the post is read: the caller must be allowed to see it.
        Field(
            "deleteComment",
            ("FEED-W6", Who.USER, {"GetItem", "BatchGetItem", "UpdateItem"}),
            'mutation { deleteComment(postId: "p1", commentId: "c1") { text } }',
            ["GetItem feed"],
            also=OWN_COUNTS,
            again=Again.NOTHING_EITHER_TIME,
        ),
        # The tags are read first.
        Field(
            "deletePost",
            ("FEED-W6", Who.USER, {"GetItem", "BatchGetItem", "TransactWriteItems"}),
            'mutation { deletePost(id: "p1") { text } }',
            ["GetItem feed", "TransactWriteItems feed"],
            also=OWN_COUNTS,
            owner=Owner.STORED,
            missing="NOT_FOUND",
            again=Again.NOTHING_THERE,
        ),
    ),
    subscriptions=(
        # The authors that are merged into the feed.
        Followed(
            "homeFeedUpdated",
            ("FEED-S1", Who.USER, {"Query"}),
            'homeFeedUpdated(userId: "ada") { postId }',
            snapshot=(FEED, "Query feed"),
        ),
        Followed(
            "notificationReceived",
            ("FEED-S1", Who.USER, set()),
            'notificationReceived(userId: "ada") { notificationId }',
        ),
        # The post, and for a post for followers whether the caller follows its author.
        Followed(
            "postEngagement",
            ("FEED-S1", Who.ANY, {"GetItem", "BatchGetItem"}),
            'postEngagement(postId: "p1") { likeCount }',
            snapshot=(FEED, "GetItem feed"),
        ),
    ),
    cursors={
        "comments": ("FEED-006", '{"postId":"p1"}', '{"postId":"p1"}'),
        "followers": ("FEED-008", '{"order":"ascending","userId":"ada"}', '{"userId":"ada"}'),
        "following": ("FEED-008", '{"userId":"ada"}', '{"userId":"ada"}'),
        "homeFeed": ("FEED-003", '{"order":"ascending","userId":"ada"}', '{"userId":"ada"}'),
        "likes": ("FEED-005", '{"order":"ascending","postId":"p1"}', '{"postId":"p1"}'),
        "notifications": ("FEED-009", '{"order":"ascending","userId":"ada"}', '{"userId":"ada"}'),
        "postsByAuthor": ("FEED-002", '{"authorId":"ada","order":"ascending"}', '{"authorId":"ada"}'),
        "postsByTag": ("FEED-007", '{"order":"ascending","tag":"cats"}', '{"tag":"cats"}'),
        "searchPosts": ("FEED-N5", '{"caller":"ada","query":["hello"]}', '{"caller":"ada","query":["hello"]}'),
        "searchUsers": ("FEED-N6", '{"caller":"ada","query":["hello"]}', '{"caller":"ada","query":["hello"]}'),
    },
    nodes=(
        NodeType("Comment", 'comments(postId: "p1") { nodes { id } }'),
        NodeType("Notification", 'notifications(userId: "ada") { nodes { id } }', restricted="FEED-N4"),
        NodeType("Post", 'post(id: "p1") { id }'),
        NodeType("User", 'user(id: "ada") { id }'),
    ),
    nested=(
        Nested(
            "Post.likedByViewer",
            'post(id: "p1") { value: likedByViewer }',
            {"anonymous": None, "owner": True, "stranger": False, "admin": False, "system": False},
        ),
        Nested(
            "User.followedByViewer",
            'user(id: "grace") { value: followedByViewer }',
            {"anonymous": None, "owner": True, "stranger": False, "admin": False, "system": False},
        ),
        Nested(
            "Me.homeFeed",
            "me { value: homeFeed { nodes { postId } } }",
            {"anonymous": None} | {key: {"nodes": []} for key in ("owner", "stranger", "admin", "system")},
        ),
        Nested(
            "Me.notifications",
            "me { value: notifications { nodes { kind } } }",
            {"anonymous": None} | {key: {"nodes": []} for key in ("owner", "stranger", "admin", "system")},
        ),
    ),
)
