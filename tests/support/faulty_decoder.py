"""A decoder process that fails as the picture's first word says: `python -m tests.support.faulty_decoder`."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from datastore.photos.decoder_process import _decode, serve

Answer = tuple[dict[str, Any], list[bytes]]


def decode_or_fail(request: dict[str, Any], content: bytes) -> Answer:
    fault, _, rest = content.partition(b" ")
    if fault == b"spin":
        while True:
            pass
    if fault == b"sleep":
        time.sleep(600)
    if fault == b"take":
        return {"taken": len(bytearray(int(rest)))}, []
    if fault == b"crash":
        ctypes.string_at(0)
    if fault == b"killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == b"exit":
        os._exit(7)
    if fault == b"print":
        os.write(1, rest)
        os.write(2, rest)
    if fault == b"facts":
        return {"width": "x", "height": 10**9}, [b""]
    if fault == b"garbage":
        return {"reason": "x" * 10**6}, []
    if fault == b"write":
        Path(rest.decode()).write_bytes(b"x")
    return _decode(request, content)


if __name__ == "__main__":
    if sys.argv[-2] == "exit":
        sys.exit(7)
    if sys.argv[-2] == "sleep":
        time.sleep(600)
    serve(decode_or_fail)
