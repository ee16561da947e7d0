"""The gateway's proxy of a decoder process, which is replaced after it ends or is killed, and the pool of proxies.

The methods of `DecoderProcess` block, and run in threads. The pool is bounded, so that concurrent uploads cannot
exhaust the memory.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from asyncio import Future, Lock, Semaphore
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock as ThreadLock
from threading import Timer
from typing import Any
from weakref import WeakValueDictionary

from datastore.errors import DomainError, Unavailable
from datastore.model.text_characters import cleaned_line
from datastore.photos.decoder_messages import BadMessage, read_message, write_message
from datastore.photos.image_types import COSTLY, MAX_SIDE, NO_PICTURE, Picture, PictureType, RefusalReason, refusal
from datastore.photos.metadata import Facts

ROOT = Path(__file__).resolve().parents[2]
MODULE = "datastore.photos.decoder_process"
# The only variables of the gateway's environment that a decoder receives: it must not see the gateway's secrets.
VARIABLES = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
MAX_CONTENT_BYTES, MAX_RESPONSE_BYTES = 26 * 2**20, 64 * 2**20
MAX_TEXT_LENGTH = 200
REAP_SECONDS = 5.0
# Signals that end a process that crashes over its input.
CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")

logger = logging.getLogger(__name__)
# The gateway holds a file in memory while it examines it. The decoder holds its pixels: 160 MB for 40 megapixels, and
# about 650 MB in all for a WebP of that size.
FILE_CONCURRENCY, PICTURE_CONCURRENCY = 8, 2


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """The limits of a decoder process."""

    #: The CPU time for a picture.
    cpu_seconds: int = 10
    #: The wall-clock time for a picture.
    seconds: float = 25.0
    #: The address space of the process. A WebP of 40 megapixels takes 750 MB.
    memory_bytes: int = 2**30
    #: The number of pictures that a process decodes before it is replaced.
    pictures: int = 100
    #: The time for the start of a process.
    start_seconds: float = 25.0


class DecoderProcess:
    """The proxy of at most one process, which starts on demand by `command` with the limits as its last argument."""

    def __init__(
        self, limits: DecoderLimits = DecoderLimits(), command: Sequence[str] = (sys.executable, "-B", "-m", MODULE)
    ) -> None:
        self._limits = limits
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._remaining = 0
        self._timed_out = False
        self._closed = False
        self._lock = ThreadLock()

    @property
    def pid(self) -> int | None:
        """The id of the current process, if there is one."""
        return None if self._process is None else self._process.pid

    def examine(self, file: str, content: bytes, declared: PictureType) -> Picture:
        """Return the picture in a file (see `image_processing.examine`). Callers call it serially.

        Raises `BadUserInput` if the file is no picture, takes too much time or memory, or crashes the process, and
        `Unavailable` if the machine is at fault.
        """
        process = self._ready_process()
        try:
            with self._time_limit(process, self._limits.seconds):
                write_message(_pipe(process.stdin), {"file": file, "type": declared.value}, content)
                message = read_message(_pipe(process.stdout), MAX_RESPONSE_BYTES)
            if message is None:
                raise EOFError
            if message[0].get("ends"):
                self._remaining = 1
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
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            _kill(process)

    def _ready_process(self) -> "subprocess.Popen[bytes]":
        """Return a process that is ready. Raises `Unavailable`."""
        with self._lock:
            if self._closed:
                raise _stopping()
            process = self._process
            if process is not None and process.poll() is None and not self._timed_out:
                return process
            self._discard()
            process = self._process = self._start()
        self._timed_out = False
        try:
            with self._time_limit(process, self._limits.start_seconds):
                ready = read_message(_pipe(process.stdout), 0)
        except (OSError, ValueError, BadMessage):
            ready = None
        if ready is None:
            raise self._start_failure(process)
        self._remaining = self._limits.pictures
        return process

    def _start(self) -> "subprocess.Popen[bytes]":
        limits = {
            "parent": os.getpid(),
            "cpu_seconds": self._limits.cpu_seconds,
            "most_cpu_seconds": (self._limits.cpu_seconds + 1) * (self._limits.pictures + 1),
            "memory_bytes": self._limits.memory_bytes,
            "most_bytes": MAX_CONTENT_BYTES,
        }
        try:
            return subprocess.Popen(
                [*self._command, json.dumps(limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={name: os.environ[name] for name in VARIABLES if name in os.environ},
                # A terminal's signals must reach only the gateway, which kills its decoders itself.
                start_new_session=True,
            )
        except OSError as problem:
            logger.error("A decoder of pictures cannot be started: %s", problem)
            raise _unavailable() from problem

    def _start_failure(self, process: "subprocess.Popen[bytes]") -> Unavailable:
        status = _kill(process)
        if self._closed:
            return _stopping()
        reason = f"it was not ready in {self._limits.start_seconds:g} s" if self._timed_out else _describe(status)
        logger.error("A decoder of pictures did not start: %s", reason)
        return _unavailable()

    def _failure(self, file: str, process: "subprocess.Popen[bytes]", problem: Exception) -> DomainError:
        """Return the error for a missing response: a refusal of the picture, or a failure of the machine."""
        status = None if isinstance(problem, BadMessage) else _wait(process)
        _kill(process)
        if self._closed:
            return _stopping()
        if self._timed_out:
            # The process was stopped, or got no CPU time: otherwise it would have reached its CPU limit before.
            logger.warning("A picture was not decoded in %g s; the decoder is replaced", self._limits.seconds)
            return _unavailable()
        if status is not None and -status == _signal_number("SIGXCPU"):
            return refusal(file, RefusalReason.TOO_COSTLY, COSTLY)
        if status is not None and -status in map(_signal_number, CRASHES):
            logger.warning("A decoder crashed over an uploaded picture: %s", _describe(status))
            return refusal(file, RefusalReason.NOT_A_PICTURE, NO_PICTURE)
        logger.error("A decoder failed: %s", problem if status is None else _describe(status))
        return _unavailable()

    def _count(self) -> None:
        """Count a picture. End the process after its last one, which also bounds memory leaks of libraries."""
        self._remaining -= 1
        if self._remaining <= 0 and self._process is not None:
            _kill(self._process)

    def _discard(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None

    @contextmanager
    def _time_limit(self, process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
        """Kill the process after `seconds`, which ends its pipes and the reads that wait for it."""
        timer = Timer(seconds, self._expire, (process,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _expire(self, process: "subprocess.Popen[bytes]") -> None:
        if process is self._process:
            self._timed_out = True
        process.kill()


def _picture(file: str, facts: Mapping[str, Any], parts: Sequence[bytes]) -> Picture:
    """Return the picture in a decoder's response. Raises `BadUserInput` for a refusal, and `BadMessage`."""
    if "reason" in facts:
        reason, why = facts["reason"], facts.get("why")
        if reason not in list(RefusalReason) or not isinstance(why, str):
            raise BadMessage("no refusal")
        raise refusal(file, RefusalReason(reason), why[:MAX_TEXT_LENGTH])
    sides = facts.get("width"), facts.get("height")
    if not all(type(side) is int and 0 < side <= MAX_SIDE for side in sides) or len(parts) != 2:
        raise BadMessage("no picture")
    thumbnail, content = parts
    stated = _facts(facts.get("takenAt"), facts.get("camera"))
    return Picture(facts["width"], facts["height"], thumbnail, content, stated)


def _facts(taken_at: object, camera: object) -> Facts:
    """Return the facts of the metadata. Raises `BadMessage`."""
    try:
        moment = None if taken_at is None else datetime.fromisoformat(str(taken_at))
    except ValueError:
        raise BadMessage("no moment") from None
    if camera is not None and (not isinstance(camera, str) or len(camera) > MAX_TEXT_LENGTH):
        raise BadMessage("no camera")
    if moment is not None and moment.tzinfo is None:
        raise BadMessage("no moment")
    # The text is cleaned again: a decoder that its input has taken over can send anything.
    return Facts(taken_at=moment, camera=(camera and cleaned_line(camera)) or None)


def _pipe(pipe: Any) -> Any:
    assert pipe is not None
    return pipe


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """Return the exit status of a process that has closed its pipes; None if it does not end."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(REAP_SECONDS)
    return None


def _kill(process: "subprocess.Popen[bytes]") -> int | None:
    """Kill a process if it runs. Return its exit status."""
    with suppress(OSError):
        process.kill()
    status = _wait(process)
    for pipe in (process.stdin, process.stdout):
        # The flush of buffered data fails after the process has ended.
        with suppress(OSError, ValueError):
            _pipe(pipe).close()
    return status


def _signal_number(name: str) -> int:
    """Return the number of a signal; 0 if the system has none of this name."""
    return int(getattr(signal, name, 0))


def _describe(status: int | None) -> str:
    if status is None:
        return "it does not end"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _unavailable() -> Unavailable:
    return Unavailable("Pictures cannot be examined at the moment; try again.")


def _stopping() -> Unavailable:
    return Unavailable("The gateway is stopping; try again.")


class DecoderPool:
    """A pool of decoder processes, which start on demand. Each gateway process has one pool.

    For each user the pool holds one file and decodes one picture at a time, so that no user occupies all slots.
    `make_decoder` creates the proxy of a decoder process and of the processes that replace it.
    """

    def __init__(self, make_decoder: Callable[[], DecoderProcess] = DecoderProcess) -> None:
        self._file_slots = Semaphore(FILE_CONCURRENCY)
        self._picture_slots = Semaphore(PICTURE_CONCURRENCY)
        # The locks of users. An entry exists while a caller waits for the lock or holds it.
        self._file_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._picture_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._decoders = [make_decoder() for _ in range(PICTURE_CONCURRENCY)]
        self._free = list(self._decoders)
        # A separate executor: a decoder ends with the thread that started it, and no other work waits for decoders.
        self._threads: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def file_slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a slot to hold a file in memory, and release it on exit."""
        async with self._file_locks.setdefault(user, Lock()), self._file_slots:
            yield

    async def examine(self, file: str, content: bytes, declared: PictureType, *, user: str) -> Picture:
        """Return the result of `DecoderProcess.examine`.

        A cancelled caller keeps its slots until the decoder has finished.
        """
        lock = self._picture_locks.setdefault(user, Lock())
        await lock.acquire()
        try:
            await self._picture_slots.acquire()
        except BaseException:
            lock.release()
            raise
        decoder = self._free.pop()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor(), decoder.examine, file, content, declared)
        work.add_done_callback(partial(self._release, lock, decoder))
        return await asyncio.shield(work)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PICTURE_CONCURRENCY, thread_name_prefix="decoder")
        return self._threads

    def _release(self, lock: Lock, decoder: DecoderProcess, work: Future[Picture]) -> None:
        self._free.append(decoder)
        self._picture_slots.release()
        lock.release()
        if not work.cancelled():
            work.exception()  # mark as retrieved: the caller gets it from the await, and a cancelled caller needs none

    async def aclose(self) -> None:
        """Kill the decoders. A call that waits for a decoder raises `Unavailable`."""
        await asyncio.gather(*[asyncio.to_thread(decoder.close) for decoder in self._decoders])
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
