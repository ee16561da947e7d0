"""The supervisor: signals at any moment, and workers that hang or die. Stand-ins play the workers."""

import asyncio
import errno
import os
import pty
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.container import ProcessPart
from runtime.supervisor.slot import Address, Slot
from runtime.supervisor.worker import Worker
from runtime.supervisor.worker_env import VARIABLE, Assignment
from server.settings import Misconfigured
from tests.support.command_line import surroundings
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.supervisor import is_running, signals_are_taken
from tests.support.supervisor_process import STAND_IN
from tests.support.until import until_blocking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


@dataclass(frozen=True, slots=True)
class Supervised:
    """A supervisor, and stand-ins for its workers that files in the folder control."""

    folder: Path
    process: Forked

    def noted(self, what: str, part: str = "serving") -> list[int]:
        """Return the ids of the processes that noted `what`, in order."""
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [int(line.split()[-1]) for line in lines if line.startswith(f"{what} {part} ")]

    def has(self, name: str) -> None:
        (self.folder / name).touch()

    def lacks(self, name: str) -> None:
        (self.folder / name).unlink()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def count_in_log(self, words: str) -> int:
        return (self.folder / "log").read_text().count(words)

    def until_served(self) -> None:
        """Wait until it serves and its first worker has noted that it is ready, in any order."""
        wait_blocking(lambda: (self.folder / "served").exists() and self.noted("ready"))

    def ended(self) -> int:
        """Wait for the end and return the exit status. Check that no process that it started is left."""
        status = self.process.wait(30)
        assert [pid for pid in self.noted("began") + self.noted("began", "jobs") if is_running(pid)] == []
        return status


def wait_blocking(holds: Callable[[], object]) -> None:
    until_blocking(holds, 10)


@contextmanager
def supervised(folder: Path, *options: str, count: int = 1, has: str = "", **environment: str) -> Iterator[Supervised]:
    log = folder / "log"
    log.touch()
    if has:
        (folder / has).touch()
    arguments = [str(folder), str(count), str(free_port()), *options]
    process = Forked("tests/support/supervisor_process.py", arguments, surroundings(**environment), stderr=log)
    try:
        yield Supervised(folder, process)
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Supervised]:
    """Yield a supervisor that serves with one worker, and has one for jobs."""
    with supervised(tmp_path) as one:
        one.until_served()
        yield one


# Replacing


def test_a_sighup_while_all_are_replaced_replaces_them_once_more(one: Supervised) -> None:
    one.has("hang")
    one.send(signal.SIGHUP)
    wait_blocking(lambda: len(one.noted("began")) == 2)
    one.send(signal.SIGHUP)
    one.send(signal.SIGHUP)
    one.lacks("hang")
    wait_blocking(lambda: len(one.noted("ready")) == 3 and len(one.noted("ready", "jobs")) == 3)
    one.send(signal.SIGTERM)
    assert one.ended() == 0
    assert len(one.noted("began")) == 3


@pytest.mark.proof
def test_a_worker_that_does_not_become_ready_replaces_none_and_sighup_retries(tmp_path: Path) -> None:
    with supervised(tmp_path, START_SECONDS="2") as one:
        one.until_served()
        (first,) = one.noted("ready")
        one.has("hang")
        one.send(signal.SIGHUP)
        wait_blocking(lambda: len(one.noted("began")) == 2)
        one.send(signal.SIGHUP)
        wait_blocking(lambda: len(one.noted("began")) == 3)
        one.lacks("hang")
        wait_blocking(lambda: len(one.noted("ready")) == 2 and not is_running(first))


def test_sigterm_while_all_are_replaced_ends_old_and_new(one: Supervised) -> None:
    one.has("hang")
    one.send(signal.SIGHUP)
    wait_blocking(lambda: len(one.noted("began")) == 2)
    one.send(signal.SIGTERM)
    assert one.ended() == 0


def test_a_sighup_while_all_stop_starts_no_worker(one: Supervised) -> None:
    one.has("deaf")
    one.send(signal.SIGTERM)
    wait_blocking(lambda: one.noted("signalled"))
    one.send(signal.SIGHUP)
    assert one.ended() == 0
    assert len(one.noted("began")) == 1


# Starting


def test_sigterm_while_the_store_opens_ends_it_before_any_worker_starts(tmp_path: Path) -> None:
    with supervised(tmp_path, has="opening") as one:
        wait_blocking(lambda: signals_are_taken(one.process.pid))
        one.send(signal.SIGTERM)
        assert one.ended() == 0
        assert one.noted("began") == []


def test_sigterm_while_workers_start_ends_them(tmp_path: Path) -> None:
    with supervised(tmp_path, count=3, has="hang") as one:
        wait_blocking(lambda: len(one.noted("began")) == 3)
        one.send(signal.SIGTERM)
        assert one.ended() == 0
        assert one.noted("ready") == []


@pytest.mark.proof
def test_a_hanging_successor_of_a_worker_that_died_is_killed_and_replaced(tmp_path: Path) -> None:
    with supervised(tmp_path, START_SECONDS="2") as one:
        one.until_served()
        one.has("hang")
        os.kill(one.noted("ready")[0], signal.SIGKILL)
        wait_blocking(lambda: len(one.noted("began")) == 3)
        one.lacks("hang")
        wait_blocking(lambda: len(one.noted("ready")) == 2)
        assert not is_running(one.noted("began")[1])
        assert one.count_in_log("Worker 1 was not ready within") >= 1


def test_workers_that_never_become_ready_end_the_supervisor(tmp_path: Path) -> None:
    with supervised(tmp_path, count=2, has="hang", START_SECONDS="0.3") as one:
        assert one.ended() == 1
        assert not (tmp_path / "served").exists()


# Stopping


def test_a_worker_that_does_not_stop_is_killed(one: Supervised) -> None:
    one.has("deaf")
    one.send(signal.SIGTERM)
    assert one.ended() == 0


def test_workers_stop_when_their_supervisor_is_killed(one: Supervised) -> None:
    workers = one.noted("ready") + one.noted("ready", "jobs")
    one.process.kill()
    wait_blocking(lambda: not any(is_running(pid) for pid in workers))


def test_the_supervisor_ends_with_its_terminal(tmp_path: Path) -> None:
    controller, terminal_end = pty.openpty()
    with supervised(tmp_path, os.ttyname(terminal_end)) as one:
        one.until_served()
        one.send(signal.SIGHUP)
        wait_blocking(lambda: len(one.noted("ready")) == 2)  # while the terminal exists, workers are replaced
        os.close(terminal_end)
        os.close(controller)
        assert one.ended() == 0


def test_with_nohup_the_supervisor_outlives_its_terminal(tmp_path: Path) -> None:
    controller, terminal_end = pty.openpty()
    with supervised(tmp_path, os.ttyname(terminal_end), "nohup") as one:
        one.until_served()
        os.close(terminal_end)
        os.close(controller)
        wait_blocking(lambda: len(one.noted("ready")) == 2)
        one.send(signal.SIGTERM)
        assert one.ended() == 0


# Heartbeats


SILENT = 1.0


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Supervised]:
    """Yield a supervisor with a serving worker and one for jobs, which kills workers silent for `SILENT` seconds."""
    with supervised(tmp_path, SILENT_SECONDS=str(SILENT), LEAVE_SECONDS="60") as one:
        one.until_served()
        wait_blocking(lambda: len(one.noted("ready")) == len(one.noted("ready", "jobs")) == 1)
        yield one


def pass_time(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_blocking(lambda: time.monotonic() > end)


@pytest.mark.parametrize(("part", "name"), [("serving", "Worker 1"), ("jobs", "The worker for jobs")])
def test_a_silent_worker_is_killed_and_replaced(listening: Supervised, part: str, name: str) -> None:
    (first,) = listening.noted("ready", part)
    listening.has(f"silent-{first}")
    wait_blocking(lambda: len(listening.noted("ready", part)) == 2)
    assert not is_running(first)
    assert listening.count_in_log(f"{name} (process {first}) sent no heartbeat for {SILENT:g} s: the supervisor") == 1
    assert listening.count_in_log(f"{name} ended (killed by the supervisor because its event loop did not run)") == 1


def test_a_worker_that_is_stopped_by_a_signal_is_killed_and_replaced(listening: Supervised) -> None:
    (first,) = listening.noted("ready")
    os.kill(first, signal.SIGSTOP)
    wait_blocking(lambda: len(listening.noted("ready")) == 2)
    assert not is_running(first)


@pytest.mark.proof
def test_other_workers_are_kept_while_a_silent_worker_is_replaced(listening: Supervised) -> None:
    (jobs,) = listening.noted("ready", "jobs")
    for replaced in (1, 2):
        listening.has(f"silent-{listening.noted('ready')[-1]}")
        wait_blocking(lambda replaced=replaced: len(listening.noted("ready")) == replaced + 1)  # type: ignore[misc]
    assert listening.noted("ready", "jobs") == [jobs]
    assert is_running(jobs)


def test_a_worker_that_falls_silent_while_it_leaves_is_killed_before_its_time_is_over(listening: Supervised) -> None:
    listening.has("deaf")
    for part in ("serving", "jobs"):
        listening.has(f"silent-{listening.noted('ready', part)[0]}")
    listening.send(signal.SIGTERM)
    assert listening.ended() == 0  # 60 s are allowed


@pytest.mark.proof
def test_a_worker_that_leaves_slowly_and_sends_heartbeats_is_left_its_time(tmp_path: Path) -> None:
    with supervised(tmp_path, SILENT_SECONDS=str(SILENT), LEAVE_SECONDS="2") as one:
        one.until_served()
        one.has("deaf")
        one.send(signal.SIGTERM)
        assert one.ended() == 0
        assert one.count_in_log("sent no heartbeat") == 0


@pytest.mark.proof
def test_a_worker_that_starts_slowly_is_left_its_time(tmp_path: Path) -> None:
    with supervised(tmp_path, has="hang", SILENT_SECONDS=str(SILENT)) as one:
        wait_blocking(lambda: one.noted("began"))
        pass_time(2 * SILENT)
        one.lacks("hang")
        one.until_served()
        assert len(one.noted("began")) == 1


@pytest.mark.proof
@pytest.mark.parametrize("everything", [False, True], ids=["the supervisor alone", "everything"])
def test_workers_are_kept_when_the_supervisor_stood_still(listening: Supervised, everything: bool) -> None:
    there = listening.noted("ready") + listening.noted("ready", "jobs")
    stopped = [*there, listening.process.pid] if everything else [listening.process.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    pass_time(2 * SILENT)
    os.kill(listening.process.pid, signal.SIGCONT)  # the workers follow later
    pass_time(SILENT / 4)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    pass_time(2 * SILENT)
    assert [pid for pid in there if not is_running(pid)] == []
    assert listening.count_in_log("sent no heartbeat") == 0
    listening.has(f"silent-{there[0]}")  # it still listens
    wait_blocking(lambda: len(listening.noted("ready")) == 2)


# The place of a worker


async def stand_in(folder: Path) -> Worker:
    return await Worker.start([sys.executable, "-S", "-E", str(STAND_IN), str(folder)], ProcessPart.SERVING, 1)


async def let_loop_run() -> None:
    """Let the event loop process what has happened."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextmanager
def kept_slot(slot: Slot) -> Iterator[None]:
    keeping = asyncio.create_task(slot.keep())
    try:
        yield
    finally:
        keeping.cancel()


async def test_a_worker_that_dies_while_its_successor_begins_has_one_successor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("runtime.supervisor.slot.FIRST_DELAY", 0.0)
    started, begins, may_begin = list[Worker](), asyncio.Event(), asyncio.Event()

    async def start(_: list[socket.socket]) -> Worker:
        if started:
            begins.set()
            await may_begin.wait()
        started.append(await stand_in(tmp_path))
        return started[-1]

    slot = Slot(start, Address("127.0.0.1", free_port(), []))
    assert await slot.fill()
    with kept_slot(slot):
        renewing = asyncio.create_task(slot.replace())
        await begins.wait()
        started[0].kill()
        await started[0].wait()
        await let_loop_run()
        may_begin.set()
        assert await renewing
        await let_loop_run()
        assert len(started) == 2
        assert slot.worker is started[1]
    await asyncio.gather(*[worker.end(5) for worker in started])


async def test_a_successor_that_dies_is_replaced_while_the_one_before_still_leaves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("runtime.supervisor.slot.FIRST_DELAY", 0.0)
    started, third = list[Worker](), asyncio.Event()

    async def start(_: list[socket.socket]) -> Worker:
        started.append(await stand_in(tmp_path))
        if len(started) == 3:
            third.set()
        return started[-1]

    slot = Slot(start, Address("127.0.0.1", free_port(), []))
    assert await slot.fill()
    (tmp_path / "deaf").touch()
    with kept_slot(slot):
        renewing = asyncio.create_task(slot.replace())
        while slot.worker is started[0]:  # noqa: ASYNC110 - it waits for a process
            await asyncio.sleep(0.01)
        started[1].kill()
        await asyncio.wait_for(third.wait(), 50)
        assert not renewing.done()
        started[0].kill()
        assert await renewing
    await asyncio.gather(*[worker.end(0) for worker in started])


async def test_starting_a_process_is_retried_when_it_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("runtime.supervisor.slot.FIRST_DELAY", 0.0)
    tries, refusals = 0, 3

    async def start(_: list[socket.socket]) -> Worker:
        nonlocal tries
        tries += 1
        if tries <= refusals:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await stand_in(tmp_path)

    slot = Slot(start, Address("127.0.0.1", free_port(), []))
    assert not await slot.fill()
    with kept_slot(slot):
        while slot.worker is None:  # noqa: ASYNC110 - it waits for a process
            await asyncio.sleep(0.01)
        worker = slot.worker
        assert tries == 4
        refusals = 5
        assert not await slot.replace()
        assert slot.worker is worker
    await worker.end(5)


async def test_a_process_that_cannot_be_started_leaves_no_descriptor_open() -> None:
    before = {*os.listdir("/proc/self/fd")}
    with pytest.raises(FileNotFoundError) as caught:
        await Worker.start(["/does/not/exist"], ProcessPart.SERVING, 1)
    assert {*os.listdir("/proc/self/fd")} - before == set()
    assert caught.value.errno == errno.ENOENT


# The assignment of a worker


def test_an_assignment_is_removed_from_the_environment() -> None:
    """An engine that the worker starts is no worker, and must neither listen nor hold the line open."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as line:
        given = [os.dup(one.fileno()) for one in (line, listening)]
        for descriptor in given:
            os.set_inheritable(descriptor, True)
        value = f'{{"part": "serving", "number": 1, "line": {given[0]}, "listening": [{given[1]}], "options": {{}}}}'
        environment = {VARIABLE: value}
        assignment = Assignment.of(environment)
        assert assignment == Assignment(ProcessPart.SERVING, 1, given[0], (given[1],))
        assert environment == {}
        with assignment.open_channel() as channel, assignment.sockets()[0] as listener:
            assert [channel.get_inheritable(), listener.get_inheritable()] == [False, False]


@pytest.mark.parametrize(
    "message",
    [
        *("", "yes", "1", "null", "[]", "{}"),
        '{"part": "all", "number": 1, "line": 0, "listening": [], "options": {}}',
        '{"part": "serving", "number": 1, "line": 999999, "listening": [], "options": {}}',
        '{"part": "serving", "number": 1, "line": %(file)s, "listening": [], "options": {}}',
        '{"part": "serving", "number": 1, "line": %(socket)s, "listening": [%(file)s], "options": {}}',
        '{"part": "serving", "number": 1, "line": %(socket)s, "listening": 7, "options": {}}',
        '{"part": "serving", "number": "x", "line": %(socket)s, "listening": [], "options": {}}',
        '{"part": "serving", "number": 1, "line": "%(socket)s", "listening": [], "options": {}}',
        '{"part": "serving", "number": 1, "line": %(socket)s, "listening": []}',
    ],
)
def test_a_worker_assignment_from_elsewhere_is_refused(message: str) -> None:
    with open(os.devnull) as file, socket.socket() as one:
        filled = message.replace("%(file)s", str(file.fileno())).replace("%(socket)s", str(one.fileno()))
        with pytest.raises(Misconfigured, match="reserved for the processes of `serve --workers`"):
            Assignment.of({VARIABLE: filled})
