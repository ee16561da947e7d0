"""GraphQL types and fields of leaderboards."""

import strawberry

from datastore.feeds import leaderboards as records
from datastore.keyspace.feeds import leaderboards as patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import leaderboards as resolve
from schema.feeds.lazy_types import user_field
from schema.fields import described, pattern_field
from schema.nodes import object_type

strawberry.enum(
    records.TagPeriod, description="The calendar period, in UTC, in which the posts with a tag are counted."
)


@object_type(
    "month",
    "author_id",
    description="An author's rank in a month. Only public posts count, and no likes or comments of the author's own.",
)
class AuthorRank:
    rank: int = described("The rank, from 1.")
    author_id: strawberry.ID = described("The id of the author.")
    author = user_field("author_id", "The author's `User`, as it is now; null if there is none.")
    posts: int = described("The number of posts written in the month.", name="postCount")
    likes: int = described("The number of likes received in the month.", name="likeCount")
    comments: int = described("The number of comments received in the month.", name="commentCount")
    score: int = described("The sum of `postCount`, `likeCount` and `commentCount`.")


@object_type("period", "tag", description="A tag's rank in an hour or a day.")
class TagTrend:
    rank: int = described("The rank, from 1.")
    tag: str = described("The tag in lower case, without `#`.")
    posts: int = described("The number of public posts with the tag.", name="postCount")
    velocity: float = described(
        "The posts per hour in the part of the hour or day that has passed so far, which counts as at least one "
        "minute.",
        name="postsPerHour",
    )


@strawberry.type
class LeaderboardQueries:
    top_authors = pattern_field(
        patterns.TOP_AUTHORS,
        resolver=resolve.top_authors,
        graphql_type=list[AuthorRank],
        extent=Extent(size="first"),
        description="Return the authors with the most posts, likes and comments in a month, highest score first: "
        "at most 100.",
    )
    trending_tags = pattern_field(
        patterns.TRENDING_TAGS,
        resolver=resolve.trending_tags,
        graphql_type=list[TagTrend],
        extent=Extent(size="first"),
        description="Return the tags with the most posts in an hour or a day, most posts first: at most 100.",
    )
