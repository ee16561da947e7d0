"""Processes of a supervisor."""

import signal
from pathlib import Path


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def signals_are_taken(pid: int) -> bool:
    """Return whether the process handles SIGHUP, the last signal for which it installs a handler."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGHUP - 1) & 1)
