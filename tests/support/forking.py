"""Scripts in processes forked from one that has imported their modules: importing them takes a second."""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.request_rules import RequestWatch

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["gateway", *(f"tests.support.{name}" for name in ("forking", "cricket_process", "feed_process", "service_model"))]
)


class Forked:
    """A process that runs a script with these arguments and exactly this environment, with the methods of `Popen`."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        stdout: Path | None = None,
        stderr: Path | None = None,
    ) -> None:
        streams = {number: path for number, path in ((1, stdout), (2, stderr)) if path}
        given = (script, list(arguments), dict(environment or {}), streams)
        self._process = CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutError(f"The process did not end within {timeout} s.")
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(script: str, arguments: list[str], environment: dict[str, str], streams: dict[int, Path]) -> None:
    for descriptor, path in streams.items():
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    RequestWatch(refuses=True).start()
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
