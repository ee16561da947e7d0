"""A process with a watchdog. Arguments: how many seconds its event loop may stand still, and the name of a function.

It writes a line every tenth of that time. When it has read a line, its loop calls the function.
"""

import asyncio
import sys
import threading
import time

from server.observability.liveness import watch_loop
from server.uvicorn import end_process_in
from tests.support.spinning import spin


def block() -> None:
    threading.Lock().acquire()
    threading.Event().wait()


def take_long() -> None:
    """Block the loop for less than the limit."""
    time.sleep(0.5)


async def main(seconds: float, act: str) -> None:
    watch_loop(seconds)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, asked.set)

    def tick() -> None:
        print("tick", flush=True)
        loop.call_later(seconds / 10 or 0.1, tick)

    tick()
    await asked.wait()
    loop.remove_reader(sys.stdin)
    ACTS[act]()


def leave_late() -> None:
    end_process_in(0.1)
    threading.Event().wait()


ACTS = {"spin": spin, "block": block, "take_long": take_long, "leave_late": leave_late}

if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), sys.argv[2]))
    print("ended", flush=True)
