"""Fan-out of posts: adds posts to the feeds of their author's followers, and removes deleted posts.

A feed depends on the current follows and posts: a handler reads, writes, and reads again (see `follower_fan_out`).
The post is read before and after all followers. Authors with too many followers are promoted to fan-out on read.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from datastore.change_streams.change import Change
from datastore.feeds.fan_out import FanOutProgress, PostEntry, entry_of_post
from datastore.feeds.posts import created_post, deleted_post
from datastore.feeds.visibility import Visibility
from datastore.primitives.tasks import bounded_gather
from datastore.session.store import Store
from pipelines.feeds.fan_out_on_read import promote
from pipelines.feeds.follower_fan_out import PAGE, FollowerFanOut

MAX_FOLLOWERS = 10_000


class FanOut:
    """The handler of new and deleted posts. An author with more than `max_followers` is promoted."""

    name = "fan_out"

    def __init__(
        self,
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        *,
        max_followers: int = MAX_FOLLOWERS,
        page: int = PAGE,
    ) -> None:
        self._followers = FollowerFanOut(open_store, now, page)
        self._max_followers = max_followers

    async def handle(self, changes: Sequence[Change]) -> None:
        """Handle authors concurrently, and the posts of one author serially: only the first promotes the author."""
        by_author: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            post = created_post(change) or deleted_post(change)
            if post is not None and post.visibility is not Visibility.PRIVATE:
                by_author[post.author_id].append(change)
        await bounded_gather(partial(self._handle_all, author) for author in by_author.values())

    async def _handle_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if (post := created_post(change)) and change.new:
                await self._add(entry_of_post(post, change.new))
            elif (post := deleted_post(change)) and change.old:
                await self._remove(entry_of_post(post, change.old))

    async def _add(self, post: PostEntry) -> None:
        tables = self._followers.tables()
        author, progress, live = await asyncio.gather(
            tables.author(post.author_id), tables.progress(_addition_job(post)), tables.is_live(post.post_id)
        )
        if progress is None:
            if not live or author.merged_since is not None:
                return
            if author.merging_since is not None or author.followers > self._max_followers:
                await promote(self._followers, post.author_id)
                return
        elif progress.done:
            return
        if live and not await self._followers.run(post, progress, _addition_job(post)):
            return  # the author has no followers
        if not live or not await self._followers.tables().is_live(post.post_id):
            await self._withdraw(post, progress)
        await self._followers.finish(_addition_job(post))

    async def _withdraw(self, post: PostEntry, progress: FanOutProgress | None) -> None:
        """Remove a post that was deleted during its fan-out, which may have overtaken the removal.

        The removal's progress is therefore ignored: the withdrawal replaces the progress of the addition. If another
        process still adds the post, it overwrites this progress, and the withdrawal starts over.
        """
        removal = replace(post, is_removed=True)
        if progress is None or not progress.is_withdrawal:
            await self._followers.repair_last_page(removal, progress)
            progress = FanOutProgress(is_withdrawal=True)
            await self._followers.tables().save(_addition_job(post), progress)
        await self._followers.run(removal, progress, _addition_job(post))
        await self._followers.finish(_removal_job(post))

    async def _remove(self, post: PostEntry) -> None:
        job = _removal_job(post)
        tables = self._followers.tables()
        author, addition, progress = await asyncio.gather(
            tables.author(post.author_id), tables.progress(_addition_job(post)), tables.progress(job)
        )
        if progress is not None and progress.done:
            return
        merged_before = author.merged_since is not None and author.merged_since <= post.created_at
        if merged_before and addition is None:
            return
        removal = replace(post, is_removed=True)
        await self._followers.repair_last_page(removal, addition)
        if await self._followers.run(removal, progress, job):
            await self._followers.finish(job)


def _addition_job(post: PostEntry) -> str:
    return f"post:{post.post_id}"


def _removal_job(post: PostEntry) -> str:
    return f"withdrawal:{post.post_id}"
