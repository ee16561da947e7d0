"""Fan-out on write: writes an item to the feeds of all followers of an author, page by page.

A user may follow or unfollow between the read of a page of followers and the writes to their feeds. The follows are
therefore read again after the writes, and the feeds of changed followers are written again, until no follow changed.
Of two processes that write one item, the last to write is also the last to read. A process may be killed before it
reads the follows again. The followers of a page are therefore stored as progress before their feeds are written, and
the next process begins with them.

One case is not covered. A process that loses its lease is cancelled, but a write it has sent may arrive later. If it
arrives after the next holder's second read, a user who unfollowed meanwhile keeps an entry until the post is deleted,
or until the user follows and unfollows again. The entry reveals nothing: visibility is checked when the feed is read.
"""

from collections.abc import Callable
from datetime import datetime

from datastore.feeds.fan_out import FanOutProgress, FanOuts, FollowTimes, Placement, affected_followers
from datastore.session.store import Store

PAGE = 500


class FollowerFanOut:
    """The fan-out over the followers of an author. `open_store` opens a store, with its deadline, for each page."""

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime], page: int = PAGE) -> None:
        self._open_store = open_store
        self._now = now
        self._page = page

    def tables(self) -> FanOuts:
        return FanOuts(self._open_store(), self._now())

    async def run(self, placement: Placement, progress: FanOutProgress | None = None, job: str | None = None) -> bool:
        """Write the placement for all followers, continuing from `progress`. Store the progress under the name `job`.

        Return whether there was a follower. Raises the store's errors; a fan-out that failed may be run again.
        """
        progress = progress or FanOutProgress()
        has_followers = bool(progress.followers)
        await self.repair_last_page(placement, progress)
        after, more = progress.through, True
        while more:
            page = await self.tables().followers(placement.author_id, after, self._page)
            after, more = page.through, page.more
            follow_times = affected_followers(placement, page.follows)
            if follow_times:
                has_followers = True
                if job is not None:
                    followers = tuple(follow_times)
                    page_progress = FanOutProgress(after, followers, is_withdrawal=progress.is_withdrawal)
                    await self.tables().save(job, page_progress)
                await self._place(placement, follow_times)
        return has_followers

    async def repair_last_page(self, placement: Placement, progress: FanOutProgress | None) -> None:
        """Write the placement again for the last page of an interrupted fan-out, whose feeds may be wrong."""
        if progress is not None and progress.followers:
            await self._place(placement, await self.tables().follow_times(placement, progress.followers))

    async def finish(self, job: str) -> None:
        await self.tables().save(job, FanOutProgress(done=True))

    async def _place(self, placement: Placement, follow_times: FollowTimes) -> None:
        while follow_times:
            tables = self.tables()
            await tables.place(placement, follow_times)
            current = await tables.follow_times(placement, list(follow_times))
            follow_times = {follower: since for follower, since in current.items() if since != follow_times[follower]}
