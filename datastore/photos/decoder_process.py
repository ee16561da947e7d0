"""A process that decodes uploaded pictures serially: `python -m datastore.photos.decoder_process`.

It reads requests from its standard input and writes responses to its standard output (`decoder_messages`), under
limits of the operating system: CPU time for each picture and in total, memory, no core dumps, no writing to files, few
open files. It ends when its input ends. On Linux the kernel also kills it when the gateway ends.

It also removes the metadata of a picture. `_decode` builds the response, which `decoder.DecoderProcess` reads.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import Any, BinaryIO

from datastore.errors import BadUserInput
from datastore.photos.decoder_messages import read_message, write_message
from datastore.photos.image_processing import examine, without_metadata
from datastore.photos.image_types import COSTLY, PictureType, RefusalReason

# Windows has no such limits: only the gateway's time limit for a picture applies.
if sys.platform != "win32":
    import resource

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
# Pipes, and files from which modules are imported.
OPEN_FILES = 32

# Returns the facts and byte strings of a response. Raises `MemoryError`, after which the process ends.
RequestHandler = Callable[[dict[str, Any], bytes], tuple[dict[str, Any], list[bytes]]]


def serve(handle: RequestHandler) -> None:
    """Handle requests until the input ends.

    The first command-line argument contains the limits and the gateway's process id as JSON.
    """
    limits = json.loads(sys.argv[1])
    incoming, outgoing = _own_pipes()
    _bind_to_parent(limits["parent"])
    _set_limits(limits)
    warnings.simplefilter("ignore")
    write_message(outgoing, {"ready": True})
    # Libraries may print text from their untrusted input, which must not reach the gateway's log.
    _silence(2)
    while (message := read_message(incoming, limits["most_bytes"])) is not None:
        _allow_cpu(limits["cpu_seconds"])
        request, (content,) = message
        try:
            facts, parts = handle(request, content)
        except MemoryError:
            # The remaining memory is fragmented: the gateway starts another process for the next picture.
            write_message(outgoing, {"reason": RefusalReason.TOO_COSTLY, "why": COSTLY, "ends": True})
            return
        write_message(outgoing, facts, *parts)
        del message, content, parts


def _decode(request: dict[str, Any], content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    try:
        # Removing the metadata rewrites the file: decode the rewritten bytes, not the uploaded ones.
        stripped = without_metadata(request["file"], content)
        picture = examine(request["file"], stripped.content, PictureType(request["type"]))
    except BadUserInput as problem:
        why = str(problem).removeprefix(f"The {request['file']} ")
        return {"reason": problem.extensions["reason"], "why": why}, []
    taken_at = stripped.facts.taken_at and stripped.facts.taken_at.isoformat()
    facts = {"width": picture.width, "height": picture.height, "takenAt": taken_at, "camera": stripped.facts.camera}
    return facts, [picture.thumbnail, stripped.content]


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the gateway's pipes. Redirect standard input and output, so that libraries cannot use the pipes."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _silence(0)
    _silence(1)
    return incoming, outgoing


def _silence(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _bind_to_parent(parent: int) -> None:
    """Let Linux kill this process when the gateway ends, and before the gateway if memory runs out.

    The process also gains no privileges.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    # If memory runs out, the kernel must kill a decoder rather than the gateway.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _set_limits(limits: dict[str, Any]) -> None:
    if sys.platform == "win32":
        return
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_CPU, limits["most_cpu_seconds"])
    # macOS accepts this limit, but does not enforce it.
    _lower(resource.RLIMIT_AS, limits["memory_bytes"])


def _lower(limit: int, value: int) -> None:
    """Set the soft and the hard limit to `value`, or to the current hard limit if that is lower.

    A refusal by the system is ignored.
    """
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(limit, (value, value))


def _allow_cpu(seconds: int) -> None:
    """Limit the CPU time of the next picture. If it takes longer, the kernel ends the process with SIGXCPU."""
    if sys.platform == "win32":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    serve(_decode)
