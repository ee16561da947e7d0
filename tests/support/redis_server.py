"""A Redis server of its own, which can be stopped, paused, and started again empty."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from tests.support.ports import free_port


class RedisServer:
    """A Redis server without persistence: its data ends with its process."""

    def __init__(self) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            reason = "redis-server is needed."
            if os.environ.get("REQUIRE_REDIS"):
                pytest.fail(reason)
            pytest.skip(reason)
        self._binary = binary
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client: Any = Redis.from_url(self.url, decode_responses=True)
        self.start()

    def start(self) -> None:
        self._spawn(["--port", str(self.port)])

    def _spawn(self, options: list[str]) -> None:
        command = [self._binary, *options, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        pytest.fail("Redis does not start.")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def copy(self) -> dict[Any, tuple[int, bytes]]:
        """Return the current data, as a replica has it that lags behind later."""
        with Redis.from_url(self.url) as raw:
            return {key: (max(1, raw.pttl(key)), raw.dump(key)) for key in raw.scan_iter()}

    def go_back(self, copy: dict[Any, tuple[int, bytes]]) -> None:
        """Replace all data by the copy."""
        with Redis.from_url(self.url) as raw, raw.pipeline(transaction=True) as swap:
            swap.flushall()
            for key, (milliseconds, value) in copy.items():
                swap.restore(key, milliseconds, value)
            swap.execute()

    def close(self) -> None:
        self.client.close()
        self.go_on()
        self.kill()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()
