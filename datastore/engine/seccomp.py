"""Leaves the embedded engine no port of its own, by a seccomp filter, and hands admitted connections to it (Linux).

The engine listens on TCP alone, where every user of the machine, and every page in a browser, could connect to it. It
therefore runs under a seccomp filter, which any process may set for its children. The filter stops its
`bind`, `listen`, `accept` and `connect` until they are answered here: its listening socket is replaced by one end
of a socket pair, and what it accepts is connections that were admitted before (see `listener`). Nothing else can
connect to it, and it can connect to nothing. The bytes of a connection that was handed over go straight to the engine.

https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html
"""

import asyncio
import ctypes
import errno
import os
import platform
import re
import select
import socket
import struct
import sys
from collections import deque
from contextlib import suppress
from typing import Self

if sys.platform != "win32":
    import fcntl

# From the kernel's headers: linux/prctl.h, linux/seccomp.h, linux/filter.h, linux/audit.h.
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
# The calls that are not stopped stay as quick as before: NEW_LISTENER, and SPEC_ALLOW.
FILTER_FLAGS = 1 << 3 | 1 << 2
RETURN_ALLOW, RETURN_ASK = 0x7FFF0000, 0x7FC00000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
OFFSET_NUMBER, OFFSET_ARCHITECTURE = 0, 4
RECEIVE, SEND, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
REPLACE_DESCRIPTOR, ADD_AND_SEND = 1, 2
MEMORY = "/proc/{}/mem"
NOTIFICATION, RESPONSE, DESCRIPTOR = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=QIIII")

# Connections that the engine has not accepted yet; those beyond are closed.
MOST_WAITING = 1024
# The engine's call has ended meanwhile.
INTERRUPTED = frozenset({errno.ENOENT, errno.ESRCH, errno.EINPROGRESS})
RING_AGAIN_SECONDS = 0.05

OLDEST_KERNEL = (5, 14)  # the first with SECCOMP_ADDFD_FLAG_SEND
# The audit architecture, the number of seccomp(2), and those of the calls that are stopped.
CALLS = ("bind", "listen", "connect", "accept", "accept4")
MACHINES = {
    "x86_64": (0xC000003E, 317, (49, 50, 42, 43, 288)),
    "aarch64": (0xC00000B7, 277, (200, 201, 203, 202, 242)),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """The filter for one child: the child sets it between fork and exec, then its parent asks for the handover."""

    def __init__(self, machine: tuple[int, int, tuple[int, ...]]) -> None:
        architecture, self._number, calls = machine
        self._library = ctypes.CDLL(None)
        self._code = ctypes.create_string_buffer(_program(architecture, calls))
        self._program = _Program(len(calls) + 5, ctypes.cast(self._code, ctypes.c_void_p))
        self._parents, self._childs = socket.socketpair()

    @classmethod
    def of_system(cls) -> Self | None:
        """The filter for this system, None for one that has no such filters."""
        machine = MACHINES.get(platform.machine())
        if not sys.platform.startswith("linux") or machine is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            return None
        found = re.match(r"(\d+)\.(\d+)", platform.release())
        recent = found is not None and tuple(map(int, found.groups())) >= OLDEST_KERNEL
        return cls(machine) if recent else None

    def set(self) -> None:
        """Have the kernel stop this process's calls. Where it refuses, the process goes on without a filter."""
        program = ctypes.byref(self._program)
        self._library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        descriptor = self._library.syscall(self._number, SECCOMP_SET_MODE_FILTER, FILTER_FLAGS, program)
        if descriptor >= 0:
            socket.send_fds(self._childs, [b"!"], [descriptor])

    def handover(self) -> "Handover | None":
        """Return the gate of the child, which has become the engine by now; None if it has no filter."""
        with self._parents, self._childs:
            self._parents.setblocking(False)
            with suppress(BlockingIOError):
                descriptors = socket.recv_fds(self._parents, 1, 1)[1]
                return Handover(descriptors[0])
        return None

    def close(self) -> None:
        """Let go of a filter whose child has not come about."""
        self._parents.close()
        self._childs.close()


def _program(architecture: int, calls: tuple[int, ...]) -> bytes:
    """A filter that stops these calls, and no others."""
    last = len(calls) - 1
    steps = [
        (LOAD, 0, 0, OFFSET_ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, len(calls) + 1, architecture),
        (LOAD, 0, 0, OFFSET_NUMBER),
        *[(JUMP_IF_EQUAL, last - at + 1, 0, call) for at, call in enumerate(calls)],
        (RETURN, 0, 0, RETURN_ALLOW),
        (RETURN, 0, 0, RETURN_ASK),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class Handover:
    """Answers the system calls of one engine that runs under the filter, and hands connections over to it.

    `problem` is set when the kernel does not let this process answer them. Closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        self.problem: OSError | None = None
        self._descriptor = descriptor
        self._numbers = dict(zip(MACHINES[platform.machine()][2], CALLS, strict=True))
        self._waiting: deque[socket.socket] = deque()
        # The engine takes its end for the socket it listens on: a byte at ours has it accept.
        self._bell, self._engines = socket.socketpair()
        self._bell.setblocking(False)
        self._engines.setblocking(False)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._loop: asyncio.AbstractEventLoop | None = None

    def attend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer from now on, in this event loop."""
        self._loop = loop
        loop.add_reader(self._descriptor, self._answer)

    async def take(self, client: socket.socket, head: bytes) -> None:
        """Hand a connection over to the engine, with all that was sent over it: `head` was only looked at."""
        if self._loop is None:
            client.close()  # the engine has ended
            return
        if len(self._waiting) >= MOST_WAITING:
            client.close()
            return
        self._waiting.append(client)
        self._ring()

    def _ring(self) -> None:
        """Have the engine accept."""
        with suppress(OSError):  # it has enough to read, or is gone
            self._bell.send(b"!")

    def close(self) -> None:
        """Let go of the engine: what it would accept is closed."""
        self._leave()
        os.close(self._descriptor)
        self._bell.close()
        self._engines.close()

    def _leave(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        while self._waiting:
            self._waiting.popleft().close()

    def _answer(self) -> None:
        events = sum(event for _, event in self._poll.poll(0))
        if not events & select.POLLIN:
            if events:
                self._leave()  # the last process under the filter has ended
            return
        buffer = bytearray(NOTIFICATION.size)
        # An error: the one that called has been interrupted or killed meanwhile.
        with suppress(OSError):
            fcntl.ioctl(self._descriptor, RECEIVE, buffer)
            identity, process, _, number, _, _, *arguments = NOTIFICATION.unpack(buffer)
            self._answer_call(identity, process, self._numbers[number], arguments)

    def _answer_call(self, identity: int, process: int, call: str, arguments: list[int]) -> None:
        match call:
            case "bind":
                self._bind(identity, process, arguments)
            case "listen":
                self._respond(identity)
            case "connect":
                self._respond(identity, errno.ECONNREFUSED)
            case _:
                self._accept(identity, process, arguments)

    def _respond(self, identity: int, error: int = 0) -> None:
        fcntl.ioctl(self._descriptor, SEND, RESPONSE.pack(identity, 0, -error, 0))

    def _bind(self, identity: int, process: int, arguments: list[int]) -> None:
        """Put our socket in the place of the one that is bound."""
        try:
            with _Memory(process) as memory:
                memory.write(arguments[1], memory.read(arguments[1], 2))  # whether `accept` will be able to
            self._add(identity, REPLACE_DESCRIPTOR, self._engines, arguments[0])
        except OSError as problem:
            self.problem = problem
            self._respond(identity, errno.EPERM)
        else:
            self._respond(identity)

    def _accept(self, identity: int, process: int, arguments: list[int]) -> None:
        with suppress(BlockingIOError):
            self._engines.recv(4096)
        while self._waiting:
            client = self._waiting.popleft()
            try:
                address, port = client.getpeername()
            except OSError:
                client.close()  # the client has left
                continue
            try:
                with _Memory(process) as memory:
                    peer = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(address)
                    memory.write(arguments[1], peer + bytes(8))
                    memory.write(arguments[2], struct.pack("=I", 16))
                self._add(identity, ADD_AND_SEND, client, 0)
            except OSError as problem:
                self._waiting.appendleft(client)
                if problem.errno in INTERRUPTED:  # the call is made again
                    raise
                # The engine has as many descriptors as it may have: it goes on once it has closed some.
                self._respond(identity, errno.EAGAIN)
                if self._loop is not None:
                    self._loop.call_later(RING_AGAIN_SECONDS, self._ring)
                return
            client.close()  # the engine's own descriptor is what keeps it open
            return
        self._respond(identity, errno.EAGAIN)

    def _add(self, identity: int, flags: int, added: socket.socket, place: int) -> None:
        request = DESCRIPTOR.pack(identity, flags, added.fileno(), place, os.O_CLOEXEC)
        fcntl.ioctl(self._descriptor, ADD_DESCRIPTOR, request)


class _Memory:
    """The memory of the engine, which waits for an answer meanwhile."""

    def __init__(self, process: int) -> None:
        self._file = os.open(MEMORY.format(process), os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self._file, size, address)

    def write(self, address: int, content: bytes) -> None:
        if address:
            os.pwrite(self._file, content, address)
