"""The archive for AWS Lambda: its content, and that its handler runs alone."""

import asyncio
import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from datastore.database import Database, StoreOptions
from datastore.keyspace.feeds.table import FEED
from deploy.lambda_package import HANDLER, REQUIREMENTS, pack
from tests.support.feed_changes import items_of, put_feed_records
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.feed_lambda import records_of
from tests.support.store_engines import make_tables

# As Lambda's runtime does it, without anything of this machine but Python's own library.
INVOKE = """
import importlib, json, sys
class Context:
    def get_remaining_time_in_millis(self): return 30_000
folder, handler, events = sys.argv[1:]
sys.path.insert(0, folder)
module, _, name = handler.rpartition(".")
function = getattr(importlib.import_module(module), name)
answers = [function(event, Context()) for event in json.load(open(events))]
foreign = sorted({m.__file__ for m in sys.modules.values() if "site-packages" in (getattr(m, "__file__", None) or "")})
function.close()
print(json.dumps({"answers": answers, "foreign": foreign}))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Link the packages of the lock file into one folder: the installed versions are the same."""
    folder = tmp_path_factory.mktemp("packages")
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", REQUIREMENTS.read_text(), re.M):
        found = distribution(name)
        assert found.version == version
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                place = folder / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(Path(str(file.locate())).read_bytes())
    return folder


@pytest.fixture(scope="module")
def archive(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "feed-lambda.zip"
    pack(packages, path)
    return path


def as_delivered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records as Lambda passes them in JSON: with floats and texts."""
    return json.loads(json.dumps(records, default=lambda value: value.timestamp()))  # type: ignore[no-any-return]


async def test_the_handler_runs_from_the_archive_alone(
    archive: Path, database: Database, store_options: StoreOptions, tmp_path: Path
) -> None:
    await make_tables(database)
    post = post_item("p1", "ada")
    await put_feed_records(database, user_item("ada"), user_item("bob"), post, like_item(post, "bob"))
    records = as_delivered(await records_of(database))
    events = tmp_path / "events.json"
    events.write_text(json.dumps([{"Records": records[:2]}, {"Records": records[2:]}]))
    folder = tmp_path / "function"
    with ZipFile(archive) as file:
        file.extractall(folder)
    environment = {
        "GATEWAY_STORE": store_options.store,
        "GATEWAY_TABLE_PREFIX": store_options.prefix,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    empty = tmp_path / "empty"
    empty.mkdir()

    # -I and -S: neither this folder's modules nor those of the environment that runs the tests.
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", INVOKE, str(folder), HANDLER, str(events)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=empty, env=environment, capture_output=True, text=True, timeout=40
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"answers": [{"batchItemFailures": []}] * 2, "foreign": []}
    items = {(item["PK"], item["SK"]): item for item in await items_of(database, FEED)}
    assert items["POST#p1", "META"]["likes"] == 1
    assert items["USER#ada", "META"]["posts"] == 1


def test_the_archive_contains_only_the_needs_of_the_handler(archive: Path) -> None:
    with ZipFile(archive) as file:
        names = file.namelist()
    own = {name.partition("/")[0] for name in names}
    assert {"datastore", "pipelines"} <= own
    assert not own & {
        "schema",
        "server",
        "resolvers",
        "jit",
        "tests",
        "gateway.py",
        "runtime/container.py",
        "runtime/jobs.py",
        "strawberry",
        "graphql",
    }
    assert "pipelines/demo/feeds.py" not in names
    assert [name for name in names if name.startswith("botocore/data/ec2/")] == []
    assert sum(name.endswith((".pyc", ".pyi")) for name in names) == 0


def test_equal_sources_make_an_equal_archive(archive: Path, packages: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    pack(packages, again)
    assert again.read_bytes() == archive.read_bytes()
