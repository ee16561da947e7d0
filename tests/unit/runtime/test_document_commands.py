"""`gateway.py documents`: creating and checking manifests, and storing them in the table."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from graphql import parse

from datastore.database import Database, StoreOptions
from datastore.gateway.persisted_documents import StoredDocuments
from datastore.session.metering import Deadline
from datastore.session.store import Store
from server.documents.persisted.extraction import extract_manifest
from server.documents.persisted.manifest import ManifestProblem, read_manifest, sha256_of
from tests.support.command_line import assert_command_failed, refused_in_a_line, run_here
from tests.support.served import NOON
from tests.support.store_engines import ROOT

AREAS = "query Areas { areas }"
QUAKE = "query Quake($id: ID!) { earthquake(id: $id) { ...Q } }"
FRAGMENT = "fragment Q on Earthquake { place }"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"areas": AREAS, "quake": f"{QUAKE} {FRAGMENT}"}))
    return path


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Return a manifest with another text for one id, and with a new id."""
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({"a": AREAS, "areas": "{ categories }"}))
    return path


def test_check_prints_each_operation_and_its_estimated_cost(manifest: Path) -> None:
    done = run_here("documents", "check", manifest)

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [["areas", "query Areas"], ["quake", "query Quake"]]
    assert all(line.endswith(" read units") for line in lines)


def test_check_fails_a_build_and_names_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"good": AREAS, "bad": "{ nothing }", "worse": "{", sha256_of("x"): AREAS}))

    done = run_here("documents", "check", path)

    assert_command_failed(done, 1, f"Error: {sha256_of('x')}: the SHA-256 of its text is {sha256_of(AREAS)}.")
    assert "Error: bad: Cannot query field 'nothing' on type 'Query'." in done.stderr
    assert "Error: worse: Syntax Error" in done.stderr
    assert "good" not in done.stderr
    refused_in_a_line(run_here("documents", "check", tmp_path / "none.json"), 1, "cannot be read: No such file")
    path.write_text(json.dumps({sha256_of("other"): AREAS}))
    refused_in_a_line(run_here("documents", "check", path), 1, f"the SHA-256 of its text is {sha256_of(AREAS)}")


def test_check_refuses_documents_above_the_maximum_cost(tmp_path: Path) -> None:
    path = tmp_path / "costly.json"
    path.write_text(json.dumps({"ten": "query Ten { earthquakes(first: 10) { nodes { eventId } } }"}))

    allowed = run_here("documents", "check", path)
    refused_in_a_line(run_here("documents", "check", path, GATEWAY_MAX_COST="1"), 1, "ten: The operation may cost")
    refused_in_a_line(run_here("documents", "check", path, GATEWAY_MAX_COST="x"), 2, "GATEWAY_MAX_COST must be")

    limits = {"GATEWAY_DOCUMENT_LIMITS": "values=1"}
    refused_in_a_line(run_here("documents", "check", path, **limits), 1, "ten: The response may have")

    assert allowed.returncode == 0
    units = float(allowed.stdout.split("  ")[2].removesuffix(" read units\n"))
    assert units > 1


async def test_documents_are_put_into_the_table_listed_and_deleted(
    manifest: Path, changed: Path, database: Database, store_options: StoreOptions
) -> None:
    options = ["--store", store_options.store, "--prefix", store_options.prefix]

    async def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(run_here, *arguments, *options)

    put = await call("documents", "put", manifest)
    again = await call("documents", "put", manifest)
    listed = await call("documents", "list")
    other = await call("documents", "put", changed)
    as_before = await call("documents", "list")
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    await StoredDocuments(store).put("twin", AREAS, NOON)
    one_of_two = await call("documents", "delete", "areas")
    between = await call("documents", "list")
    deleted = await call("documents", "delete", "twin", "nothing")
    left = await call("documents", "list")

    assert (put.stdout, again.stdout) == ("2 documents are stored\n",) * 2
    texts = json.loads(listed.stdout)
    assert texts == {name: text for text in (AREAS, f"{QUAKE} {FRAGMENT}") for name in _names(text)}
    assert_command_failed(other, 1, "these ids are taken by other texts: areas.")
    assert as_before.stdout == listed.stdout
    output = f"areas is deleted\nthe text {sha256_of(AREAS)} still runs: twin is another id of it\n"
    assert (one_of_two.returncode, one_of_two.stdout) == (0, output)
    assert json.loads(between.stdout).keys() == texts.keys() - {"areas"} | {"twin"}
    assert (deleted.returncode, deleted.stderr) == (1, "Error: no document has the id nothing.\n")
    assert deleted.stdout == f"{sha256_of(AREAS)} is deleted\ntwin is deleted\n"
    assert json.loads(left.stdout).keys() == {"quake", sha256_of(texts["quake"])}


def _names(text: str) -> tuple[str, str]:
    return ("areas" if text == AREAS else "quake", sha256_of(text))


# Extraction


def test_the_examples_make_a_manifest_that_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"

    done = run_here("documents", "extract", ROOT / "web" / "examples", "-o", path)
    checked = run_here("documents", "check", path)

    assert (done.returncode, done.stdout) == (0, "")
    assert checked.returncode == 0, checked.stderr
    operations = json.loads(path.read_bytes())["operations"]
    assert len(checked.stdout.splitlines()) == len(operations) > 50


def test_each_operation_is_extracted_with_the_fragments_it_uses(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.graphql").write_text(f"{QUAKE}\n{AREAS}")
    (folder / "deep" / "b.gql").write_text(FRAGMENT)
    (folder / "other.txt").write_text("{")

    by_hash = json.loads(run_here("documents", "extract", folder).stdout)
    by_name = json.loads(run_here("documents", "extract", folder, "--names").stdout)

    assert [(found["name"], found["type"]) for found in by_hash["operations"]] == [
        ("Quake", "query"),
        ("Areas", "query"),
    ]
    texts = list(read_manifest(json.dumps(by_hash).encode()).values())
    assert [len(parse(text).definitions) for text in texts] == [2, 1]
    assert read_manifest(json.dumps(by_name).encode()) == dict(zip(["Quake", "Areas"], texts, strict=True))


def test_extract_marks_described_operations_as_tools_and_check_names_them(tmp_path: Path) -> None:
    folder, manifest = tmp_path / "src", tmp_path / "tools.json"
    folder.mkdir()
    (folder / "a.graphql").write_text(f'"""Read the areas."""\n{AREAS}\n{QUAKE}\n{FRAGMENT}')
    (folder / "b.graphql").write_text('"""Follow."""\nsubscription Scores { liveScores { isSnapshot } }')

    assert run_here("documents", "extract", folder, "--names", "--tools", "-o", manifest).returncode == 0
    operations = json.loads(manifest.read_text())["operations"]
    checked = run_here("documents", "check", manifest)

    assert {found["id"]: found.get("tool") for found in operations} == {"Areas": {}, "Quake": None, "Scores": None}
    assert [line.split("read units")[1] for line in checked.stdout.splitlines()] == ["  tool Areas", "", ""]
    operations[0]["tool"] = {"name": "read areas"}
    manifest.write_text(
        json.dumps({"format": "apollo-persisted-query-manifest", "version": 1, "operations": operations})
    )
    refused = run_here("documents", "check", manifest)
    assert_command_failed(refused, 1, "Error: Areas: tool.name must have 1 to 64 letters, digits, _ or -.")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a": "query {"}, "a:1: Syntax Error"),
        ({"a": "{ areas }"}, "a: an operation has no name"),
        ({"a": AREAS, "b": AREAS}, "b: Areas is also in a"),
        ({"a": f"{AREAS} {AREAS}"}, "a: Areas is also in a"),
        ({"a": "type Query { a: Int }"}, "a: only operations and fragments are allowed"),
    ],
    ids=str,
)
def test_documents_that_cannot_be_extracted_are_reported(files: dict[str, str], words: str) -> None:
    with pytest.raises(ManifestProblem) as raised:
        extract_manifest(files)

    assert words in str(raised.value)


def test_a_missing_source_is_reported_in_one_line(tmp_path: Path) -> None:
    refused_in_a_line(run_here("documents", "extract", tmp_path / "none"), 2, "does not exist")
