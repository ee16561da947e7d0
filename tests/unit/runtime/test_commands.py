"""The command line, with real processes, a real engine and real signals."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from graphql import build_schema

from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.sightings import BLIP
from datastore.session.pagination import Span
from datastore.sightings.reporters import Reporters
from datastore.sightings.sightings import Sightings
from pipelines.demo.scene import YOUNGEST, Demo
from tests.support.command_line import (
    COMMANDS,
    ONE,
    GatewayProcess,
    assert_command_failed,
    feed_file,
    refused_in_a_line,
    run_anew,
    run_command,
    run_here,
    serve_process,
    surroundings,
)
from tests.support.ports import free_port
from tests.support.served import SECRET, Clock, Served
from tests.support.store_engines import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands") / "data"


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    """Yield a gateway shared by all tests that do not stop it."""
    with serve_process(folder) as gateway:
        yield gateway


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
        (["serv"], "No such command 'serv'. Did you mean 'serve', 'search'? See gateway.py --help."),
        (["--nope"], "No such option: --nope. See gateway.py --help."),
        (["ingest", "earthquakes"], "Missing argument 'source'. See gateway.py ingest earthquakes --help."),
        (["token", "--role", "king"], "'king' is not one of 'user', 'admin', 'system'. See gateway.py token --help."),
        (["token", "--hours", "many"], "Invalid value for '--hours'"),
        (["photos", "strip", "--memory"], "Invalid value for --memory: works with photos in a bucket only"),
        (["photos", "strip", "--page", "0"], "Invalid value for '--page'"),
        (["tables", "export", "--format", "yaml"], "'yaml' is not one of 'cloudformation', 'terraform'."),
        (["tables", "export", "--role", "ingest"], "Invalid value for --role: is for --iam and --policies."),
        (["tables", "export", "--iam", "--role", "king"], "'king' is not one of 'gateway', 'pipeline-feed',"),
    ],
)
def test_a_wrong_call_is_reported_in_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    refused_in_a_line(run_here(*arguments, GATEWAY_DATA_DIR=str(tmp_path)), 2, words)


@pytest.mark.proof
def test_a_wrong_call_is_reported_in_one_line_by_a_process_too() -> None:
    refused_in_a_line(run_anew("serve", "--prot", "1", COLUMNS="40"), 2, "--port). See gateway.py serve --help.")


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
def test_a_wrong_value_in_the_environment_is_reported(environment: dict[str, str], words: str, tmp_path: Path) -> None:
    refused_in_a_line(run_here("serve", "--data-dir", tmp_path, **environment), 2, words)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("environment", "status", "words"),
    [
        ({"AWS_REGION": "eu-west-1"}, 2, "Error: Set GATEWAY_SECRET"),
        ({"GATEWAY_SECRET": SECRET}, 1, "Error: No AWS region: set --region or AWS_REGION."),
        ({"GATEWAY_SECRET": SECRET, "AWS_REGION": "eu-west-1"}, 1, "Error: No AWS credentials were found"),
    ],
    ids=["secret", "region", "credentials"],
)
def test_settings_that_aws_needs_are_reported(
    environment: dict[str, str], status: int, words: str, tmp_path: Path
) -> None:
    away = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"), "AWS_CONFIG_FILE": str(tmp_path / "none")}
    done = run_command("serve", "--store", "aws", "--port", str(free_port()), **environment, **away)
    refused_in_a_line(done, status, words)


@pytest.mark.parametrize("seconds", ["abc", "0", "nan"])
def test_the_pipeline_reads_as_often_as_the_environment_says(seconds: str, tmp_path: Path) -> None:
    done = run_here("pipeline", "feed", "--data-dir", tmp_path, GATEWAY_POLL_INTERVAL_SECONDS=seconds)
    refused_in_a_line(done, 2, "Error: GATEWAY_POLL_INTERVAL_SECONDS must be")


def test_an_unusable_data_folder_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for command in ("serve", "token"):
        assert_command_failed(
            run_here(command, "--data-dir", file),
            2,
            f"Error: The data directory {file} cannot be used: Not a directory.",
        )
    assert_command_failed(
        run_command("tables", "describe", "--data-dir", file),
        1,
        f"data directory {file} cannot be used: Not a directory",
    )


@pytest.mark.proof
def test_a_damaged_database_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "engine.sqlite").write_bytes(b"this is no database" * 100)
    done = run_command("serve", "--data-dir", tmp_path, "--port", str(free_port()))
    assert_command_failed(
        done, 1, f"The embedded engine did not start on {tmp_path / 'engine.sqlite'}: Database file is"
    )
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.proof
def test_a_store_that_cannot_be_reached_ends_a_command_with_one_line() -> None:
    nowhere = ("--store", f"http://127.0.0.1:{free_port()}")
    assert_command_failed(run_command("seed", *nowhere), 1, "Error: The store cannot be reached at the moment")
    ingest = run_command("ingest", "earthquakes", "pipelines/demo/data/earthquakes.geojson", *nowhere)
    assert_command_failed(ingest, 1, "Error: the feed was ingested only in part: UNAVAILABLE")


# Beside a running gateway


@pytest.mark.proof
def test_an_ingest_beside_a_running_gateway_shows_there(gateway: GatewayProcess, folder: Path, tmp_path: Path) -> None:
    file = feed_file(tmp_path / "feed.geojson", "beside1", "beside2")
    done = run_command("ingest", "earthquakes", file, "--data-dir", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == ["fetched   3", "upserted  2", "skipped   0", "rejected  1"]
    assert gateway.data(ONE % "beside1")["earthquake"]["place"] == "Near the test"
    again = run_command("ingest", "earthquakes", file, "--data-dir", folder)
    assert "skipped   2 (the feed has not changed)" in again.stdout


@pytest.mark.proof
def test_every_command_takes_the_store_options() -> None:
    options = ["--store", "--data-dir", "--memory", "--prefix", "--region"]
    for command in COMMANDS:
        if command not in (
            [],
            ["ingest"],
            ["documents"],
            ["tables"],
            ["pipeline"],
            ["dlq"],
            ["photos"],
            ["statistics"],
            ["search"],
        ):
            help_text = run_here(*command, "--help").stdout
            assert [option for option in options if option not in help_text] == [], command


@pytest.mark.proof
def test_commands_work_beside_a_gateway_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    file = feed_file(tmp_path / "feed.geojson", "shared")
    with serve_process(folder, "--memory") as gateway:
        assert run_command("ingest", "earthquakes", file, "--memory", "--data-dir", folder).returncode == 0
        assert gateway.data(ONE % "shared")["earthquake"]["eventId"] == "shared"
        described = json.loads(run_command("tables", "describe", "--memory", "--data-dir", folder).stdout)
        assert {table["TableStatus"] for table in described} == {"ACTIVE"}
    assert not (folder / "engine.sqlite").exists()


@pytest.mark.proof
def test_seed_and_tables_work_beside_a_running_gateway(gateway: GatewayProcess, folder: Path) -> None:
    assert (
        run_command("seed", "--data-dir", folder).stdout == "0 earthquakes, 0 sightings, 0 posts and 0 photos stored\n"
    )
    assert run_command("tables", "create", "--data-dir", folder).stdout == "All tables exist.\n"
    described = json.loads(run_command("tables", "describe", "--data-dir", folder).stdout)
    assert {table["TableStatus"] for table in described} == {"ACTIVE"}
    assert gateway.get("/readyz")[0] == 200


@pytest.mark.proof
@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")
def test_creating_tables_shows_progress_on_a_terminal(engine: str) -> None:
    import pty

    controller, terminal_end = pty.openpty()
    environment = surroundings(GATEWAY_STORE=engine, GATEWAY_TABLE_PREFIX=f"shown{free_port()}__", TERM="xterm")
    command = [sys.executable, "gateway.py", "tables", "create"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=terminal_end) as process:
        os.close(terminal_end)
        shown = b"".join(_read_terminal(controller))
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"Created: shown")
    assert "Creating the tables…" in shown.decode()


def _read_terminal(descriptor: int) -> Iterator[bytes]:
    """Yield the output to a terminal until its other side is closed, which Linux reports as an error."""
    with open(descriptor, "rb", buffering=0) as terminal, suppress(OSError):
        while piece := terminal.read(4096):
            yield piece


def test_creating_tables_shows_only_the_result_without_a_terminal(engine: str) -> None:
    done = run_command("tables", "create", "--store", engine, "--prefix", f"quiet{free_port()}__")
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)


def test_a_printed_token_is_accepted_with_its_role(gateway: GatewayProcess, folder: Path) -> None:
    logs = "{ requestLogs(first: 1) { nodes { route } } }"
    admin = run_command("token", "--role", "admin", "--user", "x", "--data-dir", folder).stdout
    assert len(admin.splitlines()) == 1
    assert gateway.data("{ me { userId role } }", admin.strip())["me"] == {"userId": "x", "role": "ADMIN"}
    gateway.data(logs, admin.strip())
    user = run_command("token", "--user", "x", "--data-dir", folder).stdout.strip()
    assert gateway.ask(logs, user)["errors"][0]["extensions"]["code"] == "FORBIDDEN"


# Without a gateway


@pytest.mark.proof
def test_an_ingest_works_without_a_gateway_and_a_later_one_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    file = feed_file(tmp_path / "feed.geojson", "alone1")
    assert run_command("ingest", "earthquakes", file, "--data-dir", folder).stdout.startswith(
        "fetched   2\nupserted  1\n"
    )
    with serve_process(folder, "--no-demo") as gateway:
        assert gateway.data(ONE % "alone1")["earthquake"]["magnitude"] == 5.5
        assert gateway.data(ONE % "demo0001")["earthquake"] is None
        assert "eyJ" not in gateway.output, "no token is offered"


@pytest.mark.parametrize(
    ("source", "words"),
    [("none.geojson", "There is no file 'none.geojson'."), ("all_year", "There is no feed 'all_year'.")],
)
def test_a_missing_feed_is_reported(source: str, words: str) -> None:
    assert_command_failed(run_command("ingest", "earthquakes", source, "--memory"), 1, words)


def test_a_token_that_no_gateway_accepts_is_not_printed(tmp_path: Path) -> None:
    keys = {"GATEWAY_JWKS_URL": "https://keys.example.com/jwks"}
    assert_command_failed(run_here("token", "--data-dir", tmp_path, **keys), 2, "Error: GATEWAY_JWKS_URL is set")


def test_the_schema_is_printed_as_it_is_served() -> None:
    assert "earthquakes" in build_schema(run_here("schema").stdout).query_type.fields  # type: ignore[union-attr]
    assert (
        'type Match implements Node @key(fields: "id") @key(fields: "matchId")'
        in run_here("schema", "--federation").stdout
    )


def test_the_tables_are_exported_for_cloudformation_and_terraform() -> None:
    template = json.loads(run_here("tables", "export", "--prefix", "x-").stdout)
    assert template["Parameters"]["TablePrefix"]["Default"] == "x-"
    assert "EarthquakeEventsTable" in template["Resources"]
    file = json.loads(run_here("tables", "export", "--format", "terraform", "--prefix", "x-").stdout)
    assert file["variable"]["table_prefix"]["default"] == "x-"
    assert "earthquake_events" in file["resource"]["aws_dynamodb_table"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = run_here(*command, "--help")
    assert done.returncode == 0
    assert "Usage: gateway.py" in done.stdout
    options = [line for line in done.stdout.splitlines() if line.startswith("│ --")]
    assert options
    assert [line for line in options if len(line.strip("│ ").split("  ")) < 2] == []


# The demo


def demo(served: Served, clock: Clock, seconds: float = 60) -> Demo:
    return Demo(
        served.store,
        served.gateway.objects,
        areas=served.gateway.settings.areas,
        categories=served.gateway.settings.categories,
        now=clock,
        new_id=lambda: f"id{time.monotonic_ns()}",
        rng=random.Random(7),
        sighting_every=seconds,
        earthquake_every=seconds,
        feed_every=seconds,
        livestream_every=seconds,
    )


async def test_the_demo_is_loaded_once(served: Served, clock: Clock) -> None:
    loaded = await demo(served, clock).load()
    assert (loaded.earthquakes > 50, *loaded[1:]) == (True, 8, 40, 6)
    assert await demo(served, clock).load() == (0, 0, 0, 0)
    oldest = await served.ask("{ earthquakes(last: 1) { nodes { occurredAt } } }")
    assert len(oldest.data["earthquakes"]["nodes"]) == 1


@pytest.mark.proof
async def test_expired_sightings_are_created_again_and_reporters_keep_their_totals(
    served: Served, clock: Clock
) -> None:
    await demo(served, clock).load()
    repository = Sightings(served.store(), clock())
    await repository.report(sighting_id="new", area="Harbor", category="Cats", description="A cat", user_id="ada")
    before = await Reporters(served.store()).by_id("ada")

    clock.forward(minutes=31)

    assert await demo(served, clock).load() == (0, 8, 0, 0)
    page = await Sightings(served.store(), clock()).active_in("Downtown", Span(10))
    assert [item["sightingId"] for item in page.items].count(YOUNGEST) == 1
    assert await Reporters(served.store()).by_id("ada") == before


async def test_the_demo_keeps_changing(served: Served, clock: Clock) -> None:
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
    assert max(Demo.sighting_every, Demo.earthquake_every) <= 20
