"""Users of the feed: `USER#<id>` / `META`."""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import SHARED_MS, Who
from datastore.model.versioning import version_guard

META = "META"


@item_key(FEED)
def user(user_id: str) -> KeyParts:
    return ("USER", user_id), (META,)


USER = user.read(
    "FEED-001",
    "A user of the feed, with the counts of posts, followers and followed users",
    Who.ANY,
    (
        *("user", "Me.user", "Post.author", "Comment.author", "Like.user", "Follower.user", "Following.user"),
        *("FeedEntry.author", "Notification.actor", "AuthorRank.author", "UserProfile.user", "PhotoUser.user"),
        *("node", "nodes"),
    ),
    shared_ms=SHARED_MS,
)
CREATE_USER = user.put(
    "FEED-W6",
    "Create the caller's user; a repeat changes nothing",
    Who.USER,
    ("createUser",),
    condition="attribute_not_exists(PK)",
)
UPDATE_USER = user.update(
    "FEED-W6",
    "Change the caller's name, bio or picture",
    Who.USER,
    ("updateUser",),
    condition="attribute_exists(PK)",
    guard=version_guard(),
)
# The read must find that the author was just switched to merging.
AUTHOR = user.read("FEED-P4", "Whether an author's posts are fanned out on write or merged on read", consistent=True)
START_MERGING = user.update(
    "FEED-P4",
    "Start to merge an author's posts on read: from now on each follower gets a source",
    condition="attribute_exists(PK) AND attribute_not_exists(merging_since)",
    update="SET merging_since = :now",
)
COMPLETE_MERGING = user.update(
    "FEED-P4",
    "Mark that every follower of an author has a source; posts since then have no entries",
    condition="attribute_exists(merging_since) AND attribute_not_exists(merged_since)",
    update="SET merged_since = :since",
)

COUNTS = user.read(
    "FEED-N7",
    "The counts of a user, for a response that adds the caller's own change",
    Who.USER,
    ("follow", "unfollow", "createPost", "deletePost"),
    consistent=True,
)

# The condition of transactions that change a user's counters.
USER_EXISTS = "attribute_exists(PK)"
