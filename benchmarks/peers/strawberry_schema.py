"""The part of the gateway's schema that W1 … W4 need, in plain Strawberry."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import strawberry

from benchmarks.peers import cursors
from benchmarks.peers.clients import Item
from benchmarks.peers.strawberry_store import Store, last_part

DEFAULT_PAGE = 25


@dataclass
class Context:
    """The context of one request."""

    store: Store


Info = strawberry.Info[Context, None]


@strawberry.enum
class Visibility(Enum):
    PUBLIC = "public"
    FOLLOWERS = "followers"
    PRIVATE = "private"


@strawberry.enum
class MatchPhase(Enum):
    UPCOMING = "upcoming"
    LIVE = "live"
    BREAK = "break"
    STUMPS = "stumps"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    POSTPONED = "postponed"
    UNKNOWN = "unknown"


@strawberry.type
class User:
    user_id: strawberry.ID
    name: str
    avatar_ref: str | None


@strawberry.type
class Comment:
    comment_id: strawberry.ID
    text: str
    created_at: datetime
    by: strawberry.Private[str]

    @strawberry.field
    async def author(self, info: Info) -> User | None:
        return await user(info, self.by)


@strawberry.type
class CommentConnection:
    nodes: list[Comment | None]


@strawberry.type
class Post:
    post_id: strawberry.ID
    author_id: strawberry.ID
    created_at: datetime
    visibility: Visibility
    text: str
    media_ref: str | None
    tags: list[str]
    like_count: int
    comment_count: int

    @strawberry.field
    async def author(self, info: Info) -> User | None:
        return await user(info, self.author_id)

    @strawberry.field
    async def comments(self, info: Info, first: int | None = None) -> CommentConnection:
        size = first or DEFAULT_PAGE
        items = await info.context.store.comments.load((self.post_id, size))
        return CommentConnection(nodes=[comment_of(item) for item in items[:size]])


@strawberry.type
class FeedEntry:
    post_id: strawberry.ID
    created_at: datetime

    @strawberry.field
    async def post(self, info: Info) -> Post | None:
        return await post(info, self.post_id)


@strawberry.type
class PageInfo:
    has_next_page: bool
    has_previous_page: bool
    start_cursor: str | None
    end_cursor: str | None


@strawberry.type
class PostEdge:
    cursor: str
    node: Post | None


@strawberry.type
class PostConnection:
    edges: list[PostEdge]
    page_info: PageInfo


@strawberry.type
class FeedEntryEdge:
    cursor: str
    node: FeedEntry | None


@strawberry.type
class FeedEntryConnection:
    edges: list[FeedEntryEdge]
    page_info: PageInfo


@strawberry.type
class Team:
    team_id: strawberry.ID
    name: str
    code: str
    image_url: str | None


@strawberry.type
class Match:
    match_id: strawberry.ID
    league_code: str
    start_time: datetime
    status: str
    phase: MatchPhase
    round: str | None
    format: str | None
    home: strawberry.Private[str]
    away: strawberry.Private[str]

    @strawberry.field
    async def home_team(self, info: Info) -> Team | None:
        return await team(info, self.home)

    @strawberry.field
    async def away_team(self, info: Info) -> Team | None:
        return await team(info, self.away)


@strawberry.type
class Query:
    @strawberry.field
    async def post(self, info: Info, id: strawberry.ID) -> Post | None:
        return await post(info, id)

    @strawberry.field
    async def posts_by_author(self, info: Info, author_id: strawberry.ID, first: int | None = None) -> PostConnection:
        size = first or DEFAULT_PAGE
        items = await info.context.store.posts_by_author(author_id, size)
        sign = cursors.signer(cursors.POSTS_BY_AUTHOR, {"authorId": author_id})
        edges = [PostEdge(cursor=sign(item), node=post_of(item)) for item in items[:size]]
        return PostConnection(edges=edges, page_info=page_info(edges, len(items) > size))

    @strawberry.field
    async def home_feed(self, info: Info, user_id: strawberry.ID, first: int | None = None) -> FeedEntryConnection:
        size = first or DEFAULT_PAGE
        items = await info.context.store.home_feed(user_id, size)
        sign = cursors.signer(cursors.HOME_FEED, {"userId": user_id})
        edges = [FeedEntryEdge(cursor=sign(item), node=entry_of(item)) for item in items[:size]]
        return FeedEntryConnection(edges=edges, page_info=page_info(edges, len(items) > size))

    @strawberry.field
    async def matches(self, info: Info, ids: list[strawberry.ID]) -> list[Match | None]:
        items = await info.context.store.matches.load_many(ids)
        return [match_of(item) if item else None for item in items]


async def user(info: Info, user_id: str) -> User | None:
    item = await info.context.store.users.load(user_id)
    if item is None:
        return None
    return User(user_id=strawberry.ID(user_id), name=item["name"], avatar_ref=item.get("avatar_ref"))


async def post(info: Info, post_id: str) -> Post | None:
    item = await info.context.store.posts.load(post_id)
    return post_of(item) if item else None


async def team(info: Info, team_id: str) -> Team | None:
    item = await info.context.store.teams.load(team_id)
    if item is None:
        return None
    return Team(team_id=item["teamId"], name=item["name"], code=item["code"], image_url=item.get("imageUrl"))


def post_of(item: Item) -> Post:
    return Post(
        post_id=strawberry.ID(last_part(item["PK"])),
        # The index of an author's posts has the author only in its key.
        author_id=strawberry.ID(item.get("author_id") or last_part(item["GSI1PK"])),
        created_at=datetime.fromisoformat(item["GSI1SK"].partition("#")[0]),
        visibility=Visibility(item["visibility"]),
        text=item["text"],
        media_ref=item.get("media_ref"),
        tags=item.get("tags", []),
        like_count=max(0, int(item.get("likes", 0))),
        comment_count=max(0, int(item.get("comments", 0))),
    )


def entry_of(item: Item) -> FeedEntry:
    moment = item["SK"].partition("#")[0]
    return FeedEntry(post_id=strawberry.ID(last_part(item["SK"])), created_at=datetime.fromisoformat(moment))


def comment_of(item: Item) -> Comment:
    return Comment(
        comment_id=strawberry.ID(last_part(item["SK"])),
        text=item["text"],
        created_at=datetime.fromisoformat(item["created_at"]),
        by=item["user_id"],
    )


def match_of(item: Item) -> Match:
    return Match(
        match_id=item["matchId"],
        league_code=item["leagueCode"],
        start_time=datetime.fromisoformat(item["startTime"]),
        status=item["status"],
        phase=MatchPhase(item["phase"]),
        round=item.get("round"),
        format=item.get("format"),
        home=item["homeTeamId"],
        away=item["awayTeamId"],
    )


def page_info(edges: list[Any], more: bool) -> PageInfo:
    ends = (edges[0].cursor, edges[-1].cursor) if edges else (None, None)
    return PageInfo(has_next_page=more, has_previous_page=False, start_cursor=ends[0], end_cursor=ends[1])


def build(extensions: list[Callable[[], Any]]) -> strawberry.Schema:
    return strawberry.Schema(Query, extensions=extensions)
