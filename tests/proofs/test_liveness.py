"""Whether event loops still run: the measure of silence, heartbeats, and the watchdog that ends a hung process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from runtime.supervisor.heartbeats import BEAT_SECONDS, SILENT_SECONDS, send_heartbeats, silence
from server.observability.liveness import HUNG_STATUS, Silence, watch_loop
from tests.support.store_engines import ROOT
from tests.support.virtual_time import in_virtual_time

# Silence

HEARD, NOTHING = True, False


@pytest.mark.parametrize(
    ("looks", "over"),
    [
        ([(t, NOTHING) for t in range(1, 10)], False),
        ([(t, NOTHING) for t in range(1, 11)], True),
        ([(t, t == 5) for t in range(1, 15)], False),
        ([(t, t == 5) for t in range(1, 16)], True),
        # The watcher itself was paused, for as long as the limit.
        ([(1, HEARD), (7, NOTHING)], False),
        ([(1, HEARD), (3600, NOTHING), (3601, NOTHING), (3609, NOTHING)], False),
        ([(1, NOTHING), (3600, NOTHING), *[(3600 + t, NOTHING) for t in range(1, 11)]], True),
        # It was late by little.
        ([(5, NOTHING), (10, NOTHING)], True),
    ],
)
def test_silence_is_counted_only_while_the_watcher_itself_runs(looks: list[tuple[int, bool]], over: bool) -> None:
    measured = Silence(10, 0)
    assert [measured.is_over_limit(now, heard=heard) for now, heard in looks][-1] is over


# Heartbeats


def test_a_worker_is_hung_after_ten_seconds_of_a_heartbeat_a_second() -> None:
    assert (SILENT_SECONDS, BEAT_SECONDS) == (10, 1)


@contextmanager
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the supervisor's end and the worker's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def test_a_worker_that_sends_heartbeats_is_never_silent_and_one_that_stops_is_after_ten_seconds() -> None:
    async def work(ours: socket.socket, theirs: socket.socket) -> float:
        loop = asyncio.get_running_loop()
        send_heartbeats(theirs)
        listening = asyncio.create_task(silence(ours, loop.time))
        await asyncio.sleep(3600)
        assert not listening.done()
        stopped = loop.time()
        theirs.shutdown(socket.SHUT_WR)  # as if it hung: its heartbeats do not arrive
        await listening
        return loop.time() - stopped

    with line() as (ours, theirs):
        seconds, complaints = in_virtual_time(lambda: work(ours, theirs))
    assert SILENT_SECONDS - BEAT_SECONDS <= seconds <= SILENT_SECONDS + BEAT_SECONDS
    assert complaints == []


def test_a_full_buffer_does_not_block_the_worker_and_counts_as_one_sign_of_life() -> None:
    async def work(ours: socket.socket, theirs: socket.socket) -> float:
        loop = asyncio.get_running_loop()
        send_heartbeats(theirs)
        await asyncio.sleep(100_000)  # the supervisor reads nothing
        with pytest.raises(BlockingIOError):
            theirs.send(b".")
        began = loop.time()
        theirs.shutdown(socket.SHUT_WR)
        await silence(ours, loop.time)
        return loop.time() - began

    with line() as (ours, theirs):
        seconds, _ = in_virtual_time(lambda: work(ours, theirs))
        assert ours.recv(10) == b""  # everything was read
    assert seconds == pytest.approx(SILENT_SECONDS, abs=BEAT_SECONDS)


def test_heartbeats_end_with_the_supervisor() -> None:
    async def work(theirs: socket.socket) -> int:
        send_heartbeats(theirs)
        await asyncio.sleep(5)
        return len(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]

    with line() as (ours, theirs):
        ours.close()
        assert in_virtual_time(lambda: work(theirs))[0] == 0


def test_a_paused_supervisor_waits_for_another_ten_seconds() -> None:
    """Pending heartbeats are read first. There may be none: the worker was paused, too."""
    jump = 0.0

    async def work(ours: socket.socket) -> float:
        nonlocal jump
        loop = asyncio.get_running_loop()
        listening = asyncio.create_task(silence(ours, lambda: loop.time() + jump))
        await asyncio.sleep(SILENT_SECONDS - BEAT_SECONDS / 2)
        jump = 3600
        at = loop.time()
        await listening
        return loop.time() - at

    with line() as (ours, _):
        seconds, _ = in_virtual_time(lambda: work(ours))
    assert seconds >= SILENT_SECONDS


# The watchdog

SECONDS = 1.0


class WatchedProcess:
    """A process of `watched_process.py`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ticks(self, number: int) -> None:
        """Wait for this number of ticks."""
        assert self.process.stdout is not None
        for _ in range(number):
            assert self.process.stdout.readline() == b"tick\n"

    def act(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def ended(self) -> tuple[int, str]:
        """Return the exit status and the standard error output."""
        _, received = self.process.communicate(timeout=30)
        return self.process.returncode, "" if received is None else received.decode()


@contextmanager
def watched_process(act: str, seconds: float = SECONDS, stderr: int = subprocess.PIPE) -> Iterator[WatchedProcess]:
    command = [sys.executable, "tests/support/watched_process.py", str(seconds), act]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=stderr) as process:
        try:
            one = WatchedProcess(process)
            one.ticks(1)
            yield one
        finally:
            process.kill()


@pytest.mark.parametrize("act", ["spin", "block"])
def test_a_hung_loop_ends_the_process_with_its_own_status_and_all_stacks(act: str) -> None:
    with watched_process(act) as one:
        one.act()
        status, received = one.ended()
    assert status == HUNG_STATUS == 70
    assert received.startswith("The event loop has not run for 1 s (GATEWAY_WATCHDOG_SECONDS). The process ends with")
    assert f"in {act}\n" in received
    assert "in _watch\n" in received  # the stacks of all threads


def test_work_that_ends_in_time_does_not_end_the_process() -> None:
    with watched_process("take_long") as one:
        one.act()
        assert one.ended() == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="stops processes by signals")
def test_a_stopped_process_continues_and_is_still_watched() -> None:
    with watched_process("spin") as one:
        for _ in range(2):
            one.process.send_signal(signal.SIGSTOP)
            threading.Event().wait(2 * SECONDS)
            one.process.send_signal(signal.SIGCONT)
            one.ticks(20)  # these take twice the limit
        one.act()
        assert one.ended()[0] == HUNG_STATUS


def test_without_seconds_nothing_is_watched() -> None:
    async def threads() -> list[str]:
        watch_loop(0)
        return [thread.name for thread in threading.enumerate()]

    assert "watchdog" not in asyncio.run(threads())


def test_the_watchdog_ends_with_the_loop() -> None:
    async def watch() -> threading.Thread:
        watch_loop(SECONDS)
        return next(thread for thread in threading.enumerate() if thread.name == "watchdog")

    thread = asyncio.run(watch())
    thread.join(10)
    assert not thread.is_alive()


def fill_pipe(writing: int) -> None:
    """Write to a pipe until it takes nothing more."""
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)


@pytest.mark.skipif(sys.platform == "win32", reason="fills a pipe")
@pytest.mark.parametrize("act", ["spin", "leave_late"])
def test_a_process_ends_although_its_output_is_not_read(act: str) -> None:
    reading, writing = os.pipe()
    try:
        fill_pipe(writing)
        with watched_process(act, stderr=writing) as one:
            one.act()
            assert one.ended()[0] == 1
    finally:
        os.close(reading)
        os.close(writing)
