"""Brings the feed of one who begins or stops to follow an author into line with whether they do.

One function for both: it looks whether the follow stands, writes the feed accordingly, and looks again. So it does not
matter in which order, how often and by how many the changes of one follow are handled.

A post that was written just before the follow came, by the clock of another process just after, is put there from the
author's posts; the index they are read from is behind the table by less than the stream is.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from datastore.change_streams.shards.stream_reader import Change
from datastore.dynamodb.codec import Item
from datastore.feeds.fan_out import Author, AuthorSource, FanOuts, PostEntry
from datastore.feeds.follows import Follow, following_from, is_following
from datastore.session.store import Store
from pipelines.feeds.bounded_gather import AT_ONCE, side_by_side
from pipelines.feeds.follower_fan_out import PAGE


class FollowBackfill:
    """Handles follows that were made or taken back."""

    name = "followings"

    def __init__(
        self,
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        *,
        page: int = PAGE,
        at_once: int = AT_ONCE,
    ) -> None:
        self._open_store = open_store
        self._now = now
        self._page = page
        self._at_once = at_once

    async def handle(self, changes: Sequence[Change]) -> None:
        """All changes of one follow at once: what counts is how it stands now, and since when the feed may be wrong."""
        oldest: dict[tuple[str, str], datetime] = {}
        for change in changes:
            for follow in _follows(change):
                pair = follow.follower_id, follow.followee_id
                oldest[pair] = min(follow.since, oldest.get(pair, follow.since))
        await side_by_side([partial(self._settle, *pair, since) for pair, since in oldest.items()], self._at_once)

    def _tables(self) -> FanOuts:
        return FanOuts(self._open_store(), self._now())

    async def _settle(self, follower_id: str, author_id: str, oldest: datetime) -> None:
        """Bring the author's posts of `oldest` and later in line, until the follow is as it was before."""
        pair = follower_id, author_id
        follow, author = await self._look(*pair)
        while True:
            oldest = min(oldest, follow.since) if follow else oldest
            if author.merging_since is not None:
                await self._tables().place(AuthorSource(author_id), {follower_id: follow.since if follow else None})
            elif follow is not None:
                await self._bring_in(follow)
            # Of posts after it no entries were ever written.
            if author.merged_since is None or author.merged_since > oldest:
                await self._weed(pair, oldest, follow)
            before = follow
            follow, author = await self._look(*pair)
            if follow == before:
                return

    async def _look(self, follower_id: str, author_id: str) -> tuple[Follow | None, Author]:
        tables = self._tables()
        return await asyncio.gather(tables.following(follower_id, author_id), tables.author(author_id))

    async def _bring_in(self, follow: Follow) -> None:
        """The author's posts since the follow."""
        start: Item | None = None
        while True:
            tables = self._tables()
            page = await tables.posts_since(follow.followee_id, follow.since, start, self._page)
            puts = [post.item(follow.follower_id, follow.since) for post in page.posts]
            await tables.write(puts=[item for item in puts if item is not None])
            if (start := page.next_start) is None:
                return

    async def _weed(self, pair: tuple[str, str], oldest: datetime, follow: Follow | None) -> None:
        """Take out what the feed has of the author, except posts since the follow that are still there."""
        start: Item | None = None
        while True:
            tables = self._tables()
            page = await tables.entries_of(*pair, oldest, start, self._page)
            kept = await asyncio.gather(*[_belongs(tables, follow, post) for post in page.posts])
            gone = [post for post, stays in zip(page.posts, kept, strict=True) if not stays]
            await tables.write(deletes=[post.key(pair[0]) for post in gone])
            if (start := page.next_start) is None:
                return


async def _belongs(tables: FanOuts, follow: Follow | None, post: PostEntry) -> bool:
    return follow is not None and post.created_at >= follow.since and await tables.is_live(post.post_id)


def _follows(change: Change) -> list[Follow]:
    """The follow before and after."""
    if not is_following(change.keys):
        return []
    return [following_from(image) for image in (change.old, change.new) if image is not None]
