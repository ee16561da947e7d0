"""Data of earlier builds, opened by the present one: every access pattern answers, and cursors and tokens stay valid.

`tests/upgrades` has a directory for each build, which `tests.support.upgrade_data` made. The gateway runs at the time
of the data, so that nothing has expired, and polls the demo's matches, which completes the items of live matches.
"""

import json
import lzma
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from datastore.errors import ErrorCode
from datastore.keyspace import PATTERNS
from server.http.graphiql import Example, examples
from server.version import VERSION
from tests.support.command_line import GatewayProcess, run_command, surroundings
from tests.support.contract import PAGE_OF
from tests.support.example_runs import NAMES, find_variables, token_of
from tests.support.ports import free_port
from tests.support.process_clock import ProcessClock
from tests.support.store_engines import ROOT, Engines
from tests.support.until import until_blocking
from tests.support.upgrade_data import (
    MOST_BYTES,
    SECRET,
    UPGRADES,
    EarlierClient,
    load_items,
    make_upgrade_data,
    page_info,
    post_raw,
)

BUILDS = sorted(folder for folder in UPGRADES.iterdir() if folder.is_dir())
FILES = {"data.tar.xz", "items.jsonl.xz", "issued.json"}
# The lists whose cursors of a build are no longer accepted, as the changelog states.
REFUSED_CURSORS = {
    "95ba360": {"SPARKS-3 All photos with their persons", "persons", "livestreams", "photoUsers", "earthquakes"}
}
# The builds whose event ids are no longer accepted, as the changelog states.
REFUSED_EVENT_IDS = {"95ba360"}
REPORT = 'mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: "x"}) { sightingId } }'
RUNNABLE = [example for example in examples() if not example.query.startswith("subscription")]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: build.name)
def build(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def issued(build: Path) -> dict[str, Any]:
    """What the earlier build issued to clients, and when."""
    found: dict[str, Any] = json.loads((build / "issued.json").read_text())
    return found


@pytest.fixture(scope="module", params=["directory", "items"])
def source(request: pytest.FixtureRequest) -> str:
    """Whether the gateway opens the data directory of the build, or new tables with its items, and new streams."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def gateway(
    source: str,
    build: Path,
    issued: dict[str, Any],
    engines: Engines,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EarlierClient]:
    """The present gateway on the data directory of the build, or on new tables with its items."""
    folder = tmp_path_factory.mktemp("upgrade") / "data"
    folder.mkdir(mode=0o700)
    if source == "directory":
        with tarfile.open(build / "data.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        store = []
    else:
        store = ["--store", engines.next(), "--prefix", f"upgrade{free_port()}__"]
        assert run_command("tables", "create", *store).returncode == 0
        with lzma.open(build / "items.jsonl.xz", "rt") as file:
            load_items(store[1], store[3], file)
        store += ["--feed-pipeline"]
    with serving_at(datetime.fromisoformat(issued["moment"]), folder, *store) as started:
        yield EarlierClient(started, issued["tokens"])


@contextmanager
def serving_at(moment: datetime, folder: Path, *options: str) -> Iterator[GatewayProcess]:
    """Run `serve` with a clock that shows `moment` now."""
    clock = ProcessClock(time.time(), off=moment.timestamp() - time.time())
    port, log = free_port(), folder.with_suffix(".log")
    given = {"GATEWAY_PORT": str(port), "GATEWAY_DATA_DIR": str(folder), "GATEWAY_SECRET": SECRET}
    given |= {"GATEWAY_BUDGET_UNITS": "0"}
    command = [sys.executable, "-m", "tests.support.gateway_process", *clock.arguments, "serve", "--no-demo"]
    command += ["--matches", "demo", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=surroundings(**given), stdout=subprocess.DEVNULL, stderr=file)
    try:
        started = GatewayProcess(process, f"http://127.0.0.1:{port}", folder)
        until_blocking(lambda: "Stop with" in started.output or process.poll() is not None, 50)
        assert process.poll() is None, started.output
        yield started
        assert "Traceback" not in started.output
    finally:
        process.kill()
        process.wait()


def test_there_is_data_of_earlier_builds_and_of_the_present_version() -> None:
    assert {"95ba360", VERSION} <= {build.name for build in BUILDS}
    for each in BUILDS:
        assert {file.name for file in each.iterdir()} == FILES
        assert sum(file.stat().st_size for file in each.iterdir()) < MOST_BYTES


def test_the_data_of_the_next_release_can_be_made(tmp_path: Path) -> None:
    make_upgrade_data(ROOT, tmp_path / "next")
    assert {file.name for file in (tmp_path / "next").iterdir()} == FILES
    made, kept = (
        json.loads((folder / "issued.json").read_text()) for folder in (tmp_path / "next", UPGRADES / VERSION)
    )
    assert made.keys() == kept.keys()
    assert {cursor["name"] for cursor in made["cursors"]} == {cursor["name"] for cursor in kept["cursors"]}


def test_the_gateway_is_ready_and_accepts_the_earlier_tokens(gateway: EarlierClient) -> None:
    until_blocking(lambda: gateway.get("/readyz")[0] == 200)
    for name in NAMES.values():
        assert gateway.data("{ areas }", gateway.token(name))["areas"]


def test_a_list_continues_after_an_earlier_cursor_as_after_a_new_one(
    gateway: EarlierClient, build: Path, issued: dict[str, Any]
) -> None:
    """A list whose cursors the changelog declares invalid refuses them, and no other list does."""
    assert len(issued["cursors"]) > 3
    refused = set()
    for earlier in issued["cursors"]:
        token, query = gateway.token(NAMES[earlier["role"]]), earlier["query"]
        first = page_info(gateway.data(query, token, earlier["variables"]))
        new, old = (
            gateway.ask(query, token, {**earlier["variables"], "after": cursor})
            for cursor in (first["endCursor"], earlier["cursor"])
        )
        if [error["extensions"]["code"] for error in old.get("errors", ())] == [ErrorCode.BAD_CURSOR]:
            refused.add(earlier["name"])
        else:
            assert page_info(old["data"]) == page_info(new["data"]), earlier["name"]
    assert refused == REFUSED_CURSORS.get(build.name, set())


def test_an_earlier_key_is_not_executed_again(gateway: EarlierClient, issued: dict[str, Any]) -> None:
    """Its response is repeated, or refused as the changelog states."""
    assert "errors" not in issued["response"]
    again = post_raw(gateway, issued["keyed"], gateway.token(), **{"Idempotency-Key": issued["key"]})
    codes = [error["extensions"]["code"] for error in again.get("errors", ())]
    assert again == issued["response"] or codes == [ErrorCode.IDEMPOTENCY_MISMATCH]


def test_an_earlier_address_of_a_picture_is_accepted(gateway: EarlierClient, issued: dict[str, Any]) -> None:
    """The data has no pictures: an accepted address is not found, another is forbidden."""
    assert gateway.get(issued["picture"])[0] == 404
    assert gateway.get(issued["picture"][:-4] + "AAAA")[0] == 403


def test_an_earlier_event_id_resumes_on_its_own_stream_and_gets_resync_on_another(
    gateway: EarlierClient, build: Path, issued: dict[str, Any], source: str
) -> None:
    gateway.data(REPORT, gateway.token())
    headers = {"Accept": "text/event-stream", "Last-Event-ID": issued["event_id"]}
    resumes = source == "directory" and build.name not in REFUSED_EVENT_IDS
    expected = [] if resumes else [ErrorCode.RESYNC]
    assert gateway.first_event("subscription { sightingReported { description } }", headers) == expected


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda example: example.name)
def test_every_example_runs_on_earlier_data(example: Example, gateway: EarlierClient) -> None:
    variables = find_variables(example, gateway)
    answer = gateway.ask(example.query, token_of(example, gateway), variables)
    assert "errors" not in answer
    missing = [field for field, value in answer["data"].items() if value is None]
    assert [field for field in missing if not PAGE_OF[field].is_stored_elsewhere] == []


def test_the_examples_use_every_pattern_of_clients() -> None:
    shown = {word for example in examples() for word in example.name.split()}
    of_clients = {pattern.id for pattern in PATTERNS if pattern.fields and "-S" not in pattern.id}
    assert of_clients <= shown
