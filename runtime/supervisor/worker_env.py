"""What a supervisor tells a process that it starts, through the environment."""

import json
import os
import socket
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Self

from runtime.container import ProcessPart
from server.settings import Misconfigured

# Set by a supervisor alone: no setting of users, whose names begin with GATEWAY_.
VARIABLE = "WORKER_OF_GATEWAY"
READY = b"ready\n"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is to do, on which descriptors. Workers that serve are numbered from 1; the other is 0."""

    part: ProcessPart
    number: int
    line: int
    listening: tuple[int, ...] = ()

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self | None:
        """None for a process that is nobody's worker. It is taken out: processes that this one starts are none.

        Raises `Misconfigured` for what no supervisor has written.
        """
        told = environment.pop(VARIABLE, None)
        if told is None:
            return None
        try:
            given = json.loads(told)
            found = cls(ProcessPart(given["part"]), int(given["number"]), given["line"], tuple(given["listening"]))
            are_sockets = all(stat.S_ISSOCK(os.fstat(one).st_mode) for one in (found.line, *found.listening))
        except (ValueError, TypeError, LookupError, OSError, OverflowError):
            are_sockets = False
        if not are_sockets:
            raise Misconfigured(f"{VARIABLE} is what `serve --workers` tells its processes: it is not to be set.")
        return found

    def sockets(self) -> list[socket.socket]:
        sockets = [socket.socket(fileno=descriptor) for descriptor in self.listening]
        for one in sockets:
            one.set_inheritable(False)  # an engine that this process starts would go on listening
        return sockets

    def open_line(self) -> socket.socket:
        line = socket.socket(fileno=self.line)
        line.set_inheritable(False)
        line.setblocking(False)
        return line
