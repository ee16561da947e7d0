"""Resource usage of other processes on Linux."""

import os
import time
from pathlib import Path

CPUCLOCK_SCHED = 2
MEGABYTE = 1024 * 1024


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of a process since its start, to the nanosecond.

    It uses the clock of clock_getcpuclockid(3), since /proc counts in hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB: proc_pid_statm(5)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def children(pid: int) -> list[int]:
    """Return the ids of the processes that the main thread of a process has started: proc_pid_task(5)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
