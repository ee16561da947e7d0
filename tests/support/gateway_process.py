"""`gateway.py` with its own clock (see `process_clock`): the clock's three numbers, then its arguments.

On SIGUSR2 it writes the number of allocated blocks of memory, without garbage, to the file `BLOCKS_FILE`. With
`KEEPS_LITTLE` its caches have small bounds, which are reached soon. `BUS_LEASE_SECONDS` is the lifetime of its leases
of the bus. With `UPLOAD_SECONDS` reservations of photos last this long, and the janitor runs three times a second.
"""

import gc
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from datastore.change_streams.relay.bus import Bus
from datastore.change_streams.replay.history import History
from datastore.photos import reservation_expiry as releases
from datastore.primitives.lru_cache import LruCache
from datastore.session.optimistic_locking import PUT_VERSIONS
from gateway import cli
from pipelines.photos import janitor
from resolvers.photos import uploads
from runtime.container import Gateway
from server.security import jwt as identity
from tests.support.process_clock import process_clock


def main(*arguments: str) -> None:
    _defaults_of(Gateway)["now"] = process_clock(*arguments[:3])
    if seconds := os.environ.get("BUS_LEASE_SECONDS"):
        _defaults_of(Bus)["lease_seconds"] = float(seconds)
    if os.environ.get("KEEPS_LITTLE"):
        identity.CACHED_TOKENS = _defaults_of(History)["most_changes"] = 20
        PUT_VERSIONS._last = LruCache(20)
    if seconds := os.environ.get("UPLOAD_SECONDS"):
        releases.LIFETIME = vars(uploads)["LIFETIME"] = timedelta(seconds=float(seconds))
        janitor.EVERY_SECONDS = 0.3
    signal.signal(signal.SIGUSR2, lambda *_: _tell_blocks())
    sys.argv = ["gateway.py", *arguments[3:]]
    cli()


def _defaults_of(made: type[Any]) -> dict[str, Any]:
    defaults: dict[str, Any] | None = made.__init__.__kwdefaults__
    assert defaults is not None
    return defaults


def _tell_blocks() -> None:
    gc.collect()
    file = Path(os.environ["BLOCKS_FILE"])
    draft = file.with_suffix(".draft")
    draft.write_text(str(sys.getallocatedblocks()))
    draft.replace(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
