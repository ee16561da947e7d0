"""What another process uses, as Linux tells it."""

import os
import time
from pathlib import Path

CPUCLOCK_SCHED = 2
MEGABYTE = 1024 * 1024


def cpu_seconds(pid: int) -> float:
    """CPU of all threads of a process since it began, user and system, to the nanosecond.

    By the clock that clock_getcpuclockid(3) names: /proc counts in hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def resident_mb(pid: int) -> float:
    """What it holds in memory, in MB: proc_pid_statm(5)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def children(pid: int) -> list[int]:
    """The processes that the first thread of one has started: proc_pid_task(5)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
