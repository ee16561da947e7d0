"""GraphQL types and fields of leaderboards."""

import strawberry

from datastore.feeds import leaderboards as records
from datastore.keyspace.feeds import leaderboards as patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import leaderboards as resolve
from schema.feeds.users import User
from schema.fields import pattern_field

strawberry.enum(records.TagWindow, description="The UTC time window in which a tag's posts are counted.")


@strawberry.type(
    description="An author's rank in a month. Only public posts count, and no likes or comments of the author's own."
)
class AuthorRank:
    rank: int = strawberry.field(description="The rank, from 1.")
    author_id: strawberry.ID = strawberry.field(description="The id of the author.")
    author = pattern_field(
        user_patterns.USER,
        resolver=resolve.author,
        depends_on="author_id",
        graphql_type=User | None,
        description="The author's present profile; null if there is none.",
    )
    posts: int = strawberry.field(description="The number of posts written in the month.")
    likes: int = strawberry.field(description="The number of likes received in the month.")
    comments: int = strawberry.field(description="The number of comments received in the month.")
    score: int = strawberry.field(description="The sum of `posts`, `likes` and `comments`.")


@strawberry.type(description="A tag's rank in an hour or a day.")
class TagTrend:
    rank: int = strawberry.field(description="The rank, from 1.")
    tag: str = strawberry.field(description="The tag in lower case, without `#`.")
    posts: int = strawberry.field(description="The number of public posts with the tag.")
    velocity: float = strawberry.field(
        description="Posts per hour, over the part of the hour or day that has passed so far, at least one minute."
    )


@strawberry.type
class LeaderboardQueries:
    top_authors = pattern_field(
        patterns.TOP_AUTHORS,
        resolver=resolve.top_authors,
        graphql_type=list[AuthorRank],
        extent=Extent(size="top"),
        description="Return the authors with the most posts, likes and comments in a month, highest score first.",
    )
    trending_tags = pattern_field(
        patterns.TRENDING_TAGS,
        resolver=resolve.trending_tags,
        graphql_type=list[TagTrend],
        extent=Extent(size="top"),
        description="Return the tags with the most posts in an hour or a day, most posts first.",
    )
