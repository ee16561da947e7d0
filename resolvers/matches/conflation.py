"""Fewer updates for slow clients: the newest state, all events, and no wait for what is urgent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Protocol, Self, TypeVar


class Update(Protocol):
    """What can be conflated: `then` makes one of two updates of the same match."""

    @property
    def match_id(self) -> str: ...
    @property
    def is_urgent(self) -> bool: ...
    def then(self, later: Self) -> Self: ...


U = TypeVar("U", bound=Update)


async def conflated(updates: AsyncGenerator[Sequence[U], None], seconds: float) -> AsyncGenerator[Sequence[U], None]:
    """The first batch as it comes; from then on at most one batch in so many seconds, unless something is urgent.

    Updates of a match that wait are made into one. With 0 seconds every batch passes as it is.
    """
    loop = asyncio.get_running_loop()
    pending: dict[str, U] = {}
    sent = -seconds
    coming = asyncio.ensure_future(anext(updates))
    try:
        while True:
            wait = max(0.0, sent + seconds - loop.time()) if pending else None
            await asyncio.wait([coming], timeout=wait)
            is_due, is_first = not coming.done(), sent < 0
            if coming.done():
                batch = coming.result()
                for update in batch:
                    waiting = pending.get(update.match_id)
                    pending[update.match_id] = update if waiting is None else waiting.then(update)
                is_due = is_first or seconds == 0 or any(update.is_urgent for update in batch)
                coming = asyncio.ensure_future(anext(updates))
            if is_due or loop.time() >= sent + seconds:
                sent = loop.time()
                batch, pending = list(pending.values()), {}
                yield batch
    except StopAsyncIteration:
        if pending:
            yield list(pending.values())
    except Exception:
        if pending:
            yield list(pending.values())
        raise
    finally:
        if not coming.done():
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
        await updates.aclose()
