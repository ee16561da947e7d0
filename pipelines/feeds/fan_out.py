"""Puts posts into the feeds of their author's followers, and takes deleted ones out.

A feed depends on the present follows and posts: a handler reads, writes, and reads again (see `follower_fan_out`).
The post is read before and after all followers. Authors with too many followers are promoted instead.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from datastore.change_streams.shards.stream_reader import Change
from datastore.feeds.fan_out import FanOutProgress, PostEntry, entry_of_post
from datastore.feeds.posts import deleted, written
from datastore.feeds.visibility import Visibility
from datastore.session.store import Store
from pipelines.feeds.bounded_gather import AT_ONCE, side_by_side
from pipelines.feeds.fan_out_on_read import promote
from pipelines.feeds.follower_fan_out import PAGE, FollowerFanOut

MOST_FOLLOWERS = 10_000


class FanOut:
    """Handles posts that were written or deleted. `most_followers` an author may have before they are promoted."""

    name = "fan_out"

    def __init__(
        self,
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        *,
        most_followers: int = MOST_FOLLOWERS,
        page: int = PAGE,
        at_once: int = AT_ONCE,
    ) -> None:
        self._walks = FollowerFanOut(open_store, now, page)
        self._most_followers = most_followers
        self._at_once = at_once

    async def handle(self, changes: Sequence[Change]) -> None:
        """Different authors side by side, the posts of one in turn: only the first promotes them."""
        by_author: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            post = written(change) or deleted(change)
            if post is not None and post.visibility is not Visibility.PRIVATE:
                by_author[post.author_id].append(change)
        await side_by_side([partial(self._handle_all, one) for one in by_author.values()], self._at_once)

    async def _handle_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if (post := written(change)) and change.new:
                await self._spread(entry_of_post(post, change.new))
            elif (post := deleted(change)) and change.old:
                await self._take_out(entry_of_post(post, change.old))

    async def _spread(self, post: PostEntry) -> None:
        tables = self._walks.tables()
        author, progress, live = await asyncio.gather(
            tables.author(post.author_id), tables.progress(_spreading(post)), tables.is_live(post.post_id)
        )
        if progress is None:
            if not live or author.merged_since is not None:
                return
            if author.merging_since is not None or author.followers > self._most_followers:
                await promote(self._walks, post.author_id)
                return
        elif progress.done:
            return
        if live and not await self._walks.run(post, progress, _spreading(post)):
            return  # nobody follows
        if not live or not await self._walks.tables().is_live(post.post_id):
            await self._take_back(post, progress)
        await self._walks.finish(_spreading(post))

    async def _take_back(self, post: PostEntry, progress: FanOutProgress | None) -> None:
        """It was deleted on its way, and those who took it out may have been overtaken by the walk that put it in.

        So how far they are does not count: this is a walk of its own, noted in place of the one before. Another that
        still puts the post in notes that, and then this begins anew.
        """
        if progress is None or not progress.gone:
            await self._walks.settle(replace(post, wanted=False), progress)
            progress = FanOutProgress(gone=True)
            await self._walks.tables().save(_spreading(post), progress)
        await self._walks.run(replace(post, wanted=False), progress, _spreading(post))
        await self._walks.finish(_withdrawal(post))

    async def _take_out(self, post: PostEntry) -> None:
        job = _withdrawal(post)
        tables = self._walks.tables()
        author, spread, progress = await asyncio.gather(
            tables.author(post.author_id), tables.progress(_spreading(post)), tables.progress(job)
        )
        if progress is not None and progress.done:
            return
        merged_before = author.merged_since is not None and author.merged_since <= post.created_at
        if merged_before and spread is None:
            return
        await self._walks.settle(replace(post, wanted=False), spread)
        if await self._walks.run(replace(post, wanted=False), progress, job):
            await self._walks.finish(job)


def _spreading(post: PostEntry) -> str:
    return f"post:{post.post_id}"


def _withdrawal(post: PostEntry) -> str:
    return f"withdrawal:{post.post_id}"
