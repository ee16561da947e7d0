"""Random awaitables: everything awaitable that a resolver may return."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from random import Random
from typing import Any

PLACE: ContextVar[str] = ContextVar("PLACE")

Finish = Callable[[], Any]


class Waiting:
    """Creates awaitables that end with the result of `finish`. `open` holds the keys that began and have not ended."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.began = 0
        self.batches = 0
        self._wanted: dict[str, tuple[asyncio.Future[Any], Finish]] = {}
        self._loaded: dict[str, asyncio.Future[Any]] = {}

    def later(self, rng: Random, key: str, finish: Finish) -> Awaitable[Any]:
        """Return an awaitable that must be awaited, as it may be a coroutine."""
        kind = rng.random()
        if kind < 0.65:
            return self.coroutine(rng, key, finish)
        if kind < 0.75:
            return asyncio.ensure_future(self.coroutine(rng, key, finish))
        return self.unhurried(rng, key, finish)

    def unhurried(self, rng: Random, key: str, finish: Finish) -> Awaitable[Any]:
        """Return an awaitable that need not be awaited."""
        kind = rng.random()
        if kind < 0.3:
            return _Lazy(lambda: self.coroutine(rng, key, finish))
        if kind < 0.4:
            return _Bare(rng.randint(0, 3), finish)
        return self._future(rng, finish)

    async def coroutine(self, rng: Random, key: str, finish: Finish) -> Any:
        self.began += 1
        place = f"{key} {self.began}"
        self.open.add(place)
        token = PLACE.set(place)
        try:
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                await self._step(rng)
            if PLACE.get() != place:
                raise RuntimeError(f"{place} runs in the context of {PLACE.get()}")
            PLACE.reset(token)
            return finish()
        finally:
            try:
                if rng.random() < 0.05:
                    await asyncio.sleep(0)
            finally:
                self.open.discard(place)

    async def _step(self, rng: Random) -> None:
        kind = rng.randrange(12)
        if kind < 3:
            for _ in range(rng.randint(1, 3)):
                await asyncio.sleep(0)
        elif kind < 6:
            await asyncio.sleep(rng.randint(1, 3))
        elif kind == 6:
            await self._future(rng, lambda: None)
        elif kind == 7:
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(0))
        elif kind == 8:
            try:
                async with asyncio.timeout(rng.randint(0, 1)):
                    await asyncio.sleep(2)
            except TimeoutError:
                pass
        elif kind == 9:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1))
                group.create_task(asyncio.sleep(0))
        elif kind == 10:
            await asyncio.wait_for(asyncio.sleep(rng.randint(0, 1)), 50)
        else:
            await _Bare(2, lambda: None)

    def _future(self, rng: Random, finish: Finish) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        kind = rng.random()
        if kind < 0.3:
            _settle(future, finish)
        elif kind < 0.6:
            loop.call_soon(_settle, future, finish)
        else:
            loop.call_later(rng.randint(1, 3), _settle, future, finish)
        return future

    def load(self, key: str, finish: Finish) -> asyncio.Future[Any]:
        """Return one future for all readers of the key. Those of one turn are settled together, as by a dataloader."""
        future = self._loaded.get(key)
        if future is None:
            loop = asyncio.get_running_loop()
            self._loaded[key] = future = loop.create_future()
            if not self._wanted:
                loop.call_soon(loop.call_soon, self._batch)
            self._wanted[key] = future, finish
        return future

    def _batch(self) -> None:
        self.batches += 1
        wanted, self._wanted = self._wanted, {}
        loop = asyncio.get_running_loop()
        for future, finish in wanted.values():
            loop.call_later(1, _settle, future, finish)


def _settle(future: asyncio.Future[Any], finish: Finish) -> None:
    if future.done():
        return
    try:
        future.set_result(finish())
    except StopIteration as error:  # a future cannot hold it
        future.set_exception(RuntimeError(str(error)))
    except Exception as error:
        future.set_exception(error)
    if not future.cancelled():
        future.exception()  # mark it as retrieved, so that the loop does not report it


class _Lazy:
    """An awaitable that is not a coroutine and begins only when it is awaited."""

    def __init__(self, begin: Callable[[], Awaitable[Any]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._begin().__await__()


class _Bare:
    """A custom awaitable that yields to the loop for some turns, without a future."""

    def __init__(self, turns: int, finish: Finish) -> None:
        self._turns = turns
        self._finish = finish

    def __await__(self) -> Generator[None, None, Any]:
        for _ in range(self._turns):
            yield
        try:
            return self._finish()
        except StopIteration as error:  # a generator cannot raise it
            raise RuntimeError(str(error)) from error
