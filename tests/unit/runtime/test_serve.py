"""`serve` and other ASGI servers, and their settings."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from datastore.database import StoreOptions
from gateway import create_app
from server.local_secret import local_secret
from server.settings import Misconfigured, Settings, from_environment
from server.version import VERSION
from tests.support.command_line import (
    STRONG,
    WATCHES,
    GatewayProcess,
    assert_command_failed,
    refused_in_a_line,
    run_command,
    run_here,
    serve_process,
    serving_anew,
    surroundings,
)
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

# Each test starts a gateway's processes.
pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands") / "data"


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    """Yield a gateway shared by all tests that do not stop it."""
    with serve_process(folder) as gateway:
        yield gateway


# Serving


def test_serve_prints_its_urls_and_tokens_on_stderr(gateway: GatewayProcess, folder: Path) -> None:
    assert f"{gateway.url}/graphql" in gateway.output
    assert f"{gateway.url}/mcp, with 10 tools\n" in gateway.output
    assert f"data in {folder}" in gateway.output
    assert (
        "documents prefer, introspection on, explain user, budgets of 5,000 (2,500 without a token) read units in this "
        "process, HTTP profile 2025\n"
    ) in gateway.output
    me = "{ me { userId role } }"
    assert [gateway.data(me, gateway.token(name))["me"] for name in ("Demo user", "Admin", "System")] == [
        {"userId": "demo", "role": "USER"},
        {"userId": "admin", "role": "ADMIN"},
        {"userId": "system", "role": "SYSTEM"},
    ]


def test_a_browser_gets_the_page_and_a_program_an_answer_at_the_same_address(gateway: GatewayProcess) -> None:
    status, kind, page = gateway.get("/", accept="text/html,*/*;q=0.8")
    assert (status, kind.partition(";")[0]) == (200, "text/html")
    assert "<title>" in page
    assert gateway.get("/graphql?query={areas}")[0] == 200
    assert gateway.data("{ areas }")["areas"]


def test_health_and_readiness_are_reported(gateway: GatewayProcess) -> None:
    health = json.loads(gateway.get("/healthz")[2])
    assert (health["alive"], health["version"]) == (True, VERSION)
    assert gateway.get("/readyz")[0] == 200


@pytest.mark.parametrize("path", ["/nowhere", "/graphiql/assets/none.js", "/graphiql/assets/../../gateway.py"])
def test_an_unknown_path_is_a_404_in_the_form_of_other_errors(gateway: GatewayProcess, path: str) -> None:
    status, kind, body = gateway.get(path, accept="text/html")
    assert (status, kind) == (404, "application/json")
    assert json.loads(body)["errors"][0]["extensions"] == {"code": "NOT_FOUND"}
    assert "Traceback" not in gateway.output


def test_the_demo_has_earthquakes_of_the_last_days_and_active_sightings(gateway: GatewayProcess) -> None:
    data = gateway.data("{ earthquakes(last: 1) { nodes { occurredAt } } trending { sightingCount } }")
    assert data["earthquakes"]["nodes"]
    assert sum(category["sightingCount"] for category in data["trending"]) >= 8
    assert len(gateway.data(STRONG)["earthquakes"]["nodes"]) > 3


def test_a_taken_port_is_reported_in_one_line(gateway: GatewayProcess, tmp_path: Path) -> None:
    port = gateway.url.rpartition(":")[2]
    done = run_command("serve", "--port", port, "--data-dir", tmp_path)
    assert_command_failed(done, 1, f"Error: cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert len(done.stderr.splitlines()) == 1


def test_a_port_of_another_service_is_reported_in_one_line(tmp_path: Path) -> None:
    with closing(socket.create_server(("0.0.0.0", 0))) as other:
        port = str(other.getsockname()[1])
        assert_command_failed(
            run_command("serve", "--port", port, "--data-dir", tmp_path), 1, f"cannot listen on 127.0.0.1:{port}"
        )


def test_an_address_of_another_machine_is_reported_in_one_line(tmp_path: Path) -> None:
    assert_command_failed(
        run_command("serve", "--host", "192.0.2.1", "--data-dir", tmp_path), 1, "cannot listen on 192.0.2.1:8000"
    )


def test_a_restart_keeps_written_data_and_every_stop_is_clean(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serving_anew(folder) as gateway:
        token = gateway.token()
        report = '{ area: "Harbor", category: "Cats", description: "A cat that stays" }'
        reported = gateway.data(f"mutation {{ reportSighting(input: {report}) {{ sightingId }} }}", token)
        gateway.data('mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId } }', token)
        engine = json.loads((folder / "engine.json").read_text())["pid"]
        with _subscription(gateway):
            gateway.stop(signal.SIGTERM)
        assert gateway.process.returncode == 0
        until_blocking(lambda: not _runs(engine), 20)
        assert "Traceback" not in gateway.output

    with serving_anew(folder) as gateway:
        assert gateway.data(WATCHES, token)["watches"] == [{"area": "Harbor", "category": "Cats"}]
        sightings = gateway.data('{ sightings(area: "Harbor") { nodes { sightingId } } }')["sightings"]["nodes"]
        assert reported["reportSighting"] in sightings
        gateway.stop(signal.SIGINT)
        assert gateway.process.returncode == 0
        assert "Traceback" not in gateway.output


@contextmanager
def _subscription(gateway: GatewayProcess) -> Iterator[None]:
    """Subscribe to sightings, and check at the end that the server closed the socket for a restart."""
    with connect(gateway.url.replace("http", "ws") + "/graphql", subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
        socket.send('{"type": "connection_init"}')
        assert json.loads(socket.recv(50))["type"] == "connection_ack"
        query = "subscription { sightingReported { sightingId } }"
        socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": {"query": query}}))
        time.sleep(0.3)
        yield
        with suppress(ConnectionClosed):
            for _ in socket:
                pass
        assert socket.close_code == 1012
        assert 0 <= json.loads(socket.close_reason or "")["reconnectAfterMs"] <= 10


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="finds the engine in /proc")
@pytest.mark.parametrize("flags", [(), ("--memory",)], ids=["in a file", "in memory"])
def test_a_killed_engine_causes_a_short_outage_and_no_wrong_response(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serve_process(tmp_path / "data", *flags) as gateway:
        before = gateway.data(STRONG)
        for child in Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

        answers = list(_answers(gateway, 2.0))
        ids = {event["eventId"] for event in before["earthquakes"]["nodes"]}
        # A store in memory loads its demo again.
        end = time.monotonic() + 20
        while not _has(answers[-1], ids) and time.monotonic() < end:
            answers += _answers(gateway, 0.1)

        assert _has(answers[-1], ids)
        wrong = [answer for answer in answers if "errors" in answer and not _is_retryable(answer)]
        assert wrong == []
        assert "The embedded engine is gone" in gateway.output


def _answers(gateway: GatewayProcess, seconds: float) -> Iterator[dict[str, Any]]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield gateway.ask(STRONG)
    yield gateway.ask(STRONG)


def _has(answer: dict[str, Any], ids: set[str]) -> bool:
    nodes = ((answer.get("data") or {}).get("earthquakes") or {"nodes": []})["nodes"]
    return ids <= {event["eventId"] for event in nodes}


def _is_retryable(answer: dict[str, Any]) -> bool:
    failures = [{**error["extensions"], "retryAfter": 1} for error in answer["errors"]]
    return all(extensions == {"code": "UNAVAILABLE", "retryable": True, "retryAfter": 1} for extensions in failures)


def test_serve_starts_without_its_store_and_reports_it(tmp_path: Path) -> None:
    store = ("--store", f"http://127.0.0.1:{free_port()}")
    with serve_process(tmp_path / "data", *store, GATEWAY_SECRET=SECRET) as gateway:
        until_blocking(lambda: "Warning: the store cannot be reached." in gateway.output, 5)
        assert gateway.get("/healthz")[0] == 200
        status, _, body = gateway.get("/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "store": "unreachable"})
        assert _is_retryable(gateway.ask(STRONG))


def test_a_demo_on_aws_offers_no_tokens(tmp_path: Path) -> None:
    environment = {
        "GATEWAY_SECRET": SECRET,
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
    }
    with serve_process(tmp_path / "data", "--store", "aws", "--demo", **environment) as gateway:
        assert " token  " not in gateway.output
        assert "Demo tokens are not offered" in gateway.output
        assert json.loads(gateway.get("/graphiql/config.json")[2])["tokens"] == []


def test_missing_tables_are_reported_and_created(engine: str, tmp_path: Path) -> None:
    store = ("--store", engine, "--prefix", f"made{free_port()}__")
    with serve_process(tmp_path / "data", *store, GATEWAY_SECRET=SECRET) as gateway:
        until_blocking(lambda: "Warning: the store lacks the tables" in gateway.output, 5)
        assert json.loads(gateway.get("/readyz")[2])["store"] == "tables missing"
        assert run_command("tables", "create", *store).stdout.startswith("Created: made")
        assert gateway.get("/readyz")[0] == 200
        seeded = run_command("seed", *store, GATEWAY_DATA_DIR=str(tmp_path / "data"))
        assert seeded.stdout.endswith(" 8 sightings, 40 posts and 6 photos stored\n")
        assert gateway.data(STRONG)["earthquakes"]["nodes"]


# In another server


@contextmanager
def uvicorn_serving(folder: Path, *arguments: str, **environment: str) -> Iterator[GatewayProcess]:
    """Run `uvicorn --factory` with its data in this folder."""
    port = free_port()
    log = folder.with_suffix(".log")
    command = [sys.executable, "-m", "uvicorn", "--factory", "gateway:create_app", "--port", str(port), *arguments]
    given = {"GATEWAY_DATA_DIR": str(folder)} | environment
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=surroundings(**given), stdout=file, stderr=file)
    with process:
        try:
            gateway = GatewayProcess(process, f"http://127.0.0.1:{port}", log)
            until_blocking(lambda: "Uvicorn running" in gateway.output or process.poll() is not None, 30)
            yield gateway
        finally:
            process.kill()


def test_another_server_gets_its_app_from_the_environment_as_serve_does(tmp_path: Path) -> None:
    with uvicorn_serving(tmp_path / "data", GATEWAY_AREAS="North, South") as gateway:
        assert gateway.data("{ areas }")["areas"] == ["North", "South"]
        assert len(gateway.data(STRONG)["earthquakes"]["nodes"]) > 3
        assert (tmp_path / "data" / "engine.sqlite").exists()
        gateway.stop(signal.SIGTERM)
        assert "Traceback" not in gateway.output


def test_another_server_takes_a_store_without_the_demo_and_our_sockets(engine: str, tmp_path: Path) -> None:
    store = {"GATEWAY_STORE": engine, "GATEWAY_TABLE_PREFIX": f"own{free_port()}__", "GATEWAY_DEMO": "0"}
    run_command("tables", "create", **store)
    flags = ["--ws", "server.websocket.protocol:SocketProtocol", "--ws-per-message-deflate", "false"]
    with uvicorn_serving(tmp_path / "data", *flags, **store, GATEWAY_SECRET=SECRET) as gateway:
        assert gateway.data(STRONG)["earthquakes"]["nodes"] == []
        assert json.loads(gateway.get("/graphiql/config.json")[2])["tokens"] == []
        with connect(gateway.url.replace("http", "ws") + "/graphql", subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
            socket.send('{"type": "connection_init"}')
            assert json.loads(socket.recv(50))["type"] == "connection_ack"


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
    captured = capsys.readouterr()
    refused_in_a_line(
        subprocess.CompletedProcess((), int(str(ended.value)), captured.out, captured.err),
        2,
        words,
    )


def test_an_app_is_one_process_where_serve_would_have_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("GATEWAY_WORKERS", "2")
    create_app()


def test_arguments_of_an_app_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_STORE", "nonsense")
    create_app(Settings(secret=SECRET), StoreOptions())
    monkeypatch.delenv("GATEWAY_SECRET", raising=False)
    with pytest.raises(SystemExit):
        create_app(store=StoreOptions("aws"))


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
    assert run_command("tables", "create", **environment).stdout.startswith(
        f"Created: {environment['GATEWAY_TABLE_PREFIX']}"
    )
    with serve_process(tmp_path / "data", **environment) as gateway:
        assert f"Store                 {engine}" in gateway.output
        assert gateway.data('{ areas sightings(area: "North") { nodes { area } } }')["areas"] == ["North", "South"]
        token = run_command("token", "--role", "system", **environment).stdout.strip()
        assert gateway.data("{ me { role } }", token) == {"me": {"role": "SYSTEM"}}
        # The demo's pictures exist, and no secret besides the given one.
        assert not (tmp_path / "data" / "secret").exists()


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
        "GATEWAY_PHOTO_BUCKET": "photos.example.com",
        "GATEWAY_S3_URL": "http://127.0.0.1:9000",
        "GATEWAY_PUBLIC_URL": "https://example.com/api/",
        "GATEWAY_HTTP_PROFILE": "draft2026",
        "GATEWAY_HEARTBEAT_SECONDS": "5",
        "GATEWAY_DRAIN_SECONDS": "0",
        "GATEWAY_WATCHDOG_SECONDS": "60",
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
        photo_bucket="photos.example.com",
        s3_url="http://127.0.0.1:9000",
        public_url="https://example.com/api/",
        http_profile="draft2026",
        heartbeat_seconds=5.0,
        drain_seconds=0.0,
        watchdog_seconds=60.0,
    )


def test_a_service_for_files_needs_a_bucket() -> None:
    with pytest.raises(Misconfigured, match="GATEWAY_PHOTO_BUCKET"):
        Settings(secret=SECRET, s3_url="https://s3.example.com")


def test_clients_reach_the_gateway_where_it_listens_by_default() -> None:
    assert Settings(secret=SECRET).reached_at == "http://127.0.0.1:8000"
    assert Settings(secret=SECRET, public_url="https://example.com/api/").reached_at == "https://example.com/api"


def test_given_settings_override_the_environment() -> None:
    found = from_environment({"GATEWAY_INGEST": "all_hour"}, ingest="all_day", port=None)
    assert (found["ingest"], "port" in found) == ("all_day", False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GATEWAY_SECRET", "x" * 31),
        ("GATEWAY_JWKS_URL", "keys.example.com"),
        ("GATEWAY_AREAS", " , "),
        ("GATEWAY_CATEGORIES", ",".join(map(str, range(101)))),
        ("GATEWAY_PHOTO_BUCKET", "My Bucket"),
        ("GATEWAY_S3_URL", "s3.example.com"),
        ("GATEWAY_PUBLIC_URL", "https://[example.com"),
        ("GATEWAY_PUBLIC_URL", "https://example.com/?q=1"),
        ("GATEWAY_ALLOWED_ORIGINS", "app.example.com"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://app.example.com/path"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://app.example.com:99999"),
        ("GATEWAY_DEADLINE_SECONDS", "0"),
        ("GATEWAY_DEADLINE_SECONDS", "nan"),
        ("GATEWAY_DEADLINE_SECONDS", "inf"),
        ("GATEWAY_POLL_INTERVAL_SECONDS", "-1"),
        ("GATEWAY_HTTP_PROFILE", "2024"),
        ("GATEWAY_HEARTBEAT_SECONDS", "soon"),
        ("GATEWAY_DRAIN_SECONDS", "11"),
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
    secret = local_secret(tmp_path / "new")
    assert local_secret(tmp_path / "new") == secret
    assert (tmp_path / "new" / "secret").stat().st_mode & 0o777 == 0o600


def test_a_secret_file_without_a_secret_is_reported(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    with pytest.raises(Misconfigured, match="Delete it"):
        local_secret(tmp_path)
