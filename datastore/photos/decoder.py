"""A decoder of uploaded pictures, as the gateway sees it: a process that may be killed, and is replaced then.

All of this blocks, and is called in threads.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from datastore.errors import DomainError, Unavailable
from datastore.model.text_characters import cleaned_line
from datastore.photos.decoder_messages import BadMessage, read_message, write_message
from datastore.photos.image_types import COSTLY, LONGEST_SIDE, NO_PICTURE, Picture, PictureType, RefusalReason, refused
from datastore.photos.metadata import Facts

ROOT = Path(__file__).resolve().parents[2]
MODULE = "datastore.photos.decoder_process"
# The only variables of the gateway's environment that a decoder receives: it must not see the gateway's secrets.
VARIABLES = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
MOST_CONTENT, MOST_ANSWER = 26 * 2**20, 64 * 2**20
LONGEST_WHY = 200
REAP_SECONDS = 5.0
# Signals that end a process whose input made it misbehave.
CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """What a decoder may take.

    `cpu_seconds` are a picture's, `seconds` the time on the clock within which it is answered, `memory_bytes` the
    address space of the process: 40 megapixels as WebP take 750 MB of it. A process decodes so many `pictures`, and is
    to be ready in `start_seconds`.
    """

    cpu_seconds: int = 10
    seconds: float = 25.0
    memory_bytes: int = 2**30
    pictures: int = 100
    start_seconds: float = 25.0


class DecoderProcess:
    """At most one process, started when it is needed. `command` is what it runs; the limits are its last argument."""

    def __init__(
        self, limits: DecoderLimits = DecoderLimits(), command: Sequence[str] = (sys.executable, "-B", "-m", MODULE)
    ) -> None:
        self._limits = limits
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._left = 0
        self._late = False
        self._closed = False
        self._starting = Lock()

    @property
    def pid(self) -> int | None:
        """The process that decodes, if there is one."""
        return None if self._process is None else self._process.pid

    def examine(self, file: str, content: bytes, declared: PictureType) -> Picture:
        """What a file shows; see `image_processing.examine`. One call at a time.

        Raises `BadUserInput` if the file is no picture, takes too much time or memory, or crashes the process, and
        `Unavailable` if the machine is at fault.
        """
        process = self._started()
        try:
            with self._within(process, self._limits.seconds):
                write_message(_pipe(process.stdin), {"file": file, "type": declared.value}, content)
                message = read_message(_pipe(process.stdout), MOST_ANSWER)
            if message is None:
                raise EOFError
            if message[0].get("ends"):
                self._left = 1
            picture = _picture(file, *message)
        except (OSError, ValueError, EOFError, BadMessage) as problem:  # ValueError: `close` has closed the pipes
            raise self._failure(file, process, problem) from problem
        except DomainError:
            self._count()
            raise
        self._count()
        return picture

    def close(self) -> None:
        """Kill the process. A call that waits for it raises `Unavailable`. May be called from any thread."""
        with self._starting:
            self._closed = True
            process = self._process
        if process is not None:
            _end(process)

    def _started(self) -> "subprocess.Popen[bytes]":
        """The process, which is ready. Raises `Unavailable`."""
        with self._starting:
            if self._closed:
                raise _stopping()
            process = self._process
            if process is not None and process.poll() is None and not self._late:
                return process
            self._forget()
            process = self._process = self._start()
        self._late = False
        try:
            with self._within(process, self._limits.start_seconds):
                ready = read_message(_pipe(process.stdout), 0)
        except (OSError, ValueError, BadMessage):
            ready = None
        if ready is None:
            raise self._not_started(process)
        self._left = self._limits.pictures
        return process

    def _start(self) -> "subprocess.Popen[bytes]":
        limits = {
            "parent": os.getpid(),
            "cpu_seconds": self._limits.cpu_seconds,
            "most_cpu_seconds": (self._limits.cpu_seconds + 1) * (self._limits.pictures + 1),
            "memory_bytes": self._limits.memory_bytes,
            "most_bytes": MOST_CONTENT,
        }
        try:
            return subprocess.Popen(
                [*self._command, json.dumps(limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={name: os.environ[name] for name in VARIABLES if name in os.environ},
                # A terminal's signals are for the gateway, which kills its decoders when it is done with them.
                start_new_session=True,
            )
        except OSError as problem:
            logger.error("A decoder of pictures cannot be started: %s", problem)
            raise _unavailable() from problem

    def _not_started(self, process: "subprocess.Popen[bytes]") -> Unavailable:
        status = _end(process)
        if self._closed:
            return _stopping()
        reason = f"it was not ready in {self._limits.start_seconds:g} s" if self._late else _described(status)
        logger.error("A decoder of pictures did not start: %s", reason)
        return _unavailable()

    def _failure(self, file: str, process: "subprocess.Popen[bytes]", problem: Exception) -> DomainError:
        """Why there is no answer: the picture's fault, or the machine's."""
        status = None if isinstance(problem, BadMessage) else _wait(process)
        _end(process)
        if self._closed:
            return _stopping()
        if self._late:
            # It may be stopped, or starved: with CPU time to spend it would have come to that limit.
            logger.warning("A picture was not decoded in %g s; the decoder is replaced", self._limits.seconds)
            return _unavailable()
        if status is not None and -status == _number("SIGXCPU"):
            return refused(file, RefusalReason.TOO_COSTLY, COSTLY)
        if status is not None and -status in map(_number, CRASHES):
            logger.warning("A decoder crashed over an uploaded picture: %s", _described(status))
            return refused(file, RefusalReason.NOT_A_PICTURE, NO_PICTURE)
        logger.error("A decoder failed: %s", problem if status is None else _described(status))
        return _unavailable()

    def _count(self) -> None:
        """One picture more. A process that has had enough of them is ended: what leaks in libraries goes with it."""
        self._left -= 1
        if self._left <= 0 and self._process is not None:
            _end(self._process)

    def _forget(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None

    @contextmanager
    def _within(self, process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
        """Kill the process after so long: its pipes end then, and with them whatever waits for it."""
        timer = Timer(seconds, self._expire, (process,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _expire(self, process: "subprocess.Popen[bytes]") -> None:
        if process is self._process:
            self._late = True
        process.kill()


def _picture(file: str, facts: Mapping[str, Any], parts: Sequence[bytes]) -> Picture:
    """What a decoder answered. Raises `BadUserInput` when that is a refusal, and `BadMessage`."""
    if "reason" in facts:
        reason, why = facts["reason"], facts.get("why")
        if reason not in list(RefusalReason) or not isinstance(why, str):
            raise BadMessage("no refusal")
        raise refused(file, RefusalReason(reason), why[:LONGEST_WHY])
    sides = facts.get("width"), facts.get("height")
    if not all(type(side) is int and 0 < side <= LONGEST_SIDE for side in sides) or len(parts) != 2:
        raise BadMessage("no picture")
    thumbnail, content = parts
    stated = _facts(facts.get("takenAt"), facts.get("camera"))
    return Picture(facts["width"], facts["height"], thumbnail, content, stated)


def _facts(taken_at: object, camera: object) -> Facts:
    """What the metadata stated. Raises `BadMessage`."""
    try:
        moment = None if taken_at is None else datetime.fromisoformat(str(taken_at))
    except ValueError:
        raise BadMessage("no moment") from None
    if camera is not None and (not isinstance(camera, str) or len(camera) > LONGEST_WHY):
        raise BadMessage("no camera")
    if moment is not None and moment.tzinfo is None:
        raise BadMessage("no moment")
    # Cleaned once more: a decoder that its input has taken over can send anything.
    return Facts(taken_at=moment, camera=(camera and cleaned_line(camera)) or None)


def _pipe(pipe: Any) -> Any:
    assert pipe is not None
    return pipe


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """The status of a process that has closed its pipes; None when it does not end."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(REAP_SECONDS)
    return None


def _end(process: "subprocess.Popen[bytes]") -> int | None:
    """Kill a process if it runs. Returns its status."""
    with suppress(OSError):
        process.kill()
    status = _wait(process)
    for pipe in (process.stdin, process.stdout):
        # What is left in the buffer has nowhere to go.
        with suppress(OSError, ValueError):
            _pipe(pipe).close()
    return status


def _number(name: str) -> int:
    """Of a signal; 0 where the system has none of that name."""
    return int(getattr(signal, name, 0))


def _described(status: int | None) -> str:
    if status is None:
        return "it does not end"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _unavailable() -> Unavailable:
    return Unavailable("Pictures cannot be examined at the moment; try again.")


def _stopping() -> Unavailable:
    return Unavailable("The gateway stops.")
