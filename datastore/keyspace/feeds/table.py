"""The table `feed`: users, posts, comments, likes, follows, home feeds and notifications.

| item | key | index key |
|---|---|---|
| user | `USER#<id>` / `META` | |
| post | `POST#<id>` / `META` | GSI1 `USER#<author>` / `<ts>#POST#<id>` |
| post's tag | `POST#<id>` / `TAG#<tag>` | GSI2 `TAG#<tag>` / `<ts>#POST#<id>`, unless it is private |
| comment | `POST#<id>` / `COMMENT#<commentId>` | |
| like | `POST#<id>` / `LIKE#<user>` | |
| follow edge | `FOLLOWEE#<user>` / `FOLLOWER#<follower>#<ts>` | GSI_FOL, the same / `<ts>#FOLLOWER#<follower>` |
| following | `USER#<follower>` / `FOLLOWING#<followee>` | |
| feed entry | `FEED#<user>` / `<ts>#<shard>#POST#<id>` | GSI3, the same |
| feed source | `FEED#<user>` / `SOURCE#<author>` | GSI3, the same |
| notification | `USER#<id>#UNREAD` / `<ts>#<notification>` | GSI_NOTIF, the same; of likes `<ts>` is the last one's |

Projections hold the attributes that lists show. A post's text, visibility, tags and author never change, so its tag
items hold copies of them.
"""

from datastore.model.access_patterns import Expiry, Index, Table

FEED = Table(
    name="feed",
    partition="PK",
    sort="SK",
    indexes=(
        # PostsByAuthor
        Index(
            "GSI1",
            partition="GSI1PK",
            sort="GSI1SK",
            projection=("visibility", "text", "media_ref", "tags", "likes", "comments"),
        ),
        # PostsByTag
        Index(
            "GSI2",
            partition="GSI2PK",
            sort="GSI2SK",
            projection=("author_id", "visibility", "text", "media_ref", "tags"),
        ),
        # FeedByUser
        Index("GSI3", partition="GSI3PK", sort="GSI3SK", projection=("author_id", "since", "followers_only")),
        # Followers
        Index("GSI_FOL", partition="GSI_FOLPK", sort="GSI_FOLSK", projection="KEYS_ONLY"),
        # Unread
        Index(
            "GSI_NOTIF",
            partition="GSI_NOTIFPK",
            sort="GSI_NOTIFSK",
            projection=("kind", "actor_id", "actor_count", "post_id", "comment_id", "expiresAt"),
        ),
    ),
    ttl="expiresAt",
    expiry=Expiry.NEVER,  # except notifications; tombstones of posts and comments have `deleted_at`
    stream="NEW_AND_OLD_IMAGES",
)
