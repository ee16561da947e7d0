"""Walks over all followers of an author, page by page, that give each what they shall have in their feeds.

Somebody may stop to follow, or begin anew, between the moment a page is read and the moment their feeds are written.
So who follows is read again after it, and what was written for others than those is set right, until nobody changed:
of any two who write the same item, the last looks last. A process that is killed before it looks again leaves what it
wrote; so a page's followers are noted before anything is written for them, and whoever goes on begins with those.

What this does not cover: a process that loses its lease is cancelled, but a put it has sent may still be on the wire.
If that lands after the next holder has looked again, one who left just then keeps an entry, until the post is deleted
or they follow and leave once more. It shows nothing they may not see: that is asked when the feed is read.
"""

from collections.abc import Callable
from datetime import datetime

from datastore.feeds.fan_out import FanOutProgress, FanOuts, Placement, Standing, concerned
from datastore.session.store import Store

PAGE = 500


class FollowerFanOut:
    """`open_store` opens a store for each page: a walk takes longer than a request may."""

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime], page: int = PAGE) -> None:
        self._open_store = open_store
        self._now = now
        self._page = page

    def tables(self) -> FanOuts:
        return FanOuts(self._open_store(), self._now())

    async def run(self, placement: Placement, progress: FanOutProgress | None = None, job: str | None = None) -> bool:
        """Place it with all followers, from where `progress` is; the progress is noted under `job`, if it has a name.

        Whether there was anything to do. What it raises, the store raises: then it can be run again.
        """
        progress = progress or FanOutProgress()
        begun = bool(progress.followers)
        await self.settle(placement, progress)
        after, more = progress.through, True
        while more:
            page = await self.tables().followers(placement.author_id, after, self._page)
            after, more = page.through, page.more
            standing = concerned(placement, page.follows)
            if standing:
                begun = True
                if job is not None:
                    await self.tables().save(job, FanOutProgress(after, tuple(standing), gone=progress.gone))
                await self._place(placement, standing)
        return begun

    async def settle(self, placement: Placement, progress: FanOutProgress | None) -> None:
        """Set right what a walk that was cut may have left with the followers of its last page."""
        if progress is not None and progress.followers:
            await self._place(placement, await self.tables().standing(placement, progress.followers))

    async def finish(self, job: str) -> None:
        await self.tables().save(job, FanOutProgress(done=True))

    async def _place(self, placement: Placement, standing: Standing) -> None:
        while standing:
            tables = self.tables()
            await tables.place(placement, standing)
            again = await tables.standing(placement, list(standing))
            standing = {follower: since for follower, since in again.items() if since != standing[follower]}
