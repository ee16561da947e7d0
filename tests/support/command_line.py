"""Commands in processes of their own, and gateways that `serve` started."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from typer.testing import CliRunner

from gateway import cli
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

STRONG = "{ earthquakes(minMagnitude: 4.5, first: 100) { nodes { eventId magnitude } } }"
ONE = '{ earthquake(id: "%s") { eventId magnitude place } }'
WATCHES = '{ watches(userId: "demo") { area category } }'
COMMANDS: list[list[str]] = [
    [],
    ["serve"],
    ["seed"],
    ["ingest"],
    ["ingest", "earthquakes"],
    ["documents"],
    ["documents", "check"],
    ["documents", "put"],
    ["documents", "list"],
    ["documents", "delete"],
    ["documents", "extract"],
    ["tables"],
    ["tables", "create"],
    ["tables", "describe"],
    ["tables", "export"],
    ["token"],
    ["schema"],
    ["doctor"],
    ["pipeline"],
    ["pipeline", "feed"],
    ["pipeline", "earthquakes"],
    ["pipeline", "search"],
    ["search"],
    ["search", "rebuild"],
    ["search", "status"],
    ["statistics"],
    ["statistics", "rebuild"],
    ["photos"],
    ["photos", "strip"],
    ["dlq"],
    ["dlq", "list"],
    ["dlq", "replay"],
]


def surroundings(**given: str) -> dict[str, str]:
    """Return the environment without the variables that configure the gateway."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "AWS_"))}
    return kept | {"COLUMNS": "250", "NO_COLOR": "1", "AWS_EC2_METADATA_DISABLED": "true"} | given


def run_command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a process of its own."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = Forked("gateway.py", [*map(str, arguments)], surroundings(**environment), stdout=out, stderr=err)
        try:
            status = process.wait(40)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())


def run_anew(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new interpreter, as a user does."""
    return subprocess.run(
        [sys.executable, "gateway.py", *map(str, arguments)],
        cwd=ROOT,
        env=surroundings(**environment),
        capture_output=True,
        text=True,
        timeout=40,
    )


def run_here(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, for commands that only check their options: starting a process takes a second."""
    unset = dict.fromkeys(os.environ.keys() - surroundings().keys(), None)
    done = CliRunner().invoke(
        cli, [str(argument) for argument in arguments], env=unset | surroundings(**environment), prog_name="gateway.py"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def assert_command_failed(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    """Check the exit status and the message on stderr, and that stdout is empty."""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == status
    assert done.stdout == ""


def refused_in_a_line(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    assert_command_failed(done, status, words)
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")


class GatewayProcess:
    """A gateway that `serve` runs in a process of its own."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], url: str, folder: Path) -> None:
        self.process = process
        self.url = url
        self.folder = folder

    @property
    def output(self) -> str:
        return self.folder.with_suffix(".log").read_text()

    def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        """Return the status, the content type and the body."""
        return _fetch(Request(self.url + path, headers={"Accept": accept}))

    def ask(self, query: str, token: str | None = None, variables: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        body = json.dumps({"query": query, "variables": variables}).encode()
        answer: dict[str, Any] = json.loads(_fetch(Request(self.url + "/graphql", body, headers))[2])
        return answer

    def data(self, query: str, token: str | None = None, variables: dict[str, Any] | None = None) -> Any:
        answer = self.ask(query, token, variables)
        assert "errors" not in answer, answer
        return answer["data"]

    def token(self, name: str = "Demo user") -> str:
        """Return a demo token that the gateway printed at its start."""
        return next(line.split()[-1] for line in self.output.splitlines() if line.startswith(f"{name} token"))

    def stop(self, number: int) -> float:
        """Send a signal. Return how many seconds the process took to end."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(25)
        return time.monotonic() - began


def _fetch(request: Request) -> tuple[int, str, str]:
    try:
        with urlopen(request, timeout=20) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except HTTPError as problem:
        with problem:
            return problem.code, problem.headers["Content-Type"], problem.read().decode()


def serve_process(
    folder: Path, *arguments: str, script: str = "gateway.py", **environment: str
) -> AbstractContextManager[GatewayProcess]:
    """Run `serve` of the script with its data in this folder while the context is open."""

    def start(surrounded: dict[str, str], log: Path) -> Forked:
        return Forked(script, ["serve", *arguments], surrounded, stdout=Path(os.devnull), stderr=log)

    return _serving(start, folder, environment)


def serving_anew(
    folder: Path, *arguments: str, root: Path = ROOT, **environment: str
) -> AbstractContextManager[GatewayProcess]:
    """Run `serve` in a new interpreter, as a user does. `root` is the folder of the project."""

    def start(surrounded: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "gateway.py", "serve", *arguments]
        with log.open("wb") as file:
            return subprocess.Popen(command, cwd=root, env=surrounded, stdout=subprocess.DEVNULL, stderr=file)

    return _serving(start, folder, environment)


@contextmanager
def _serving(
    start: Callable[[dict[str, str], Path], Forked | subprocess.Popen[bytes]],
    folder: Path,
    environment: dict[str, str],
) -> Iterator[GatewayProcess]:
    port, log = free_port(), folder.with_suffix(".log")
    log.write_bytes(b"")
    given = {"GATEWAY_PORT": str(port), "GATEWAY_DATA_DIR": str(folder)} | environment
    process = start(surroundings(**given), log)
    try:
        gateway = GatewayProcess(process, f"http://127.0.0.1:{port}", folder)
        until_blocking(lambda: "Stop with" in gateway.output or process.poll() is not None, 50)
        assert process.poll() is None, gateway.output
        yield gateway
    finally:
        process.kill()
        process.wait()


def feed_file(path: Path, *ids: str) -> Path:
    """Write a feed with these events and one without a magnitude."""
    events = [_event(name, 5.5) for name in ids] + [_event("unmeasured", None)]
    path.write_text(json.dumps({"type": "FeatureCollection", "metadata": {}, "features": events}))
    return path


def _event(name: str, magnitude: float | None) -> dict[str, Any]:
    properties = {"mag": magnitude, "place": "Near the test", "time": 1_760_000_000_000, "updated": 1_760_000_000_000}
    return {
        "type": "Feature",
        "id": name,
        "properties": properties | {"type": "earthquake", "net": "us"},
        "geometry": {"type": "Point", "coordinates": [12.5, 41.9, 10.0]},
    }
