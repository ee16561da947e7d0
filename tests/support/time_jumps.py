"""Advances a loop's time, so that timeouts pass at once, however slow or fast the machine is."""

import asyncio


class _Ahead:
    """The time of a loop, some seconds ahead of its own clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._told = loop.time
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._told() + self.seconds


def jump(seconds: float) -> None:
    """Advance the running loop's time: pending timers come nearer by `seconds`, new ones have their full time.

    An object that keeps the loop's `time` method, as a client of the store does, must be opened after a first
    `jump(0)`, else it does not see later jumps. uvloop has its own clock and cannot jump.
    """
    loop = asyncio.get_running_loop()
    ahead = loop.time
    if not isinstance(ahead, _Ahead):
        loop.time = ahead = _Ahead(loop)  # type: ignore[method-assign]
    ahead.seconds += seconds
