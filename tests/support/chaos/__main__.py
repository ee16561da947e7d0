"""Kill, pause and restart the processes of a deployment under load: `python -m tests.support.chaos [--minutes M]`.

Prints a page of results. The exit status is 1 if an acknowledged write or an event is lost or doubled, a request of a
rolling restart fails, a process does not come back, or memory grows without bound. The logs of all processes are then
kept in a folder that the last line names.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.chaos.run import ChaosRun


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are injected (10)")
    parser.add_argument("--seed", type=int, help="decides the load and the faults; a random one by default")
    parser.add_argument("--per-second", type=float, default=40.0, help="the requests of the load per second (40)")
    parser.add_argument("--keep", action="store_true", help="keep the logs of a run that passed")
    given = parser.parse_args()
    # Debian has HAProxy in a folder that is not on the PATH of users.
    os.environ["PATH"] += ":/usr/sbin:/usr/local/sbin"
    missing = [program for program in ("haproxy", "redis-server") if shutil.which(program) is None]
    if missing:
        parser.error(f"These programs are needed: {', '.join(missing)}.")
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    # Calls of this process to a store that is away are no news.
    logging.disable(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    report = asyncio.run(ChaosRun(folder, seed, given.minutes, given.per_second).run())
    print(report.text())
    (folder / "events").write_text(report.events())
    if report.problems or given.keep:
        print(f"\nRepeat with --seed {seed}. The logs of the processes, and the events of the run, are in {folder}.")
        return 1 if report.problems else 0
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
