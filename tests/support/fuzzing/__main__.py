"""Fuzz for `FUZZ_SECONDS`: `python -m tests.support.fuzzing [target …]`.

`FUZZ_SECONDS` (600) is how long in all, `FUZZ_SEED` a number that decides what is tried (else a new one each time),
`FUZZ_JOBS` (1) how many processes run. What failed is kept in `.fuzz/failures` as a test to paste, and what did
something new in `.fuzz/corpus`, from where the next run goes on. The exit status is 1 when something failed.
"""

import hashlib
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.reducing import reduced_example
from tests.support.fuzzing.rig import InvariantBroken
from tests.support.fuzzing.targets import TARGETS, Target

FOLDER = Path(__file__).resolve().parents[3] / ".fuzz"
LONGEST_CHOICES = 240
# The seconds of one target before it is the turn of the next: the more the more there is to be found.
TURNS = {"http": 8.0, "websocket": 5.0, "application": 5.0, "uploads": 2.0}
SHORT_TURN = 0.5
MOST_KEPT = 2_000


class Campaign:
    """The fuzzing of one target: what it tried, what did something new, and what failed."""

    def __init__(self, target: Target[Any], rng: random.Random) -> None:
        self.target = target
        self.tried = 0
        self.failures: Counter[str] = Counter()
        self._rng = rng
        self._folder = FOLDER / "corpus" / target.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._corpus = [path.read_bytes() for path in sorted(self._folder.iterdir())[:MOST_KEPT]]
        self._seen: set[Any] = set()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tried += 1
            data = self._data()
            did, error = self._tried(data)
            if error is None:
                self._keep(data, did)
            else:
                self._failed(data, error)

    def _tried(self, data: bytes) -> tuple[Any, Exception | None]:
        try:
            return self.target.run(data), None
        except Exception as error:
            return None, error

    def _data(self) -> bytes:
        """Return new choices, or such as did something new, changed or joined."""
        rng = self._rng
        if not self._corpus or rng.random() < 0.5:
            return rng.randbytes(rng.randrange(8, LONGEST_CHOICES))
        data = bytearray(rng.choice(self._corpus))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = rng.randbytes(1)
                case 1:
                    del data[at : at + rng.randrange(1, 9)]
                case 2:
                    data[at:at] = rng.randbytes(rng.randrange(1, 9))
                case _:
                    data[at:] = rng.choice(self._corpus)[at:]
        return bytes(data[:LONGEST_CHOICES])

    def _keep(self, data: bytes, did: Any) -> None:
        if did not in self._seen:
            self._seen.add(did)
            if len(self._corpus) < MOST_KEPT:
                self._corpus.append(data)
                (self._folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def _failed(self, data: bytes, error: Exception) -> None:
        kind = _kind(error)
        self.failures[kind] += 1
        if self.failures[kind] > 1:
            return
        example = reduced_example(self.target.make(Choices(data)), lambda smaller: self._fails(smaller, kind))
        test = _as_test(self.target, example, kind, _error_of(self.target, example) or error)
        folder = FOLDER / "failures"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.target.name}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}.py"
        (folder / name).write_text(test)
        print(f"\n{test}\n# kept as {folder / name}", flush=True)

    def _fails(self, example: Any, kind: str) -> bool:
        error = _error_of(self.target, example)
        return error is not None and _kind(error) == kind


def _error_of(target: Target[Any], example: Any) -> Exception | None:
    try:
        target.check(example)
    except Exception as error:
        return error
    return None


def _kind(error: Exception) -> str:
    """Return what failures have in common that are one."""
    if isinstance(error, InvariantBroken):
        return error.kind
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.name}"


def _as_test(target: Target[Any], example: Any, kind: str, error: Exception) -> str:
    """Return a test to be pasted."""
    name = "".join(letter if letter.isalnum() else "_" for letter in kind.lower())
    problem = "\n".join(f"    # {line}" for line in str(error)[:1_500].splitlines())
    return (
        "from fuzzing.steps import Do, Send, Wait\n"
        f"from fuzzing.targets import {target.name.upper()}\n\n\n"
        f"def test_{target.name}_{name}() -> None:\n{problem}\n    {target.name.upper()}.check({example!r})\n"
    )


def main(names: list[str]) -> int:
    seconds = float(os.environ.get("FUZZ_SECONDS", "600"))
    jobs = int(os.environ.get("FUZZ_JOBS", "1"))
    seed = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    if jobs > 1:
        return _in_processes(jobs, seed, names)
    print(f"FUZZ_SEED={seed} FUZZ_SECONDS={seconds:g}", flush=True)
    campaigns = [Campaign(TARGETS[name], random.Random(f"{seed} {name}")) for name in names or TARGETS]
    began = time.monotonic()
    while began + seconds > time.monotonic():
        for campaign in campaigns:
            left = began + seconds - time.monotonic()
            campaign.run(min(TURNS.get(campaign.target.name, SHORT_TURN), left))
    for campaign in campaigns:
        failed = ", ".join(f"{kind} ({times})" for kind, times in campaign.failures.items())
        print(f"{campaign.target.name}: {campaign.tried:,} examples, {failed or 'none failed'}")
    return int(any(campaign.failures for campaign in campaigns))


def _in_processes(jobs: int, seed: int, names: list[str]) -> int:
    command = [sys.executable, "-m", "tests.support.fuzzing", *names]
    started = [
        subprocess.Popen(command, env={**os.environ, "FUZZ_JOBS": "1", "FUZZ_SEED": str(seed + number)})
        for number in range(jobs)
    ]
    return max(process.wait() for process in started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
