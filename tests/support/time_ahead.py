"""A loop's time that jumps: what has waited long enough by it is over, however slow or quick the machine is."""

import asyncio


def jump(seconds: float) -> None:
    """What waits in the running loop has waited that much longer; what begins from now on has all of its time."""
    loop = asyncio.get_running_loop()
    told = loop.time
    loop.time = lambda: told() + seconds  # type: ignore[method-assign]
