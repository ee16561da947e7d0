"""A driver of coroutines. It costs half as much as an asyncio task, and takes the first step at once.

In a driven coroutine `asyncio.current_task()` returns the driver. `asyncio.timeout` and similar functions therefore
cancel that coroutine alone.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any

# The functions that asyncio documents for implementations of tasks.
_enter: Any = asyncio._enter_task
_leave: Any = asyncio._leave_task


class CoroutineDriver:
    """The driver of one awaitable, whose result becomes `value`.

    `first_step` starts it. If the awaitable has to wait, `on_done(error)` is called at its end.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_message",
        "_cancels",
        "_context",
        "_coroutine",
        "_fut_waiter",
        "_loop",
        "_must_cancel",
        "value",
    )

    def __init__(self, awaitable: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine: Any = awaitable if awaitable.__class__ is CoroutineType else _awaiting(awaitable)
        self._loop = loop
        self._fut_waiter: asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._cancel_message: object = None
        self._cancels = 0
        self._context: Context = copy_context()
        self.value: Any = None

    def on_done(self, error: BaseException | None) -> None:
        """Handle the end of an awaitable that had to wait; `error` is the exception that it raised."""
        raise NotImplementedError

    def first_step(self) -> bool:
        """Take the first step. Return whether the awaitable has to wait. Raises the exception of the awaitable."""
        return self._context.run(self._step, asyncio.current_task(self._loop))

    def _step(self, before: Any = None) -> bool:
        """Resume the coroutine until it waits (True) or ends (False). `before` is the task that takes this step."""
        loop, coroutine = self._loop, self._coroutine
        if before is not None:
            _leave(loop, before)
        _enter(loop, self)
        try:
            if self._must_cancel:
                self._must_cancel = False
                awaited = coroutine.throw(self._cancelled_error())
            else:
                awaited = coroutine.send(None)
        except StopIteration as stop:
            self.value = stop.value
            self._coroutine = None
            return False
        except BaseException:
            self._coroutine = None
            raise
        finally:
            _leave(loop, self)
            if before is not None:
                _enter(loop, before)
        if awaited is None:  # asyncio.sleep(0)
            loop.call_soon(self._wake_up, context=self._context)
        elif getattr(awaited, "_asyncio_future_blocking", False):
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._wake_up, context=self._context)
            self._fut_waiter = awaited
            if self._must_cancel and awaited.cancel(msg=self._cancel_message):
                self._must_cancel = False
        else:
            loop.call_soon(self._misuse, awaited, context=self._context)
        return True

    def _misuse(self, awaited: Any) -> None:
        self._coroutine.close()
        self._coroutine = None
        self.on_done(RuntimeError(f"A resolver awaited an object that is not awaitable: {awaited!r}"))

    def _wake_up(self, _: object = None) -> None:
        self._fut_waiter = None
        try:
            waits = self._step()
        except (KeyboardInterrupt, SystemExit) as error:
            self.on_done(error)
            raise
        except BaseException as error:
            self.on_done(error)
        else:
            if not waits:
                self.on_done(None)

    # The methods of a task that libraries call

    def cancel(self, msg: object = None) -> bool:
        """Raise `CancelledError` in the coroutine. By the message libraries recognize their own cancellation."""
        if self._coroutine is None:
            return False
        self._cancels += 1
        if self._fut_waiter is None or not self._fut_waiter.cancel(msg=msg):
            self._must_cancel = True
            self._cancel_message = msg
        return True

    def _cancelled_error(self) -> asyncio.CancelledError:
        message, self._cancel_message = self._cancel_message, None
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def cancelling(self) -> int:
        return self._cancels

    def uncancel(self) -> int:
        if self._cancels:
            self._cancels -= 1
            if not self._cancels:  # as tasks do since Python 3.13
                self._must_cancel = False
        return self._cancels

    def done(self) -> bool:
        return self._coroutine is None

    def cancelled(self) -> bool:
        return False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        coroutine: Coroutine[Any, Any, Any] = self._coroutine
        return coroutine

    def get_name(self) -> str:
        return f"Driver-{id(self):x}"


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
