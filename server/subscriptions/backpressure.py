"""Who is told the same together is told it as fast as the slowest reads, unless that is too slow for the others."""

import asyncio
from collections.abc import Sequence
from typing import Any

from server.subscriptions.group_member import GroupMember

# The process and the system keep some for each reader: who reads at all is seldom waited for.
MOST_BEHIND_SECONDS = 5.0
# Of all of them together: one after another could hold up the others for minutes.
MOST_WAITED_SECONDS = 10.0


class Backpressure:
    """How those read who are told the same. Each may keep the others waiting for so many seconds, and so may all.

    After that nobody waits for it, and its policy (`whenSlow`) says what becomes of it.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self._left = dict.fromkeys(members, MOST_BEHIND_SECONDS)
        self._left_for_all = MOST_WAITED_SECONDS

    async def kept(self) -> None:
        """Returns when those can be told more who may be waited for; one alone always may."""
        here = [member for member in self._left if not member.is_over]
        if len(here) == 1:
            await here[0].listener.drained()
            return
        draining: dict[asyncio.Future[None], GroupMember] = {
            asyncio.ensure_future(member.listener.drained()): member for member in here
        }
        try:
            if draining:
                await asyncio.wait(draining, return_when=asyncio.FIRST_COMPLETED)
            while self._left_for_all > 0 and (
                late := {
                    task: member for task, member in draining.items() if not task.done() and self._left[member] > 0
                }
            ):
                await self._waited(late)
        finally:
            await given_up(*draining)

    async def _waited(self, late: dict[asyncio.Future[None], GroupMember]) -> None:
        """Until one of them can be told more, or has kept the others waiting for too long."""
        clock = asyncio.get_running_loop().time
        began, least = clock(), min(self._left_for_all, *(self._left[member] for member in late.values()))
        await asyncio.wait(late, timeout=least, return_when=asyncio.FIRST_COMPLETED)
        waited = clock() - began
        self._left_for_all -= waited
        for member in late.values():
            self._left[member] -= waited


async def given_up(*futures: asyncio.Future[Any]) -> None:
    """Cancel those that are under way, and look at what became of each."""
    if not futures:
        return
    for future in futures:
        future.cancel()
    await asyncio.wait(futures)
    for future in futures:
        if not future.cancelled():
            future.exception()
