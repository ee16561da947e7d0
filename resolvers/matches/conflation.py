"""Fewer updates for slow clients: the newest state, all events, and no wait for what is urgent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, TypeVar

from datastore.change_streams.subscriptions.resume_position import ResumePosition, SubscriptionProgress


class Update(Protocol):
    """What can be conflated: `then` makes one of two updates of the same match."""

    @property
    def match_id(self) -> str: ...
    @property
    def is_urgent(self) -> bool: ...
    def then(self, later: Any) -> Any: ...


U = TypeVar("U", bound=Update)


async def conflated(
    updates: AsyncGenerator[Sequence[U], None], seconds: float, ahead: SubscriptionProgress, told: SubscriptionProgress
) -> AsyncGenerator[Sequence[U], None]:
    """The first batch as it comes; from then on each match at most once in so many seconds, unless it is urgent.

    Updates of a match that wait are made into one. With 0 seconds every batch passes as it is. `ahead` is the progress
    of the updates, and `told` of what is made of them: it is never past what still waits.
    """
    loop = asyncio.get_running_loop()
    pending: dict[str, U] = {}
    held: dict[str, ResumePosition | None] = {}  # of those that wait: up to where all was told
    taken: ResumePosition | None = None
    due: dict[str, float] = {}  # from when on a match may be told again
    is_first = True
    coming = asyncio.ensure_future(anext(updates))
    try:
        while True:
            wait = max(0.0, min(due[id] for id in pending) - loop.time()) if pending else None
            told.has_given_all = not pending
            await asyncio.wait([coming], timeout=wait)
            told.has_given_all = False
            urgent: set[str] = set()
            if coming.done():
                batch = coming.result()
                _add(pending, batch)
                for update in batch:
                    held.setdefault(update.match_id, taken)
                taken = ahead.mark
                urgent = {update.match_id for update in batch if update.is_urgent}
                coming = asyncio.ensure_future(anext(updates))
            now = loop.time()
            ready = [id for id in pending if id in urgent or now >= due.get(id, now)]
            due |= dict.fromkeys(ready, now + seconds)
            if ready or is_first:
                is_first = False
                for id in ready:
                    del held[id]
                told.at(min(filter(None, held.values()), default=taken))
                yield [pending.pop(id) for id in ready]
    except StopAsyncIteration:
        if pending:
            told.at(taken)
            yield list(pending.values())
    except Exception:
        if pending:
            told.at(taken)
            yield list(pending.values())
        raise
    finally:
        coming.cancel()
        # However it ends, nobody is there to be told any more.
        await asyncio.wait([coming])
        if not coming.cancelled():
            coming.exception()
        await updates.aclose()


def _add(pending: dict[str, U], batch: Sequence[U]) -> None:
    for update in batch:
        waiting = pending.get(update.match_id)
        pending[update.match_id] = update if waiting is None else waiting.then(update)
