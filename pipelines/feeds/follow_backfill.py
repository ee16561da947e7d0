"""Backfill of a follower's feed: adds or removes an author's posts after a follow or unfollow.

One function does both. It reads the follow, writes the feed accordingly, and reads the follow again. The order, number
and concurrency of the handled changes of one follow therefore do not matter.

A post may be written just before the follow, but have a later time by the clock of another process. It is added from
the author's posts. The index they are read from lags behind the table by less than the stream does.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.feeds.fan_out import Author, AuthorSource, FanOuts, PostEntry
from datastore.feeds.follows import Follow, is_following
from datastore.primitives.tasks import bounded_gather
from datastore.session.store import Store
from pipelines.feeds.follower_fan_out import PAGE


class FollowBackfill:
    """The handler of follows and unfollows."""

    name = "followings"

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime], *, page: int = PAGE) -> None:
        self._open_store = open_store
        self._now = now
        self._page = page

    async def handle(self, changes: Sequence[Change]) -> None:
        """Handle all changes of one follow together: only its current state and its oldest time matter."""
        oldest: dict[tuple[str, str], datetime] = {}
        for change in changes:
            for follow in _follows(change):
                pair = follow.follower_id, follow.followee_id
                oldest[pair] = min(follow.since, oldest.get(pair, follow.since))
        await bounded_gather(partial(self._reconcile, *pair, since) for pair, since in oldest.items())

    def _tables(self) -> FanOuts:
        return FanOuts(self._open_store(), self._now())

    async def _reconcile(self, follower_id: str, author_id: str, oldest: datetime) -> None:
        """Add or remove the author's posts of `oldest` and later, until the follow no longer changes meanwhile."""
        pair = follower_id, author_id
        follow, author = await self._read_state(*pair)
        while True:
            oldest = min(oldest, follow.since) if follow else oldest
            if author.merging_since is not None:
                await self._tables().place(AuthorSource(author_id), {follower_id: follow.since if follow else None})
            elif follow is not None:
                await self._add_posts(follow)
            # Posts of `merged_since` and later never had entries.
            if author.merged_since is None or author.merged_since > oldest:
                await self._remove_posts(pair, oldest, follow)
            before = follow
            follow, author = await self._read_state(*pair)
            if follow == before:
                return

    async def _read_state(self, follower_id: str, author_id: str) -> tuple[Follow | None, Author]:
        tables = self._tables()
        return await asyncio.gather(tables.following(follower_id, author_id), tables.author(author_id))

    async def _add_posts(self, follow: Follow) -> None:
        """Add the author's posts since the follow to the feed."""
        start: Item | None = None
        while True:
            tables = self._tables()
            page = await tables.posts_since(follow.followee_id, follow.since, start, self._page)
            puts = [post.item(follow.follower_id, follow.since) for post in page.posts]
            await tables.write(puts=[item for item in puts if item is not None])
            if (start := page.next_start) is None:
                return

    async def _remove_posts(self, pair: tuple[str, str], oldest: datetime, follow: Follow | None) -> None:
        """Remove the author's entries from the feed, except stored posts since the follow."""
        start: Item | None = None
        while True:
            tables = self._tables()
            page = await tables.entries_of(*pair, oldest, start, self._page)
            kept = await asyncio.gather(*[_is_kept(tables, follow, post) for post in page.posts])
            removed = [post for post, is_kept in zip(page.posts, kept, strict=True) if not is_kept]
            await tables.write(deletes=[post.key(pair[0]) for post in removed])
            if (start := page.next_start) is None:
                return


async def _is_kept(tables: FanOuts, follow: Follow | None, post: PostEntry) -> bool:
    return follow is not None and post.created_at >= follow.since and await tables.is_live(post.post_id)


def _follows(change: Change) -> list[Follow]:
    """Return the follow before and after a change."""
    if not is_following(change.keys):
        return []
    return [Follow.decoder(image) for image in (change.old, change.new) if image is not None]
