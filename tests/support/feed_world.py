"""A small feed for tests of the stream's handlers: its writes, its home feeds, and interruptions."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from datastore.change_streams.change import Change, decode_change
from datastore.database import Database
from datastore.dynamodb.calls import Call, CallMeter
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item
from datastore.dynamodb.read_cache import ReadCaches
from datastore.dynamodb.requests import PreparedRequest
from datastore.dynamodb.retry.first_attempts import CallTerms, StartedCall
from datastore.feeds.follows import Follow, Follows, edge_item, is_following
from datastore.feeds.home_feeds import HomeFeeds, MergedAuthor, entry_from, is_entry, is_source
from datastore.feeds.posts import Post, Posts, is_live, is_post
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.infrastructure.iam_roles import LAMBDA_FEED, IamRole
from datastore.keyspace.feeds.home_feeds import entry_parts
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import AUTHOR, UPDATE_USER, user
from datastore.model.composite_keys import key_of
from datastore.model.timestamps import iso
from datastore.session.metering import Deadline, Meter
from datastore.session.pagination import Span
from datastore.session.store import Store
from tests.support.feed_changes import items_of
from tests.support.rights import refused
from tests.support.served import NOON, Clock

Hook = Callable[[str, Mapping[str, Any]], Awaitable[None]]
Happening = Callable[[], Awaitable[object]]


class Killed(Exception):
    """The process was killed."""


class ProcessWire(Client):
    """The client of one process. The process dies after its `last` call without receiving the response; `before` is
    called before each call.

    With a `role`, it may do what the role's policy in AWS allows; with None, everything.
    """

    def __init__(
        self, client: Client, last: int | None = None, before: Hook | None = None, role: IamRole | None = LAMBDA_FEED
    ) -> None:
        self._client = client
        self._last = last
        self._before = before
        self._role = role
        self._under_way = 0
        self.sent = 0
        self.meter = Meter()
        self.read_caches = ReadCaches()

    async def call(
        self,
        operation: str,
        request: Mapping[str, Any] | PreparedRequest,
        /,
        *,
        timeout: float = 5,  # noqa: ASYNC109
        meter: CallMeter | None = None,
        **purpose: Any,
    ) -> dict[str, Any]:
        payload = request.payload if isinstance(request, PreparedRequest) else request
        if self._role is not None:
            assert refused(self._role, operation, payload) == []
        if self._before is not None:
            await self._before(operation, payload)
        if self._last is not None and self.sent >= self._last:
            raise Killed
        self.sent += 1
        self._under_way += 1
        try:
            answer = await self._client.call(operation, request, timeout=timeout, meter=self.meter, **purpose)
        finally:
            self._under_way -= 1
        if self._last is not None and self.sent >= self._last:
            raise Killed
        return answer

    def start(
        self, operation: str, prepared: PreparedRequest, done: Callable[[Any], None], /, **options: Any
    ) -> StartedCall:
        """Make a call in a task."""
        started = StartedCall(self, cast(CallTerms, None), cast(Call, None), done, None)
        started.run(self.call(operation, prepared, **options))
        return started

    async def quiet(self) -> None:
        """Wait until no call is in flight."""
        while self._under_way:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)


class FeedWorld:
    """A feed in its own tables. Each write is a second later than the one before."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = Clock()
        self._iterators: dict[str, str | None] = {}

    def store(self, client: Client | None = None) -> Store:
        return Store(
            client or self.database.client,
            prefix=self.database.prefix,
            deadline=Deadline(20),
            token=lambda: uuid.uuid4().hex,
            now=lambda: NOON,
        )

    async def users(self, *names: str) -> None:
        await asyncio.gather(*[Users(self.store(), self.clock()).create(name, name=name) for name in names])

    async def counted(self, author: str, followers: int) -> None:
        """Set the number of followers in an author's counters."""
        await self.store().update(UPDATE_USER, user(author), update="SET followers = :followers", followers=followers)

    async def author(self, author: str) -> Item:
        item = await self.store().get(AUTHOR, user(author))
        assert item is not None
        return item

    async def forget_progress(self) -> None:
        """Delete the progress items, as their TTL does after some days."""
        progress = [item for item in await items_of(self.database, FEED_PIPELINE) if item["SK"] == "PROGRESS"]
        await self.store().write_all(FEED_PIPELINE, deletes=[key_of(FEED_PIPELINE, item) for item in progress])

    async def follow(self, follower: str, author: str) -> datetime:
        return (await Follows(self.store(), self._tick()).follow(follower, author)).since

    async def unfollow(self, follower: str, author: str) -> None:
        await Follows(self.store(), self._tick()).unfollow(follower, author)

    async def followed_by(self, author: str, followers: Sequence[str]) -> None:
        """Store the author's side of many follows."""
        since = self._tick()
        await self.store().write_all(FEED, puts=[edge_item(Follow(one, author, since)) for one in followers])

    async def write(self, post_id: str, author: str, visibility: Visibility = Visibility.PUBLIC) -> Post:
        posts = Posts(self.store(), self._tick(), VisibilityPolicy(self.store(), Viewer(author)))
        return await posts.create(post_id, author_id=author, text="Hello #world", visibility=visibility)

    async def delete(self, post_id: str, author: str) -> None:
        await Posts(self.store(), self._tick(), VisibilityPolicy(self.store(), Viewer(author))).delete(post_id, author)

    def _tick(self) -> datetime:
        self.clock.forward(seconds=1)
        return self.clock()

    async def changes(self) -> list[Change]:
        """Return the new changes of the stream since the last call."""
        table = await self._call("DescribeTable", TableName=self.database.prefix + FEED.name)
        stream = {"StreamArn": table["Table"]["LatestStreamArn"]}
        changes: list[Change] = []
        for shard in (await self._call("DescribeStream", **stream))["StreamDescription"]["Shards"]:
            changes += await self._changes({**stream, "ShardId": shard["ShardId"]})
        return changes

    async def _changes(self, shard: Mapping[str, str]) -> list[Change]:
        """Return the new changes of a shard.

        An open shard always has a next iterator, so that an empty page is the end.
        """
        iterator = self._iterators.get(shard["ShardId"])
        if iterator is None:
            begin = await self._call("GetShardIterator", **shard, ShardIteratorType="TRIM_HORIZON")
            iterator = begin["ShardIterator"]
        changes: list[Change] = []
        while iterator is not None:
            answer = await self._call("GetRecords", ShardIterator=iterator, Limit=1000)
            iterator = self._iterators[shard["ShardId"]] = answer.get("NextShardIterator")
            if not answer["Records"]:
                break
            changes += [decode_change(FEED.name, record) for record in answer["Records"]]
        return changes

    async def _call(self, operation: str, **payload: Any) -> dict[str, Any]:
        return await self.database.client.call(operation, payload)

    async def home(self, user_id: str) -> list[str]:
        """Return the posts in a user's feed, newest first."""
        page = await HomeFeeds(self.store()).of_user(user_id, Span(100))
        return [entry_parts(item["GSI3SK"])[1] for item in page.items]

    async def entries(self) -> set[tuple[str, str]]:
        """Return the user and post of every entry."""
        items = [item for item in await items_of(self.database, FEED) if is_entry(item)]
        return {(entry.user_id, entry.post_id) for entry in map(entry_from, items)}

    async def sources(self) -> set[tuple[str, str, str]]:
        """Return the user, author and time of every source."""
        items = [item for item in await items_of(self.database, FEED) if is_source(item)]
        sources = map(MergedAuthor.decoder, items)
        return {(source.user_id, source.author_id, source.since) for source in sources}

    async def assert_right(self, merged: Sequence[str] = ()) -> None:
        """Check that each home feed follows from follows and posts, that no entry is left over, and the sources of
        `merged`.
        """
        items = await items_of(self.database, FEED)
        follows = [Follow.decoder(item) for item in items if is_following(item)]
        posts = [Post.decoder(item) for item in items if is_post(item) and is_live(item)]
        feeds = {
            (follow.follower_id, post.post_id)
            for follow in follows
            for post in posts
            if post.author_id == follow.followee_id
            and follow.since <= post.created_at
            and post.visibility is not Visibility.PRIVATE
        }
        sources = {(one.follower_id, one.followee_id, iso(one.since)) for one in follows if one.followee_id in merged}
        assert await self.sources() == sources
        assert await self.entries() <= feeds
        users = {user_id for user_id, _ in feeds}
        homes = await asyncio.gather(*[self.home(user_id) for user_id in users])
        assert {(user_id, post) for user_id, home in zip(users, homes, strict=True) for post in home} == feeds


def once(happens: Happening, when: Callable[[str, Mapping[str, Any]], bool]) -> Callable[..., Awaitable[None]]:
    """Run `happens` before the first call that satisfies `when`."""
    waiting = [happens]

    async def before(operation: str, payload: Mapping[str, Any]) -> None:
        if waiting and when(operation, payload):
            await waiting.pop()()

    return before


def operation_counts(calls: Sequence[Call]) -> dict[str, int]:
    """Return the number of calls of each operation."""
    return {name: sum(call.operation == name for call in calls) for name in sorted({call.operation for call in calls})}
