"""The assignment that a supervisor passes to a worker in an environment variable."""

import json
import os
import socket
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, Self

from runtime.container import ProcessPart
from server.settings import Misconfigured

# Only a supervisor sets this variable. Settings of users begin with GATEWAY_.
VARIABLE = "WORKER_OF_GATEWAY"
READY = b"ready\n"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The part of the gateway that a worker runs, and the file descriptors that it inherits for that."""

    part: ProcessPart
    #: Serving workers are numbered from 1; the worker for jobs is 0.
    number: int
    #: The descriptor of the worker's end of the channel.
    channel: int
    #: The descriptors of the listening sockets.
    listening: tuple[int, ...] = ()
    #: The options of `serve`, as JSON has them.
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """Remove the assignment from the environment and return it: the child processes of a worker are no workers.

        Raise `Misconfigured` for a value that no supervisor has written.
        """
        try:
            given = json.loads(environment.pop(VARIABLE))
            descriptors_given = (given["line"], tuple(given["listening"]))
            assignment = cls(ProcessPart(given["part"]), int(given["number"]), *descriptors_given, given["options"])
            descriptors = (assignment.channel, *assignment.listening)
            are_sockets = all(stat.S_ISSOCK(os.fstat(descriptor).st_mode) for descriptor in descriptors)
        except (ValueError, TypeError, LookupError, OSError, OverflowError):
            are_sockets = False
        if not are_sockets:
            raise Misconfigured(f"{VARIABLE} is reserved for the processes of `serve --workers`: unset it.")
        return assignment

    def as_text(self) -> str:
        """Return the value of the environment variable.

        Its names must not change, because a supervisor may run older code than the workers that it starts.
        """
        text = {"part": self.part, "number": self.number, "line": self.channel, "listening": self.listening}
        return json.dumps({**text, "options": self.options})

    def sockets(self) -> list[socket.socket]:
        """Return the listening sockets."""
        sockets = [socket.socket(fileno=descriptor) for descriptor in self.listening]
        for listener in sockets:
            listener.set_inheritable(False)  # else an engine started by this process would keep listening
        return sockets

    def open_channel(self) -> socket.socket:
        """Return the worker's end of the channel, non-blocking."""
        channel = socket.socket(fileno=self.channel)
        channel.set_inheritable(False)
        channel.setblocking(False)
        return channel
