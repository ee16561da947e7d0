"""A seccomp filter that closes the embedded engine's port, and the handover of admitted connections to it (Linux).

The engine listens on TCP only, where every user of the machine, and every page in a browser, could connect to it. It
therefore runs under a seccomp filter, which any process may set for its children. The filter suspends its `bind`,
`listen`, `accept` and `connect` calls until this process answers them. The listening socket is replaced by one end of a
socket pair, and the engine accepts only connections that were admitted before (see `listener`). It can connect to
nothing. The bytes of a connection that was handed over go straight to the engine.

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
# NEW_LISTENER, and SPEC_ALLOW, with which the calls that are not suspended stay fast.
FILTER_FLAGS = 1 << 3 | 1 << 2
RETURN_ALLOW, RETURN_NOTIFY = 0x7FFF0000, 0x7FC00000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
OFFSET_NUMBER, OFFSET_ARCHITECTURE = 0, 4
RECEIVE, SEND, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
REPLACE_DESCRIPTOR, ADD_AND_SEND = 1, 2
MEMORY = "/proc/{}/mem"
NOTIFICATION, RESPONSE, DESCRIPTOR = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=QIIII")

# The maximum number of connections that the engine has not accepted; further ones are closed.
MAX_WAITING = 1024
# Errors of a notification whose call has ended.
INTERRUPTED = frozenset({errno.ENOENT, errno.ESRCH, errno.EINPROGRESS})
ACCEPT_RETRY_SECONDS = 0.05

MIN_KERNEL = (5, 14)  # the first with SECCOMP_ADDFD_FLAG_SEND
# The audit architecture, the number of seccomp(2), and those of the suspended calls.
CALLS = ("bind", "listen", "connect", "accept", "accept4")
MACHINES = {
    "x86_64": (0xC000003E, 317, (49, 50, 42, 43, 288)),
    "aarch64": (0xC00000B7, 277, (200, 201, 203, 202, 242)),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """The filter for one child. The child installs it between fork and exec, then the parent calls `handover`."""

    def __init__(self, machine: tuple[int, int, tuple[int, ...]]) -> None:
        architecture, self._number, calls = machine
        self._library = ctypes.CDLL(None)
        self._code = ctypes.create_string_buffer(_program(architecture, calls))
        self._program = _Program(len(calls) + 5, ctypes.cast(self._code, ctypes.c_void_p))
        self._parent_end, self._child_end = socket.socketpair()

    @classmethod
    def of_system(cls) -> Self | None:
        """Return a filter for this system, or None if it does not support one."""
        machine = MACHINES.get(platform.machine())
        if not sys.platform.startswith("linux") or machine is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            return None
        found = re.match(r"(\d+)\.(\d+)", platform.release())
        recent = found is not None and tuple(map(int, found.groups())) >= MIN_KERNEL
        return cls(machine) if recent else None

    def install(self) -> None:
        """Install the filter in this process. If the kernel refuses, the process continues without a filter."""
        program = ctypes.byref(self._program)
        self._library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        descriptor = self._library.syscall(self._number, SECCOMP_SET_MODE_FILTER, FILTER_FLAGS, program)
        if descriptor >= 0:
            socket.send_fds(self._child_end, [b"!"], [descriptor])

    def handover(self) -> "Handover | None":
        """Return the handover to the child, which executes the engine by now; None if it has no filter."""
        with self._parent_end, self._child_end:
            self._parent_end.setblocking(False)
            with suppress(BlockingIOError):
                descriptors = socket.recv_fds(self._parent_end, 1, 1)[1]
                return Handover(descriptors[0])
        return None

    def close(self) -> None:
        """Close the filter of a child that was not started."""
        self._parent_end.close()
        self._child_end.close()


def _program(architecture: int, calls: tuple[int, ...]) -> bytes:
    """Return the BPF program of a filter that suspends these calls only."""
    last = len(calls) - 1
    steps = [
        (LOAD, 0, 0, OFFSET_ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, len(calls) + 1, architecture),
        (LOAD, 0, 0, OFFSET_NUMBER),
        *[(JUMP_IF_EQUAL, last - number + 1, 0, call) for number, call in enumerate(calls)],
        (RETURN, 0, 0, RETURN_ALLOW),
        (RETURN, 0, 0, RETURN_NOTIFY),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class Handover:
    """The responder to the system calls of one engine under the filter, which hands connections over to it."""

    def __init__(self, descriptor: int) -> None:
        #: The error with which the kernel refused a response of this process.
        self.problem: OSError | None = None
        self._descriptor = descriptor
        self._numbers = dict(zip(MACHINES[platform.machine()][2], CALLS, strict=True))
        self._waiting: deque[socket.socket] = deque()
        # The engine uses its end as its listening socket: a byte from this end makes it call `accept`.
        self._signal_end, self._engine_end = socket.socketpair()
        self._signal_end.setblocking(False)
        self._engine_end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer system calls in this event loop."""
        self._loop = loop
        loop.add_reader(self._descriptor, self._answer)

    async def admit(self, client: socket.socket, head: bytes) -> None:
        """Hand a connection over to the engine with all bytes that were sent: `head` was only peeked at."""
        if self._loop is None:
            client.close()  # the engine has ended
            return
        if len(self._waiting) >= MAX_WAITING:
            client.close()
            return
        self._waiting.append(client)
        self._signal_accept()

    def _signal_accept(self) -> None:
        """Make the engine call `accept`."""
        with suppress(OSError):  # its buffer is full, or it has ended
            self._signal_end.send(b"!")

    def close(self) -> None:
        """Stop answering, and close the connections that the engine has not accepted."""
        self._stop()
        os.close(self._descriptor)
        self._signal_end.close()
        self._engine_end.close()

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        while self._waiting:
            self._waiting.popleft().close()

    def _answer(self) -> None:
        events = sum(event for _, event in self._poll.poll(0))
        if not events & select.POLLIN:
            if events:
                self._stop()  # the last process under the filter has ended
            return
        buffer = bytearray(NOTIFICATION.size)
        # An error means that the calling thread was interrupted or killed.
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
        """Replace the socket that the engine binds."""
        try:
            with _Memory(process) as memory:
                memory.write(arguments[1], memory.read(arguments[1], 2))  # check that `accept` can write
            self._add(identity, REPLACE_DESCRIPTOR, self._engine_end, arguments[0])
        except OSError as problem:
            self.problem = problem
            self._respond(identity, errno.EPERM)
        else:
            self._respond(identity)

    def _accept(self, identity: int, process: int, arguments: list[int]) -> None:
        with suppress(BlockingIOError):
            self._engine_end.recv(4096)
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
                if problem.errno in INTERRUPTED:  # the engine repeats the call
                    raise
                # The engine has no free descriptor: it accepts again when it has closed some.
                self._respond(identity, errno.EAGAIN)
                if self._loop is not None:
                    self._loop.call_later(ACCEPT_RETRY_SECONDS, self._signal_accept)
                return
            client.close()  # the engine's descriptor keeps the connection open
            return
        self._respond(identity, errno.EAGAIN)

    def _add(self, identity: int, flags: int, added: socket.socket, target: int) -> None:
        request = DESCRIPTOR.pack(identity, flags, added.fileno(), target, os.O_CLOEXEC)
        fcntl.ioctl(self._descriptor, ADD_DESCRIPTOR, request)


class _Memory:
    """The memory of the engine during a suspended call."""

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
