"""What the API says about leaderboards: the shape only."""

import strawberry

from datastore.feeds import leaderboards as records
from datastore.keyspace.feeds import leaderboards as patterns
from datastore.keyspace.feeds import users as user_patterns
from datastore.model.access_patterns import Extent
from resolvers.feeds import leaderboards as resolve
from schema.feeds.users import User
from schema.fields import ask

strawberry.enum(records.TagWindow, description="The span of time, by UTC, in which a tag's posts are counted.")


@strawberry.type(description="An author's place in a month. Only public posts count, and nothing one does to oneself.")
class AuthorRank:
    rank: int = strawberry.field(description="The place, from 1.")
    author_id: strawberry.ID = strawberry.field(description="Who it is.")
    author = ask(
        user_patterns.USER,
        resolver=resolve.author,
        by="author_id",
        graphql_type=User | None,
        description="The author as they are now.",
    )
    posts: int = strawberry.field(description="Posts written in the month.")
    likes: int = strawberry.field(description="Likes received in the month.")
    comments: int = strawberry.field(description="Comments received in the month.")
    score: int = strawberry.field(description="The sum of the three.")


@strawberry.type(description="A tag's place in an hour or a day.")
class TagTrend:
    rank: int = strawberry.field(description="The place, from 1.")
    tag: str = strawberry.field(description="The tag, lower-cased, without `#`.")
    posts: int = strawberry.field(description="Public posts with the tag.")
    velocity: float = strawberry.field(
        description="Posts an hour, over what has passed of the hour or day so far, at least a minute."
    )


@strawberry.type
class LeaderboardQueries:
    top_authors = ask(
        patterns.TOP_AUTHORS,
        resolver=resolve.top_authors,
        graphql_type=list[AuthorRank],
        extent=Extent(size="top"),
        description="The authors with the most posts, likes and comments in a month, best first.",
    )
    trending_tags = ask(
        patterns.TRENDING_TAGS,
        resolver=resolve.trending_tags,
        graphql_type=list[TagTrend],
        extent=Extent(size="top"),
        description="The tags with the most posts in an hour or a day, most first.",
    )
