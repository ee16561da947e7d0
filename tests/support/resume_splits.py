"""Clients that resume at several processes while shards split."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.replay.resume_token import ResumeToken, decode
from datastore.model.access_patterns import Table
from tests.support.changes import number_of
from tests.support.scripted_stream import Script, Shard

TABLE = Table("t", "pk", None)
KEYS = 6


class Splitting(Script):
    """A model of a stream. Each key belongs to an open shard, and shards can be split."""

    width = 21

    def __init__(self, shards: int = 1) -> None:
        super().__init__(**{f"s{number}": Shard() for number in range(shards)})
        self.of = {f"k{number}": f"s{number % shards}" for number in range(KEYS)}

    def put(self, key: str) -> int:
        return self.write(self.of[key], key)

    def split(self, shard: str) -> None:
        """End a shard. Its keys go to at most two children."""
        keys = [key for key, of in self.of.items() if of == shard]
        self.shards[shard].closed = True
        for half in filter(None, (keys[::2], keys[1::2])):
            child = f"s{len(self.shards)}"
            self.shards[child] = Shard(shard)
            self.of |= dict.fromkeys(half, child)

    @property
    def open(self) -> list[str]:
        return sorted(set(self.of.values()))


class SplitFeeds:
    """The feeds of several processes on one stream, and the changes that one client received."""

    def __init__(self, script: Script, stack: AsyncExitStack) -> None:
        self._script = script
        self._stack = stack
        self.had: list[Change] = []
        self.place: ResumeToken | None = None

    def feed(self, **given: Any) -> ChangeFeed:
        feed = ChangeFeed(
            self._script,
            **{"poll_interval": 0.001, "discover_interval": 0.02, "linger": 0, "empty_seconds": 0, **given},
        )
        self._stack.push_async_callback(feed.aclose)
        return feed

    async def read(self, feed: ChangeFeed, many: int) -> None:
        """Resume, receive `many` events, and keep the position as clients do."""
        async with self.following(feed) as events, asyncio.timeout(50):
            assert not events.is_too_old
            for _ in range(many):
                self.had.append(await anext(events))
            self.place = decode(events.token.encode())

    def following(self, feed: ChangeFeed) -> Any:
        return feed.follow(TABLE, lambda change: change, after=self.place)

    @property
    def numbers(self) -> list[int]:
        return [number_of(change) for change in self.had]
