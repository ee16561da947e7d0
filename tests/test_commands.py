"""The command line as its users meet it: real processes, a real engine, real signals."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from conftest import ROOT, SECRET, Clock, Served, free_port
from graphql import build_schema
from typer.testing import CliRunner
from websockets.sync.client import connect

from datastore.database import StoreOptions
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.sightings import BLIP
from datastore.pages import Span
from datastore.reporters import Reporters
from datastore.sightings import Sightings
from edge.settings import Misconfigured, Settings, from_environment, local_secret
from gateway import cli, create_app
from pipelines.demo import EARTHQUAKE_EVERY, SIGHTING_EVERY, YOUNGEST, Demo

STRONG = "{ earthquakes(minMagnitude: 4.5, first: 100) { nodes { eventId magnitude } } }"
ONE = '{ earthquake(eventId: "%s") { eventId magnitude place } }'
WATCHES = '{ watches(userId: "demo") { area category } }'
COMMANDS: list[list[str]] = [
    [],
    ["serve"],
    ["seed"],
    ["ingest"],
    ["ingest", "earthquakes"],
    ["tables"],
    ["tables", "create"],
    ["tables", "describe"],
    ["tables", "export"],
    ["token"],
    ["schema"],
]


def surroundings(**given: str) -> dict[str, str]:
    """The environment without anything that sets the gateway up."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "AWS_"))}
    return kept | {"COLUMNS": "250", "NO_COLOR": "1", "AWS_EC2_METADATA_DISABLED": "true"} | given


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(
        [sys.executable, "gateway.py", *map(str, arguments)],
        cwd=ROOT,
        env=surroundings(**environment),
        capture_output=True,
        text=True,
        timeout=40,
    )


def run_here(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that does no work of its own, without the second a process takes to start."""
    unset = dict.fromkeys(os.environ.keys() - surroundings().keys(), None)
    done = CliRunner().invoke(
        cli, [str(argument) for argument in arguments], env=unset | surroundings(**environment), prog_name="gateway.py"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def refused(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    """It ended with this status and said why, and nothing on stdout."""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == status
    assert done.stdout == ""


def refused_in_a_line(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    refused(done, status, words)
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")


class Process:
    """A gateway that serves in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def told(self) -> str:
        return self._log.read_text()

    def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        """Status, content type and body."""
        return _fetch(Request(self.url + path, headers={"Accept": accept}))

    def ask(self, query: str, token: str | None = None, variables: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        body = json.dumps({"query": query, "variables": variables}).encode()
        answer: dict[str, Any] = json.loads(_fetch(Request(self.url + "/graphql", body, headers))[2])
        return answer

    def data(self, query: str, token: str | None = None) -> Any:
        answer = self.ask(query, token)
        assert "errors" not in answer, answer
        return answer["data"]

    def token(self, name: str = "Demo user") -> str:
        """A token as it was told at the start."""
        return next(line.split()[-1] for line in self.told.splitlines() if line.startswith(f"{name} token"))

    def stop(self, number: int) -> float:
        """How long the process took to end."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(20)
        return time.monotonic() - began


def _fetch(request: Request) -> tuple[int, str, str]:
    try:
        with urlopen(request, timeout=20) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except HTTPError as problem:
        with problem:
            return problem.code, problem.headers["Content-Type"], problem.read().decode()


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[Process]:
    """`serve` with its data in this folder, until it is left."""
    port = free_port()
    given = {"GATEWAY_PORT": str(port), "GATEWAY_DATA_DIR": str(folder)} | environment
    log = folder.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "gateway.py", "serve", *arguments],
            cwd=ROOT,
            env=surroundings(**given),
            stdout=subprocess.PIPE,
            stderr=file,
        )
    with process:
        try:
            gateway = Process(process, f"http://127.0.0.1:{port}", log)
            _until(lambda: "Stop with" in gateway.told or process.poll() is not None, 30)
            assert process.poll() is None, gateway.told
            yield gateway
        finally:
            process.kill()


def _until(holds: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "It takes too long."
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands") / "data"


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Process]:
    """One that all tests share which do not stop it."""
    with serving(folder) as gateway:
        yield gateway


def feed(path: Path, *ids: str) -> Path:
    """A feed with these events, and one without a magnitude."""
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


# Serving


def test_serve_tells_on_stderr_where_to_go_and_with_which_tokens(gateway: Process, folder: Path) -> None:
    assert f"{gateway.url}/graphql" in gateway.told
    assert f"data in {folder}" in gateway.told
    me = "{ me { userId role } }"
    assert [gateway.data(me, gateway.token(name))["me"] for name in ("Demo user", "Admin", "System")] == [
        {"userId": "demo", "role": "USER"},
        {"userId": "admin", "role": "ADMIN"},
        {"userId": "system", "role": "SYSTEM"},
    ]


def test_a_browser_gets_the_page_and_a_program_an_answer_at_the_same_address(gateway: Process) -> None:
    status, kind, page = gateway.get("/", accept="text/html,*/*;q=0.8")
    assert (status, kind.partition(";")[0]) == (200, "text/html")
    assert "<title>" in page
    assert gateway.get("/graphql?query={areas}")[0] == 200
    assert gateway.data("{ areas }")["areas"]


def test_health_and_readiness_are_told(gateway: Process) -> None:
    assert json.loads(gateway.get("/healthz")[2]) == {"alive": True}
    assert gateway.get("/readyz")[0] == 200


@pytest.mark.parametrize("path", ["/nowhere", "/graphiql/assets/none.js", "/graphiql/assets/../../gateway.py"])
def test_what_is_not_there_is_a_plain_404(gateway: Process, path: str) -> None:
    status, kind, body = gateway.get(path, accept="text/html")
    assert (status, kind.partition(";")[0], body) == (404, "text/plain", "Not Found")
    assert "Traceback" not in gateway.told


def test_the_demo_has_earthquakes_of_the_last_days_and_active_sightings(gateway: Process) -> None:
    data = gateway.data("{ earthquakes(last: 1) { nodes { occurredAt } } trending(windowHours: 1) { score } }")
    assert data["earthquakes"]["nodes"]
    assert sum(category["score"] for category in data["trending"]) >= 8
    assert len(gateway.data(STRONG)["earthquakes"]["nodes"]) > 3


def test_a_taken_port_is_told_in_one_line(gateway: Process, tmp_path: Path) -> None:
    port = gateway.url.rpartition(":")[2]
    done = run("serve", "--port", port, "--data-dir", tmp_path)
    refused(done, 1, f"Error: cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_another_service_listens_on_is_told_in_one_line(tmp_path: Path) -> None:
    with closing(socket.create_server(("0.0.0.0", 0))) as other:
        port = str(other.getsockname()[1])
        refused(run("serve", "--port", port, "--data-dir", tmp_path), 1, f"cannot listen on 127.0.0.1:{port}")


def test_an_address_that_is_not_ours_is_told_in_one_line(tmp_path: Path) -> None:
    refused(run("serve", "--host", "192.0.2.1", "--data-dir", tmp_path), 1, "cannot listen on 192.0.2.1:8000")


def test_a_restart_keeps_what_was_written_and_every_stop_is_quick_and_clean(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serving(folder) as gateway:
        token = gateway.token()
        report = '{ area: "Harbor", category: "Cats", description: "A cat that stays" }'
        reported = gateway.data(f"mutation {{ reportSighting(input: {report}) {{ sightingId }} }}", token)
        gateway.data('mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId } }', token)
        engine = json.loads((folder / "engine.json").read_text())["pid"]
        with _subscription(gateway):
            assert gateway.stop(signal.SIGTERM) < 5
        assert gateway.process.returncode == 0
        _until(lambda: not _runs(engine), 2)
        assert "Traceback" not in gateway.told

    with serving(folder) as gateway:
        assert _cpu_seconds(gateway.process.pid) < 5
        assert gateway.data(WATCHES, token)["watches"] == [{"area": "Harbor", "category": "Cats"}]
        there = gateway.data('{ sightings(area: "Harbor") { nodes { sightingId } } }')["sightings"]["nodes"]
        assert reported["reportSighting"] in there
        assert gateway.stop(signal.SIGINT) < 5
        assert gateway.process.returncode == 0
        assert "Traceback" not in gateway.told


@contextmanager
def _subscription(gateway: Process) -> Iterator[None]:
    """Somebody follows the sightings, and has seen one."""
    with connect(gateway.url.replace("http", "ws") + "/graphql", subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
        socket.send('{"type": "connection_init"}')
        assert json.loads(socket.recv(5))["type"] == "connection_ack"
        query = "subscription { sightingReported { sightingId } }"
        socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": {"query": query}}))
        time.sleep(0.3)
        yield
        for _ in socket:
            pass
        assert (socket.close_code, socket.close_reason) == (1001, "The server is shutting down")


def _cpu_seconds(pid: int) -> float:
    """What a process has cost so far, which does not grow with what else the machine does."""
    said = subprocess.run(["ps", "-o", "cputimes=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return float(said.stdout)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="finds the engine in /proc")
@pytest.mark.parametrize("flags", [(), ("--memory",)], ids=["in a file", "in memory"])
def test_a_killed_engine_costs_a_moment_and_no_wrong_answer(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serving(tmp_path / "data", *flags) as gateway:
        before = gateway.data(STRONG)
        for child in Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

        answers = list(_answers(gateway, 2.0))

        wrong = [answer for answer in answers if "errors" in answer and not _is_retryable(answer)]
        assert wrong == []
        ids = {event["eventId"] for event in before["earthquakes"]["nodes"]}
        assert ids <= {event["eventId"] for event in answers[-1]["data"]["earthquakes"]["nodes"]}
        assert "The embedded engine is gone" in gateway.told


def _answers(gateway: Process, seconds: float) -> Iterator[dict[str, Any]]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield gateway.ask(STRONG)
    yield gateway.ask(STRONG)


def _is_retryable(answer: dict[str, Any]) -> bool:
    return all(error["extensions"] == {"code": "UNAVAILABLE", "retryable": True} for error in answer["errors"])


def test_serve_starts_without_its_store_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--store", f"http://127.0.0.1:{free_port()}") as gateway:
        _until(lambda: "Warning: the store cannot be reached." in gateway.told, 5)
        assert gateway.get("/healthz")[0] == 200
        status, _, body = gateway.get("/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "store": "unreachable"})
        began = time.monotonic()
        assert _is_retryable(gateway.ask(STRONG))
        assert time.monotonic() - began < 6


def test_a_demo_on_aws_offers_no_tokens(tmp_path: Path) -> None:
    environment = {
        "GATEWAY_SECRET": SECRET,
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
    }
    with serving(tmp_path / "data", "--store", "aws", "--demo", **environment) as gateway:
        assert " token  " not in gateway.told
        assert "Demo tokens are not offered" in gateway.told
        assert json.loads(gateway.get("/graphiql/config.json")[2])["tokens"] == []


def test_missing_tables_are_told_and_created(engine: str, tmp_path: Path) -> None:
    store = ("--store", engine, "--prefix", f"made{free_port()}__")
    with serving(tmp_path / "data", *store) as gateway:
        _until(lambda: "Warning: the store lacks the tables" in gateway.told, 5)
        assert json.loads(gateway.get("/readyz")[2])["store"] == "tables missing"
        assert run("tables", "create", *store).stdout.startswith("Created: made")
        assert gateway.get("/readyz")[0] == 200
        assert run("seed", *store).stdout.endswith("and 8 sightings stored\n")
        assert gateway.data(STRONG)["earthquakes"]["nodes"]


# In a server of one's own


@contextmanager
def uvicorn_serving(folder: Path, *arguments: str, **environment: str) -> Iterator[Process]:
    """`uvicorn --factory` with its data in this folder, until it is left."""
    port = free_port()
    log = folder.with_suffix(".log")
    command = [sys.executable, "-m", "uvicorn", "--factory", "gateway:create_app", "--port", str(port), *arguments]
    given = {"GATEWAY_DATA_DIR": str(folder)} | environment
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=surroundings(**given), stdout=file, stderr=file)
    with process:
        try:
            gateway = Process(process, f"http://127.0.0.1:{port}", log)
            _until(lambda: "Uvicorn running" in gateway.told or process.poll() is not None, 30)
            yield gateway
        finally:
            process.kill()


def test_another_server_gets_its_app_from_the_environment_as_serve_does(tmp_path: Path) -> None:
    with uvicorn_serving(tmp_path / "data", GATEWAY_AREAS="North, South") as gateway:
        assert gateway.data("{ areas }")["areas"] == ["North", "South"]
        assert len(gateway.data(STRONG)["earthquakes"]["nodes"]) > 3
        assert (tmp_path / "data" / "engine.sqlite").exists()
        assert gateway.stop(signal.SIGTERM) < 5
        assert "Traceback" not in gateway.told


def test_another_server_takes_a_store_without_the_demo_and_our_sockets(engine: str, tmp_path: Path) -> None:
    store = {"GATEWAY_STORE": engine, "GATEWAY_TABLE_PREFIX": f"own{free_port()}__", "GATEWAY_DEMO": "0"}
    run("tables", "create", **store)
    flags = ["--ws", "edge.socket_protocol:SocketProtocol", "--ws-per-message-deflate", "false"]
    with uvicorn_serving(tmp_path / "data", *flags, **store) as gateway:
        assert gateway.data(STRONG)["earthquakes"]["nodes"] == []
        assert json.loads(gateway.get("/graphiql/config.json")[2])["tokens"] == []
        with connect(gateway.url.replace("http", "ws") + "/graphql", subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
            socket.send('{"type": "connection_init"}')
            assert json.loads(socket.recv(5))["type"] == "connection_ack"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"GATEWAY_STORE": "somewhere"},
            "--store: must be embedded, aws, or an http(s) URL. See gateway.py serve --help.",
        ),
        ({"GATEWAY_PORT": "many"}, "(env var: 'GATEWAY_PORT')"),
        ({"GATEWAY_INGEST": "all_year"}, "There is no feed 'all_year'"),
        ({"GATEWAY_SECRET": "short"}, "Error: GATEWAY_SECRET must have at least 32 characters."),
        ({"GATEWAY_STORE": "aws"}, "Error: Set GATEWAY_SECRET"),
    ],
    ids=str,
)
def test_an_app_that_is_set_up_wrong_ends_its_server_with_one_line(
    environment: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - surroundings().keys():
            patch.delenv(name)
        for name, value in surroundings(GATEWAY_DATA_DIR=str(tmp_path), **environment).items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            create_app()
    told = capsys.readouterr()
    refused_in_a_line(subprocess.CompletedProcess((), int(str(ended.value)), told.out, told.err), 2, words)


def test_what_an_app_is_given_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_STORE", "nonsense")
    create_app(Settings(secret=SECRET), StoreOptions())
    monkeypatch.delenv("GATEWAY_SECRET", raising=False)
    with pytest.raises(SystemExit):
        create_app(store=StoreOptions("aws"))


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--prot", "1"], "No such option: --prot (Possible options: --host, --port). See gateway.py serve"),
        (["serve", "--port", "99999"], "Invalid value for '--port'"),
        (["serve", "--port"], "Option '--port' requires an argument."),
        (["serve", "extra"], "Got unexpected extra argument(s) (extra). See gateway.py serve --help."),
        (["serve", "--store", "somewhere"], "must be embedded, aws, or an http(s) URL"),
        (["serve", "--store", "aws", "--memory"], "Invalid value for --memory"),
        (["serve", "--ingest", "all_year"], "There is no feed 'all_year'"),
        (["serv"], "No such command 'serv'. Did you mean 'serve'? See gateway.py --help."),
        (["--nope"], "No such option: --nope. See gateway.py --help."),
        (["ingest", "earthquakes"], "Missing argument 'source'. See gateway.py ingest earthquakes --help."),
        (["token", "--role", "king"], "'king' is not one of 'user', 'admin', 'system'. See gateway.py token --help."),
        (["token", "--hours", "many"], "Invalid value for '--hours'"),
        (["tables", "export", "--format", "yaml"], "'yaml' is not one of 'cloudformation', 'terraform'."),
    ],
)
def test_a_wrong_call_is_told_in_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    refused_in_a_line(run_here(*arguments, GATEWAY_DATA_DIR=str(tmp_path)), 2, words)


def test_a_wrong_call_is_told_in_one_line_by_a_process_too() -> None:
    refused_in_a_line(run("serve", "--prot", "1", COLUMNS="40"), 2, "--port). See gateway.py serve --help.")


@pytest.mark.parametrize("group", [[], ["tables"], ["ingest"]], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(group: list[str]) -> None:
    done = run_here(*group)
    assert (done.returncode, done.stderr) == (2, "")
    assert "Usage: gateway.py" in done.stdout


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GATEWAY_PORT": "99999"}, "(env var: 'GATEWAY_PORT')"),
        ({"GATEWAY_DEMO": "perhaps"}, "(env var: 'GATEWAY_DEMO')"),
        ({"GATEWAY_DEADLINE_SECONDS": "abc"}, "Error: GATEWAY_DEADLINE_SECONDS must be a number"),
        ({"GATEWAY_SECRET": "short"}, "Error: GATEWAY_SECRET must have at least 32 characters."),
    ],
)
def test_a_wrong_value_in_the_environment_is_told(environment: dict[str, str], words: str, tmp_path: Path) -> None:
    refused_in_a_line(run_here("serve", "--data-dir", tmp_path, **environment), 2, words)


@pytest.mark.parametrize(
    ("environment", "status", "words"),
    [
        ({"AWS_REGION": "eu-west-1"}, 2, "Error: Set GATEWAY_SECRET"),
        ({"GATEWAY_SECRET": SECRET}, 1, "Error: No AWS region: set --region or AWS_REGION."),
        ({"GATEWAY_SECRET": SECRET, "AWS_REGION": "eu-west-1"}, 1, "Error: No AWS credentials were found"),
    ],
    ids=["secret", "region", "credentials"],
)
def test_what_aws_needs_is_told(environment: dict[str, str], status: int, words: str, tmp_path: Path) -> None:
    away = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"), "AWS_CONFIG_FILE": str(tmp_path / "none")}
    done = run("serve", "--store", "aws", "--port", str(free_port()), **environment, **away)
    refused_in_a_line(done, status, words)


def test_a_data_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for command in ("serve", "token"):
        refused(run_here(command, "--data-dir", file), 2, f"Error: The data folder {file} cannot be used: File exists.")
    refused(run("tables", "describe", "--data-dir", file), 1, "data folder cannot be used")


def test_a_damaged_database_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "engine.sqlite").write_bytes(b"this is no database" * 100)
    done = run("serve", "--data-dir", tmp_path, "--port", str(free_port()))
    refused(done, 1, f"The embedded engine did not start on {tmp_path / 'engine.sqlite'}: Database file is")
    assert len(done.stderr.splitlines()) == 1


def test_a_store_that_cannot_be_reached_ends_a_command_with_one_line() -> None:
    nowhere = ("--store", f"http://127.0.0.1:{free_port()}")
    refused(run("seed", *nowhere), 1, "Error: The store cannot be reached at the moment")
    ingest = run("ingest", "earthquakes", "pipelines/demo_data/earthquakes.geojson", *nowhere)
    refused(ingest, 1, "Error: the feed was not ingested to its end: UNAVAILABLE")


# Beside a gateway that serves


def test_an_ingest_beside_a_running_gateway_shows_there(gateway: Process, folder: Path, tmp_path: Path) -> None:
    file = feed(tmp_path / "feed.geojson", "beside1", "beside2")
    done = run("ingest", "earthquakes", file, "--data-dir", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == ["fetched   3", "upserted  2", "skipped   0", "rejected  1"]
    assert gateway.data(ONE % "beside1")["earthquake"]["place"] == "Near the test"
    again = run("ingest", "earthquakes", file, "--data-dir", folder)
    assert "skipped   2 (the feed has not changed)" in again.stdout


def test_every_command_takes_the_store_options() -> None:
    options = ["--store", "--data-dir", "--memory", "--prefix", "--region"]
    for command in COMMANDS:
        if command not in ([], ["ingest"], ["tables"]):
            told = run_here(*command, "--help").stdout
            assert [option for option in options if option not in told] == [], command


def test_commands_work_beside_a_gateway_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    file = feed(tmp_path / "feed.geojson", "shared")
    with serving(folder, "--memory") as gateway:
        assert run("ingest", "earthquakes", file, "--memory", "--data-dir", folder).returncode == 0
        assert gateway.data(ONE % "shared")["earthquake"]["eventId"] == "shared"
        described = json.loads(run("tables", "describe", "--memory", "--data-dir", folder).stdout)
        assert {table["TableStatus"] for table in described} == {"ACTIVE"}
    assert not (folder / "engine.sqlite").exists()


def test_seed_and_tables_work_beside_a_running_gateway(gateway: Process, folder: Path) -> None:
    assert run("seed", "--data-dir", folder).stdout == "0 earthquakes and 0 sightings stored\n"
    assert run("tables", "create", "--data-dir", folder).stdout == "All tables exist.\n"
    described = json.loads(run("tables", "describe", "--data-dir", folder).stdout)
    assert {table["TableStatus"] for table in described} == {"ACTIVE"}
    assert gateway.get("/readyz")[0] == 200


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")
def test_creating_tables_shows_on_a_terminal_that_it_goes_on(engine: str) -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = surroundings(GATEWAY_STORE=engine, GATEWAY_TABLE_PREFIX=f"shown{free_port()}__", TERM="xterm")
    command = [sys.executable, "gateway.py", "tables", "create"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b"".join(_read_terminal(ours))
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"Created: shown")
    assert "Creating the tables…" in shown.decode()


def _read_terminal(descriptor: int) -> Iterator[bytes]:
    """What is written to it until its other side is closed, which Linux tells by an error."""
    with open(descriptor, "rb", buffering=0) as terminal, suppress(OSError):
        while piece := terminal.read(4096):
            yield piece


def test_creating_tables_shows_nothing_but_the_result_elsewhere(engine: str) -> None:
    done = run("tables", "create", "--store", engine, "--prefix", f"quiet{free_port()}__")
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)


def test_a_printed_token_is_accepted_with_its_role(gateway: Process, folder: Path) -> None:
    logs = "{ requestLogs(first: 1) { nodes { route } } }"
    admin = run("token", "--role", "admin", "--user", "x", "--data-dir", folder).stdout
    assert len(admin.splitlines()) == 1
    assert gateway.data("{ me { userId role } }", admin.strip())["me"] == {"userId": "x", "role": "ADMIN"}
    gateway.data(logs, admin.strip())
    user = run("token", "--user", "x", "--data-dir", folder).stdout.strip()
    assert gateway.ask(logs, user)["errors"][0]["extensions"]["code"] == "FORBIDDEN"


# Alone


def test_an_ingest_works_without_a_gateway_and_a_later_one_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    file = feed(tmp_path / "feed.geojson", "alone1")
    assert run("ingest", "earthquakes", file, "--data-dir", folder).stdout.startswith("fetched   2\nupserted  1\n")
    with serving(folder, "--no-demo") as gateway:
        assert gateway.data(ONE % "alone1")["earthquake"]["magnitude"] == 5.5
        assert gateway.data(ONE % "demo0001")["earthquake"] is None
        assert "token" not in gateway.told


@pytest.mark.parametrize(
    ("source", "words"),
    [("none.geojson", "There is no file 'none.geojson'."), ("all_year", "There is no feed 'all_year'.")],
)
def test_a_feed_that_is_not_there_is_told(source: str, words: str) -> None:
    refused(run("ingest", "earthquakes", source, "--memory"), 1, words)


def test_a_token_that_nobody_would_accept_is_not_printed(tmp_path: Path) -> None:
    keys = {"GATEWAY_JWKS_URL": "https://keys.example.com/jwks"}
    refused(run_here("token", "--data-dir", tmp_path, **keys), 2, "Error: GATEWAY_JWKS_URL is set")


def test_the_schema_is_printed_as_it_is_served() -> None:
    assert "earthquakes" in build_schema(run_here("schema").stdout).query_type.fields  # type: ignore[union-attr]


def test_the_tables_are_exported_for_cloudformation_and_terraform() -> None:
    template = json.loads(run_here("tables", "export", "--prefix", "x-").stdout)
    names = {resource["Properties"]["TableName"] for resource in template["Resources"].values()}
    assert "x-earthquake-events" in names
    hcl = run_here("tables", "export", "--format", "terraform", "--prefix", "x-").stdout
    assert hcl.count("{") == hcl.count("}") > len(names)
    assert {f'"{name}"' in hcl for name in names} == {True}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = run_here(*command, "--help")
    assert done.returncode == 0
    assert "Usage: gateway.py" in done.stdout
    options = [line for line in done.stdout.splitlines() if line.startswith("│ --")]
    assert options
    assert [line for line in options if len(line.strip("│ ").split("  ")) < 2] == []


# Settings


def test_every_option_of_serve_can_come_from_the_environment(engine: str, tmp_path: Path) -> None:
    environment = {
        "GATEWAY_HOST": "localhost",
        "GATEWAY_STORE": engine,
        "GATEWAY_TABLE_PREFIX": f"set{free_port()}__",
        "GATEWAY_SECRET": SECRET,
        "GATEWAY_ROLE_CLAIM": "group",
        "GATEWAY_AREAS": "North, South",
        "GATEWAY_DEMO": "1",
    }
    assert run("tables", "create", **environment).stdout.startswith(f"Created: {environment['GATEWAY_TABLE_PREFIX']}")
    with serving(tmp_path / "data", **environment) as gateway:
        assert f"Store                 {engine}" in gateway.told
        assert gateway.data('{ areas sightings(area: "North") { nodes { area } } }')["areas"] == ["North", "South"]
        token = run("token", "--role", "system", **environment).stdout.strip()
        assert gateway.data("{ me { role } }", token) == {"me": {"role": "SYSTEM"}}
        assert not (tmp_path / "data").exists()


def test_settings_are_read_from_the_environment() -> None:
    environment = {
        "GATEWAY_SECRET": SECRET,
        "GATEWAY_JWKS_URL": "https://keys.example.com/jwks",
        "GATEWAY_JWT_ISSUER": "https://issuer.example.com",
        "GATEWAY_JWT_AUDIENCE": "clients",
        "GATEWAY_ROLE_CLAIM": "group",
        "GATEWAY_INGEST": "all_hour",
        "GATEWAY_AREAS": "North, South,, North",
        "GATEWAY_CATEGORIES": "Cats",
        "GATEWAY_INGEST_HOSTS": "feeds.example.com",
        "GATEWAY_ALLOWED_ORIGINS": "https://app.example.com,http://localhost:3000",
        "GATEWAY_DEADLINE_SECONDS": "2.5",
        "GATEWAY_POLL_INTERVAL_SECONDS": "0.5",
    }
    assert Settings(**from_environment(environment)) == Settings(
        secret=SECRET,
        jwks_url="https://keys.example.com/jwks",
        issuer="https://issuer.example.com",
        audience="clients",
        role_claim="group",
        ingest="all_hour",
        areas=("North", "South"),
        categories=("Cats",),
        ingest_hosts=("feeds.example.com",),
        allowed_origins=("https://app.example.com", "http://localhost:3000"),
        deadline_seconds=2.5,
        poll_interval=0.5,
    )


def test_what_is_given_counts_more_than_the_environment() -> None:
    assert from_environment({"GATEWAY_INGEST": "all_hour"}, ingest="all_day", port=None) == {"ingest": "all_day"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GATEWAY_SECRET", "x" * 31),
        ("GATEWAY_JWKS_URL", "keys.example.com"),
        ("GATEWAY_AREAS", " , "),
        ("GATEWAY_ALLOWED_ORIGINS", "app.example.com"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://app.example.com/path"),
        ("GATEWAY_DEADLINE_SECONDS", "0"),
        ("GATEWAY_DEADLINE_SECONDS", "nan"),
        ("GATEWAY_DEADLINE_SECONDS", "inf"),
        ("GATEWAY_POLL_INTERVAL_SECONDS", "-1"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=name):
        from_environment({name: value})


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "GATEWAY_JWT_ISSUER and GATEWAY_JWT_AUDIENCE"),
        ({"GATEWAY_JWT_ISSUER": "https://issuer.example.com"}, "GATEWAY_JWT_AUDIENCE"),
        ({"GATEWAY_JWT_AUDIENCE": "clients"}, "GATEWAY_JWT_ISSUER"),
    ],
)
def test_a_key_set_without_its_issuer_and_audience_is_refused(
    given: dict[str, str], missing: str, tmp_path: Path
) -> None:
    keys = {"GATEWAY_JWKS_URL": "https://keys.example.com/jwks"}
    done = run_here("serve", "--data-dir", tmp_path, **keys, **given)
    refused_in_a_line(done, 2, f"Error: Set {missing} beside GATEWAY_JWKS_URL: ")


def test_the_local_secret_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    made = local_secret(tmp_path / "new")
    assert local_secret(tmp_path / "new") == made
    assert (tmp_path / "new" / "secret").stat().st_mode & 0o777 == 0o600


def test_a_secret_file_without_a_secret_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    with pytest.raises(Misconfigured, match="delete it"):
        local_secret(tmp_path)


# The demo


def demo(served: Served, clock: Clock, seconds: float = 60) -> Demo:
    return Demo(
        served.store,
        areas=served.gateway.settings.areas,
        categories=served.gateway.settings.categories,
        now=clock,
        new_id=lambda: f"id{time.monotonic_ns()}",
        chance=random.Random(7),
        sighting_every=seconds,
        earthquake_every=seconds,
    )


async def test_the_demo_is_loaded_once(served: Served, clock: Clock) -> None:
    events, sightings = await demo(served, clock).load()
    assert (events > 50, sightings) == (True, 8)
    assert await demo(served, clock).load() == (0, 0)
    oldest = await served.ask("{ earthquakes(last: 1) { nodes { occurredAt } } }")
    assert len(oldest.data["earthquakes"]["nodes"]) == 1


async def test_expired_sightings_come_anew_and_their_reporters_keep_their_totals(served: Served, clock: Clock) -> None:
    await demo(served, clock).load()
    repository = Sightings(served.store(), clock())
    await repository.report(sighting_id="new", area="Harbor", category="Cats", description="A cat", user_id="ada")
    before = await Reporters(served.store()).by_id("ada")

    clock.forward(minutes=31)

    assert await demo(served, clock).load() == (0, 8)
    page = await Sightings(served.store(), clock()).active_in("Downtown", Span(10))
    assert [item["sightingId"] for item in page.items].count(YOUNGEST) == 1
    assert await Reporters(served.store()).by_id("ada") == before


async def test_the_demo_lives(served: Served, clock: Clock) -> None:
    sightings = await served.listen("subscription { sightingReported { sightingId } }")
    earthquakes = await served.listen("subscription { earthquakeDetected { eventId source } }")
    await served.settle(BLIP)
    await served.settle(EARTHQUAKES)
    living = asyncio.create_task(demo(served, clock, 0.05).live())
    try:
        assert (await sightings.event())["sightingReported"]["sightingId"]
        assert (await earthquakes.event())["earthquakeDetected"]["source"] == "DEMO"
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def test_the_live_demo_does_not_let_a_visitor_wait_long() -> None:
    assert max(SIGHTING_EVERY, EARTHQUAKE_EVERY) <= 20
