"""A server for the DynamoDB part of MiniStack: `python ministack_server.py ADDRESS [FILE]` in MiniStack's environment.

MiniStack's own entry point also opens other ports, runs scripts and removes containers, so it is not used. ADDRESS is
the path of a Unix socket, or a port of 127.0.0.1. With FILE the tables and the latest changes of their streams are
stored in it: every few seconds while they change, and when the process ends by SIGTERM or SIGINT. After SIGKILL the
last seconds are lost; the streams then have new ARNs, so that readers notice.

MiniStack keeps each change for 24 hours. Here each stream also keeps at most `STREAM_BYTES` of changes, and older ones
are trimmed: a reader of a trimmed position gets TrimmedDataAccessException, as from DynamoDB.
"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config
from ministack.core import persistence
from ministack.core.responses import AccountRegionScopedDict, set_request_account_id, set_request_region
from ministack.services import dynamodb, dynamodb_streams

STREAM_BYTES = 2**24  # of each stream's changes as JSON, in memory
MAX_STORED_CHANGES = 2_000  # of each stream, in the file
SAVE_SECONDS, SAVE_SHARE = 2.0, 20  # the interval between saves, which take at most a twentieth of the time
READS = ("Get", "Query", "Scan", "Describe", "List", "BatchGet", "TransactGet")
MAX_REQUEST_BYTES = 2**25  # of a request


class StreamSize:
    """The sizes in bytes of the changes of one stream; `first` is the position of the oldest one in the stream."""

    def __init__(self, changes: list[Any], first: int) -> None:
        self.changes = changes
        self._first = first
        self._sizes: deque[int] = deque()
        self._total = 0

    def update(self, first: int) -> None:
        """Drop the changes before the position `first`, and add those written since the last call."""
        while self._sizes and self._first < first:
            self._remove_oldest()
        self._first = first
        for change in self.changes[len(self._sizes) :]:
            self._sizes.append(len(json.dumps(change, default=str)))
            self._total += self._sizes[-1]

    def trim(self) -> int:
        """Delete the oldest changes while there are more than `STREAM_BYTES`, and return the position of the oldest."""
        before = self._first
        while self._total > STREAM_BYTES and len(self._sizes) > 1:
            self._remove_oldest()
        del self.changes[: self._first - before]
        return self._first

    def _remove_oldest(self) -> None:
        self._total -= self._sizes.popleft()
        self._first += 1


class MiniStackStreams:
    """The streams of all tables, each of which keeps at most `STREAM_BYTES`."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str, str], StreamSize] = {}

    def trim(self) -> None:
        """Delete the oldest changes of each stream that has grown too large."""
        known, self._sizes = self._sizes, {}
        for stream, changes in dynamodb._stream_records.all_items():
            first = dynamodb._stream_trimmed.get_scoped(*stream, 0)
            size = known.get(stream)
            if size is None or size.changes is not changes:  # the table was deleted and created again
                size = StreamSize(changes, first)
            self._sizes[stream] = size
            size.update(first)
            dynamodb._stream_trimmed.set_scoped(*stream, size.trim())


class MiniStackEngine:
    """MiniStack's tables, and the file that keeps them."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._changed = False
        self._save_seconds = 0.0
        self._streams = MiniStackStreams()
        if file is not None:
            self._lock = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # an engine that is stopping may still write the file
            if file.exists():
                self._load(_read(file))

    def _load(self, state: Any) -> None:
        dynamodb.load_persisted_state(state["tables"])
        dynamodb._stream_seq_counter = state["sequence"]
        if state["ended"]:
            dynamodb._stream_records.update(state["changes"])
            dynamodb._stream_trimmed.update(state["trimmed"])
            return
        for table in dynamodb._tables.all_values():
            if table.get("LatestStreamArn"):
                label = dynamodb._stream_label()
                table["LatestStreamArn"] = table["LatestStreamArn"].rpartition("/")[0] + f"/{label}"
                table["LatestStreamLabel"] = label

    def _state(self, *, ended: bool) -> str:
        changes, trimmed = AccountRegionScopedDict(), AccountRegionScopedDict()
        for (account, region, name), records in dynamodb._stream_records.all_items():
            passed = dynamodb._stream_trimmed.get_scoped(account, region, name, 0)
            changes.set_scoped(account, region, name, records[-MAX_STORED_CHANGES:])
            trimmed.set_scoped(account, region, name, passed + max(0, len(records) - MAX_STORED_CHANGES))
        state = {"tables": dynamodb.get_state(), "changes": changes, "trimmed": trimmed, "ended": ended}
        state["sequence"] = dynamodb._stream_seq_counter
        return json.dumps(state, default=persistence._json_default)

    def save(self, *, ended: bool = False) -> None:
        """Replace the file. Raises `OSError`."""
        if self._file is None:
            return
        began = time.monotonic()
        self._changed = False
        draft = self._file.with_suffix(".tmp")
        with open(draft, "w") as file:
            file.write(self._state(ended=ended))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._file)
        self._save_seconds = time.monotonic() - began

    async def save_forever(self) -> None:
        """Save changed tables repeatedly until cancelled."""
        while True:
            await asyncio.sleep(max(SAVE_SECONDS, SAVE_SHARE * self._save_seconds))
            if self._changed:
                try:
                    self.save()
                except OSError as problem:
                    print(f"error: the data cannot be written: {problem.strerror}", flush=True)
                    self._changed = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection of ASGI: a request, or the lifespan."""
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request" or len(body) > MAX_REQUEST_BYTES:
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, headers, answer = await self._answer(dict(scope["headers"]), body)
        answer = answer if isinstance(answer, bytes) else answer.encode()
        fields = [(name.lower().encode(), str(value).encode()) for name, value in headers.items()]
        fields = [field for field in fields if field[0] != b"content-length"]
        fields.append((b"server", b"MiniStack"))
        fields.append((b"content-length", str(len(answer)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, headers: dict[bytes, bytes], body: bytes) -> tuple[int, dict[str, Any], Any]:
        service, _, operation = headers.get(b"x-amz-target", b"").decode("latin-1").partition(".")
        if not operation:
            return 200, {"Content-Type": "text/plain"}, b"MiniStack"
        set_request_account_id(None)
        set_request_region(_region(headers))
        writes = not operation.startswith(READS)
        self._changed |= writes
        module = dynamodb_streams if service.startswith("DynamoDBStreams") else dynamodb
        sent = {"x-amz-target": f"{service}.{operation}"}
        found: tuple[int, dict[str, Any], Any] = await module.handle_request("POST", "/", sent, body, {})
        if writes:
            self._streams.trim()
        return found


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(), object_hook=persistence._json_object_hook)
    except ValueError:
        sys.exit(f"error: {file} holds no tables of MiniStack: restore it, or delete it.")


def _region(headers: dict[bytes, bytes]) -> str | None:
    """Return the region that a request is signed for."""
    parts = headers.get(b"authorization", b"").partition(b"Credential=")[2].split(b"/")
    return parts[2].decode("latin-1") if len(parts) > 4 else None


def _listener(address: str) -> socket.socket:
    """Return a listening socket, so that clients can connect as soon as the address is printed."""
    if address.isdecimal():
        return socket.create_server(("127.0.0.1", int(address)))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


async def _main(address: str, file: Path | None) -> None:
    engine, ended = MiniStackEngine(file), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    config = Config()
    listener = _listener(address)
    config.bind = [f"fd://{listener.fileno()}"]
    config.keep_alive_timeout, config.graceful_timeout, config.loglevel = 3600, 1.0, "ERROR"
    config.include_server_header = False
    print(f"listening on {address}", flush=True)
    saving = asyncio.create_task(engine.save_forever())
    try:
        await serve(engine, config, shutdown_trigger=ended.wait)
    finally:
        saving.cancel()
        with suppress(asyncio.CancelledError):
            await saving
        engine.save(ended=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None))
