"""Work on many things at a time, none of which holds up another."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from datastore.tasks import gather_all

AT_ONCE = 8


async def side_by_side(pieces: Iterable[Callable[[], Awaitable[object]]], at_once: int = AT_ONCE) -> None:
    """Do all pieces, some at a time. One that fails stops no other: the first failure is raised at the end."""
    slots = asyncio.Semaphore(at_once)

    async def do(piece: Callable[[], Awaitable[object]]) -> None:
        async with slots:
            await piece()

    await gather_all([do(piece) for piece in pieces])
