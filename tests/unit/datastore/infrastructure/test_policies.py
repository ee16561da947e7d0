"""The IAM policy of each role allows all calls of its processes, and only those that its access patterns need."""

import asyncio
import json
import random
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from datastore.change_streams.change import encode_change
from datastore.change_streams.dead_letters import DeadLetters, letter_of
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client
from datastore.dynamodb.requests import PreparedRequest
from datastore.infrastructure.iam_roles import (
    DEAD_LETTERS,
    DOCUMENTS,
    FOLLOWS,
    GATEWAY,
    INGEST,
    PHOTOS,
    PIPELINE_EARTHQUAKES,
    PIPELINE_FEED,
    PIPELINE_MATCHES,
    ROLES,
    TABLES_ROLE,
    FileAction,
    IamRole,
)
from datastore.infrastructure.policies import MAX_CHARACTERS, longest_arns, managed_policies
from datastore.infrastructure.tables import create_table_request
from datastore.keyspace import PATTERNS
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.photos.table import SPARKS
from datastore.keyspace.sightings import BLIP
from datastore.matches.cricket import Match
from datastore.matches.devices import Devices, Platform
from datastore.matches.live_activities import LiveActivities
from datastore.matches.match_follows import MatchFollows
from datastore.model.access_patterns import AccessPattern, Who
from datastore.objects.factory import LOCAL_FOLDER
from datastore.objects.local import LocalObjects
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.demo.match import demo_match
from pipelines.earthquakes.statistics import EarthquakeStatisticsPipeline
from pipelines.feeds.handlers import feed_handlers
from runtime.cli import matches
from tests.support.aws_tables import be_aws
from tests.support.command_line import run_here
from tests.support.consumers import letters_of
from tests.support.earthquake_samples import quake
from tests.support.fault_proxy import Proxy
from tests.support.feed_changes import feed_changes, items_of, put_feed_records, store_of
from tests.support.feed_documents import edge_document
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.feed_process import QUICK
from tests.support.feed_world import FeedWorld
from tests.support.moments import utc_now
from tests.support.photo_items import photo
from tests.support.pictures import jpeg
from tests.support.rights import ACCOUNT, REGION, allows, policy_of, refused
from tests.support.served import NOON
from tests.support.until import until_async
from tests.support.usgs_samples import feature, feed_bytes

roles = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


# --- Declarations -----------------------------------------------------------------------------------------------------


def test_every_pattern_belongs_to_a_role_and_those_of_fields_to_the_gateway() -> None:
    used = {pattern for role in ROLES for pattern in role.patterns}
    assert [pattern.question for pattern in PATTERNS if pattern not in used] == []
    assert {pattern for pattern in PATTERNS if pattern.who is not Who.INTERNAL} <= {*GATEWAY.patterns}


def test_the_actions_of_transactions_are_declared() -> None:
    declared = [pattern.question for pattern in PATTERNS if pattern.transacts]
    assert declared == [pattern.question for pattern in PATTERNS if "TransactWriteItems" in pattern.operations]


@roles
def test_a_policy_names_its_actions_and_resources(role: IamRole) -> None:
    for statement in policy_of(role)["Statement"]:
        assert statement["Effect"] == "Allow"
        assert not [action for action in statement["Action"] if "*" in action]
        wild = [resource for resource in statement["Resource"] if "*" in resource]
        assert [one for one in wild if not one.endswith("/stream/*") and one != "arn:aws:s3:::photos/*"] == []


@roles
def test_each_right_is_needed_by_a_pattern_or_a_declared_task(role: IamRole) -> None:
    needed = {need for pattern in role.patterns for need in _needs(pattern)}
    needed |= {(f"dynamodb:{name}", _arn(table.name)) for table in role.created for name in MAKING}
    needed |= {("dynamodb:DescribeTable", _arn(table.name)) for table in role.described}
    needed |= {(f"dynamodb:{name}", _arn(f"{table.name}/stream/*")) for table in role.streams for name in FOLLOWING}
    needed |= {
        (f"dynamodb:{name}", _arn(f"{table.name}/stream/*"))
        for table in role.triggers
        for name in (*FOLLOWING, "ListStreams")
    }
    needed |= {(str(one), "arn:aws:s3:::photos" + ("" if one is FileAction.LIST else "/*")) for one in role.files}

    statements = policy_of(role)["Statement"]
    granted = [(action, one) for said in statements for action in said["Action"] for one in said["Resource"]]

    assert sorted(granted) == sorted(needed)


MAKING = (
    "CreateTable",
    "DescribeContinuousBackups",
    "DescribeTable",
    "DescribeTimeToLive",
    "UpdateContinuousBackups",
    "UpdateTable",
    "UpdateTimeToLive",
)
FOLLOWING = ("DescribeStream", "GetRecords", "GetShardIterator")


def _arn(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"


def _needs(pattern: AccessPattern) -> set[tuple[str, str]]:
    name = pattern.table.name
    needs = {
        (f"dynamodb:{one}", _arn(name)) for one in pattern.operations if one not in ("Query", "TransactWriteItems")
    }
    if "Query" in pattern.operations:
        needs.add(("dynamodb:Query", _arn(f"{name}/index/{pattern.index}" if pattern.index else name)))
    for one in pattern.transacts:
        kind, table = one if isinstance(one, tuple) else (one, pattern.table)
        needs.add((f"dynamodb:{kind}Item", _arn(table.name)))
    return needs


def test_only_declared_scans_are_allowed() -> None:
    scanned = {pattern.table.name for pattern in PATTERNS if "Scan" in pattern.operations}
    tables = {pattern.table.name for pattern in PATTERNS}
    for role in ROLES:
        allowed = {name for name in tables if allows(role, "dynamodb:Scan", _arn(name))}
        assert allowed <= scanned
    assert not allows(PIPELINE_FEED, "dynamodb:GetItem", _arn("sparks"))
    assert not allows(INGEST, "dynamodb:DeleteItem", _arn("earthquake-events"))
    assert not allows(GATEWAY, "dynamodb:CreateTable", _arn("feed"))


@roles
def test_managed_policies_are_short_enough_and_equivalent(role: IamRole) -> None:
    parts = managed_policies(role, role.name, longest_arns()).values()

    assert max(len(json.dumps(part, separators=(",", ":"))) for part in parts) <= MAX_CHARACTERS
    whole = policy_of(role)["Statement"]
    assert [len(one["Resource"]) for part in parts for one in part["Statement"]] == [
        len(one["Resource"]) for one in whole
    ]
    assert [one["Action"] for part in parts for one in part["Statement"]] == [one["Action"] for one in whole]


# --- Calls of the processes -------------------------------------------------------------------------------------------
# All other tests of the gateway and of the feed's handlers check their calls, too: see `served` in conftest.py, and
# `Wire` in feed_world.py.


class WatchedCalls:
    """A record of calls, and the check which of them a role may not make."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def note(self, operation: str, request: Mapping[str, Any]) -> None:
        self.calls.append((operation, request))

    def refused(self, role: IamRole) -> list[tuple[str, str]]:
        assert self.calls
        return [need for call in self.calls for need in refused(role, *call)]

    @property
    def operations(self) -> set[str]:
        return {operation for operation, _ in self.calls}


@pytest.fixture
def watched(database: Database, monkeypatch: pytest.MonkeyPatch) -> WatchedCalls:
    """Record all calls except those of the test's own `database`."""
    watched, call, start, own = WatchedCalls(), Client.call, Client._start, database.client

    async def watching(
        self: Client, operation: str, request: Mapping[str, Any] | PreparedRequest, /, **options: Any
    ) -> dict[str, Any]:
        if self is not own:
            watched.note(operation, request.payload if isinstance(request, PreparedRequest) else request)
        return await call(self, operation, request, **options)

    def starting(self: Client, terms: Any, operation: str, request: PreparedRequest, *more: Any) -> Any:
        if self is not own:
            watched.note(operation, request.payload)
        return start(self, terms, operation, request, *more)

    monkeypatch.setattr(Client, "call", watching)
    monkeypatch.setattr(Client, "_start", starting)
    return watched


async def command(options: StoreOptions, *arguments: str | Path, **environment: str) -> None:
    """Run a command in a thread, because it starts an event loop of its own."""
    store = ("--store", options.store, "--prefix", options.prefix)
    done = await asyncio.to_thread(run_here, *arguments, *store, **environment)
    assert done.returncode == 0, done.stderr


async def test_the_photo_stripper_may_do_all_that_it_does(
    database: Database, store_options: StoreOptions, watched: WatchedCalls, tmp_path: Path
) -> None:
    objects = LocalObjects(tmp_path / LOCAL_FOLDER, b"secret", lambda: "http://x")
    items = [photo(id, originalKey=f"originals/{id}.jpg", thumbnailKey=f"thumbnails/{id}.jpg") for id in ("a", "b")]
    await store_of(database).write_all(SPARKS, puts=items)
    for item in items:
        for key in (item["originalKey"], item["thumbnailKey"]):
            await objects.write(key, jpeg(comment=b"a secret"), content_type="image/jpeg")

    await command(store_options, "photos", "strip", "--page", "1", "--data-dir", tmp_path)

    assert watched.refused(PHOTOS) == []
    assert watched.operations == {"Query", "GetItem", "UpdateItem", "PutItem", "DeleteItem"}


async def test_the_role_of_the_feed_pipeline_allows_all_its_calls(
    database: Database, store_options: StoreOptions, watched: WatchedCalls
) -> None:
    world = FeedWorld(database)
    await world.users("ada", "bob", "cyd")
    await world.follow("bob", "ada")
    async with open_database(store_options) as other:
        instance = Instance(other.client, other.prefix, lambda: store_of(other), "one", utc_now)
        handlers = feed_handlers(instance.open_store, utc_now, fan_out_bound=1)
        pipeline = Consumer(instance, FEED, handlers, StreamMetrics(), pace=QUICK)
        running = asyncio.create_task(pipeline.run())
        await world.write("p1", "ada")
        await until_async(lambda: _has(database, "FEED#bob"))
        await world.follow("cyd", "ada")  # one follower above the limit for fan-out on write
        await world.write("p2", "ada")
        await until_async(lambda: _has(database, "FEED#cyd"))
        await world.delete("p1", "ada")
        await world.unfollow("bob", "ada")
        await until_async(lambda: _has(database, "FEED#bob", exists=False))
        running.cancel()
        await asyncio.wait([running])

    assert watched.refused(PIPELINE_FEED) == []
    assert {"GetRecords", "DescribeTable", "TransactWriteItems", "BatchWriteItem", "UpdateItem"} <= watched.operations


async def _has(database: Database, partition: str, *, exists: bool = True) -> bool:
    return any(item["PK"] == partition for item in await items_of(database, FEED)) == exists


async def test_the_roles_of_the_earthquake_pipeline_and_the_rebuild_allow_all_their_calls(
    database: Database, store_options: StoreOptions, watched: WatchedCalls, tmp_path: Path
) -> None:
    event = quake("us1").item()
    await store_of(database).write_all(EARTHQUAKES, puts=[event])
    async with open_database(store_options) as other:
        instance = Instance(other.client, other.prefix, lambda: store_of(other), "one", utc_now)
        pipeline = EarthquakeStatisticsPipeline(instance, StreamMetrics(), QUICK)
        running = asyncio.create_task(pipeline.run())
        await until_async(lambda: _is_counted(database, event["dayBucket"]))
        await until_async(pipeline.check)
        running.cancel()
        await asyncio.wait([running])
    await command(store_options, "statistics", "rebuild", "--data-dir", tmp_path)
    day = f"{NOON:%Y-%m-%d}"
    await command(store_options, "statistics", "rebuild", "--start", day, "--end", day, "--data-dir", tmp_path)

    assert watched.refused(PIPELINE_EARTHQUAKES) == []
    assert {"GetRecords", "Scan", "TransactWriteItems", "BatchWriteItem", "UpdateItem"} <= watched.operations


async def _is_counted(database: Database, day: str) -> bool:
    return any(item["sk"] == day and "recounts" in item for item in await items_of(database, EARTHQUAKES))


async def test_the_role_of_the_match_pipeline_allows_all_its_calls(
    database: Database,
    store_options: StoreOptions,
    watched: WatchedCalls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def done(work: Coroutine[Any, Any, None]) -> None:
        await work  # signals are handled only in the main thread

    monkeypatch.setattr(matches, "until_stopped", done)
    store, now = store_of(database), utc_now()
    match = Match("m1", "1", "L", "10", "20", now)
    devices, token = Devices(store, now), "cd" * 32
    await devices.register("bob", token, platform=Platform.IOS, apns_token=token, os_version="18", app_version="1")
    await devices.update_push_to_start_token("bob", token, "ef" * 32)
    await MatchFollows(store, now).follow(match, "bob", "10")
    await LiveActivities(store, now).register(match, "ada", "phone", "ab" * 32)
    file = tmp_path / "m1.json"
    file.write_text(json.dumps(demo_match(random.Random(5), 1, date(2026, 6, 25))))

    await command(store_options, "replay", file, "--speed", "0", "--data-dir", tmp_path)

    assert watched.refused(PIPELINE_MATCHES) == []
    assert {"Scan", "UpdateItem", "PutItem", "Query", "DeleteItem"} <= watched.operations


async def test_the_role_of_the_ingest_allows_all_its_calls(
    store_options: StoreOptions, watched: WatchedCalls, tmp_path: Path
) -> None:
    file = tmp_path / "feed.json"
    file.write_bytes(feed_bytes(feature(), feature(id="us2")))

    await command(store_options, "ingest", "earthquakes", file, "--data-dir", tmp_path)

    assert watched.refused(INGEST) == []
    assert watched.operations == {"GetItem", "PutItem", "UpdateItem"}


async def test_documents_may_be_put_listed_and_deleted(
    store_options: StoreOptions, watched: WatchedCalls, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"areas": "query Areas { areas }"}))

    await command(store_options, "documents", "put", manifest)
    await command(store_options, "documents", "list")
    await command(store_options, "documents", "delete", "areas")

    assert watched.refused(DOCUMENTS) == []
    assert watched.operations == {"Query", "PutItem", "DeleteItem"}


async def test_dead_letters_may_be_handled_again(
    database: Database, store_options: StoreOptions, watched: WatchedCalls
) -> None:
    await put_feed_records(database, user_item("ada"), post := post_item("p1"), like_item(post))
    record = encode_change((await feed_changes(database))[-1])
    letter = letter_of(FEED.name, "counters", record, ValueError("a bug"), 6, utc_now() - timedelta(seconds=5))
    await DeadLetters(store_of(database), CONSUMER_TABLE).bury(letter)

    await command(store_options, "dlq", "list")
    await command(store_options, "dlq", "replay", "--all")

    assert await letters_of(database) == []
    assert watched.refused(DEAD_LETTERS) == []
    assert {"Query", "TransactWriteItems", "DeleteItem"} <= watched.operations


async def test_follows_may_be_repaired(database: Database, store_options: StoreOptions, watched: WatchedCalls) -> None:
    edges = [edge_document("bob", "ada"), edge_document("eve", "ada"), edge_document("eve", "ada", at=NOON)]
    await put_feed_records(database, user_item("ada"), user_item("bob"), user_item("eve"), *edges)

    await command(store_options, "follows", "repair")

    assert watched.refused(FOLLOWS) == []
    assert watched.operations == {"Scan", "BatchGetItem", "Query", "TransactWriteItems"}


@pytest.mark.proof
async def test_tables_may_be_made_changed_and_described(
    proxy: Proxy, watched: WatchedCalls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = be_aws(proxy, monkeypatch)
    options = StoreOptions("aws", region="eu-west-1", prefix=f"made{uuid.uuid4().hex[:8]}__")
    async with open_database(options) as database:
        poor = create_table_request(replace(BLIP, indexes=(), ttl=None), options.prefix)
        await database.client.call("CreateTable", poor)
    watched.calls.clear()

    await command(options, "tables", "create", "--update", "--data-dir", tmp_path, **environment)
    await command(options, "tables", "describe", "--data-dir", tmp_path, **environment)

    assert watched.refused(TABLES_ROLE) == []
    assert watched.operations == set(MAKING)
