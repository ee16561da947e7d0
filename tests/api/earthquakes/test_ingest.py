"""Ingest of feeds: by the object that the command line uses, by the mutation, and over HTTP."""

import asyncio
import gzip
import json
import tarfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import RequestRefused
from datastore.earthquakes.earthquakes import Earthquakes, IngestSummary
from datastore.earthquakes.events import Earthquake
from datastore.errors import Unavailable
from datastore.infrastructure import tables
from datastore.keyspace import earthquakes as keys
from datastore.model.identity import Role
from tests.support.earthquake_samples import scan
from tests.support.served import REAL_DATA, Served
from tests.support.usgs_samples import Handler, answering, feature, feed_bytes, feed_server

INGEST = """
mutation ($feed: String!) {
  ingestEarthquakes(feed: $feed) {
    feed fetched upserted skipped rejected { reason eventCount } unchanged retries upstreamSize upstreamHash error
  }
}
"""


@pytest.fixture
def store_options(engine: str) -> StoreOptions:
    """Options of tables without a stream: these tests have no subscribers, and a stream slows down loading."""
    options = StoreOptions(store=engine, prefix=f"ingest{uuid.uuid4().hex[:8]}__")
    asyncio.run(without_stream(options))
    return options


async def without_stream(options: StoreOptions) -> None:
    async with open_database(options) as database:
        await tables.create(database.client, [replace(keys.EARTHQUAKES, stream=None)], options.prefix)


async def run_ingest(served: Served, source: str) -> IngestSummary:
    assert served.gateway.ingest is not None
    return await served.gateway.ingest.run(source)


def summary_counts(summary: IngestSummary) -> tuple[int, int, int, dict[str, int]]:
    return summary.fetched, summary.upserted, summary.skipped, dict(summary.rejected)


async def ingested_event_ids(served: Served) -> set[str]:
    return {item["eventId"]["S"] for item in await scan(served, "EVENT")}


@contextmanager
def recorded_writes(served: Served) -> Iterator[list[Call]]:
    """Record the writes in the body of the statement, except those of request logs."""
    assert served.gateway.database is not None
    client = served.gateway.database.client
    writes: list[Call] = []
    stop = client.add_call_listener(lambda call: writes.append(call) if is_write(call) else None)
    try:
        yield writes
    finally:
        stop()


def is_write(call: Call) -> bool:
    return call.operation == "PutItem" and call.request["Item"]["entity"]["S"] != "LOG"


async def delete_ingest_state(served: Served, source: str) -> None:
    """Delete the ingest state of a source."""
    assert served.gateway.database is not None
    key = keys.ingest_state(source)
    request = {
        "TableName": served.gateway.database.prefix + keys.EARTHQUAKES.name,
        "Key": {"pk": {"S": key.partition}, "sk": {"S": key.sort}},
    }
    await served.gateway.database.client.call("DeleteItem", request)


# Real feeds


def real(pattern: str) -> list[Path]:
    found = sorted((REAL_DATA / "usgs").glob(pattern))
    if not found:
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")
    return found


def read_feed_plainly(path: Path) -> tuple[list[str], Counter[str]]:
    """Return the ids that plain code accepts, and the number of refused features by code."""
    body = path.read_bytes()
    features = json.loads(gzip.decompress(body) if path.suffix == ".gz" else body)["features"]
    named = [each for each in features if each.get("id")]
    taken = [each["id"] for each in named if each["properties"]["mag"] is not None]
    refused = {"MISSING_ID": len(features) - len(named), "MISSING_MAGNITUDE": len(named) - len(taken)}
    return taken, Counter({reason: count for reason, count in refused.items() if count})


@pytest.mark.proof
@pytest.mark.timeout(150)
async def test_every_real_feed_is_stored_once(served: Served) -> None:
    known: set[str] = set()
    for path in real("*.geojson*"):
        taken, refused = read_feed_plainly(path)
        new = set(taken) - known

        first = await run_ingest(served, str(path))
        with recorded_writes(served) as writes:
            again = await run_ingest(served, str(path))

        fetched, rejected = len(taken) + refused.total(), dict(refused)
        assert (first.error, again.error) == (None, None), path.name
        assert summary_counts(first) == (fetched, len(new), len(taken) - len(new), rejected), path.name
        assert summary_counts(again) == (fetched, 0, len(taken), rejected), path.name
        assert (first.unchanged, again.unchanged, writes) == (False, True, []), path.name
        known |= new
    assert await ingested_event_ids(served) == known
    assert len(await scan(served, "EVENT")) == len(known)


@pytest.mark.proof
async def test_a_real_feed_without_ingest_state_is_skipped_event_by_event(served: Served) -> None:
    for path in (each for each in real("*.geojson") if "month" not in each.name):
        taken, refused = read_feed_plainly(path)
        await run_ingest(served, str(path))
        await delete_ingest_state(served, str(path))

        with recorded_writes(served) as writes:
            second = await run_ingest(served, str(path))

        fetched = len(taken) + refused.total()
        assert summary_counts(second) == (fetched, 0, len(taken), dict(refused)), path.name
        # An event with several ids is looked up by a read instead.
        assert not second.unchanged, path.name
        assert len(writes) <= len(taken) + 1, path.name


@pytest.mark.parametrize(("name", "every"), [("all_hour", 12), ("all_week_flapping", 13)])
async def test_snapshots_of_a_feed_over_time_store_each_event_once(
    served: Served, tmp_path: Path, name: str, every: int
) -> None:
    """Hourly snapshots, some empty, most without ids; and those of a week, in which events appear and disappear."""
    (archive,) = real(f"history/{name}*.tar.xz")
    snapshots = sampled(archive, every, tmp_path)
    judged = [read_feed_plainly(path) for path in snapshots]

    summaries = [await run_ingest(served, str(path)) for path in snapshots]

    once = {event_id for taken, _ in judged for event_id in taken}
    assert {summary.error for summary in summaries} == {None}
    assert [summary.upserted + summary.skipped for summary in summaries] == [len(taken) for taken, _ in judged]
    assert [summary.rejected for summary in summaries] == [refused for _, refused in judged]
    assert sum(summary.upserted for summary in summaries) == len(once)
    assert await ingested_event_ids(served) == once


def sampled(archive: Path, every: int, folder: Path) -> list[Path]:
    with tarfile.open(archive) as opened:
        members = sorted((member for member in opened if member.isfile()), key=lambda member: member.name)[::every]
        opened.extractall(folder, members, filter="data")
    return [folder / member.name for member in members]


async def test_a_csv_feed_fails_and_stores_no_event(served: Served) -> None:
    (path,) = real("*.csv.gz")

    summary = await run_ingest(served, str(path))

    assert (summary.error, summary_counts(summary)) == ("NOT_GEOJSON", (0, 0, 0, {}))
    assert await ingested_event_ids(served) == set()
    assert await scan(served, "INGEST_STATE") == []


# Over HTTP


async def test_the_mutation_returns_a_summary(served: Served) -> None:
    body = feed_bytes(feature(id="us1"), feature(id="us2", mag=None), feature(id="us3"))

    async with feed_server(answering(body=body)) as url:
        first = await served.ask(INGEST, {"feed": url}, user="poller", role=Role.SYSTEM)
        again = await served.ask(INGEST, {"feed": url}, user="poller", role=Role.SYSTEM)

    received = first.data["ingestEarthquakes"]
    always = {"feed": url, "fetched": 3, "rejected": [{"reason": "MISSING_MAGNITUDE", "eventCount": 1}], "retries": 0}
    always |= {"upstreamSize": len(body), "upstreamHash": received["upstreamHash"], "error": None}
    assert received == always | {"upserted": 2, "skipped": 0, "unchanged": False}
    assert again.data["ingestEarthquakes"] == always | {"upserted": 0, "skipped": 2, "unchanged": True}
    assert len(received["upstreamHash"]) == 64
    assert await ingested_event_ids(served) == {"us1", "us3"}


def conditional_server(body: bytes, seen: list[dict[str, str]], **validators: str) -> Handler:
    """Return a handler that answers 304 to a request with its validators."""

    async def answer(request: web.Request) -> web.StreamResponse:
        names = ("If-None-Match", "If-Modified-Since")
        seen.append({name: request.headers[name] for name in names if name in request.headers})
        headers = {name.replace("_", "-"): value for name, value in validators.items()}
        return web.Response(status=304, headers=headers) if seen[-1] else web.Response(body=body, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("validators", "shown"),
    [
        ({"ETag": '"abc"'}, {"If-None-Match": '"abc"'}),
        (
            {"Last_Modified": "Thu, 25 Jun 2026 12:00:00 GMT"},
            {"If-Modified-Since": "Thu, 25 Jun 2026 12:00:00 GMT"},
        ),
    ],
)
async def test_a_feed_that_is_not_modified_counts_and_writes_nothing(
    served: Served, validators: dict[str, str], shown: dict[str, str]
) -> None:
    body, seen = feed_bytes(feature(id="us1"), feature(id="us2", mag=None)), list[dict[str, str]]()

    async with feed_server(conditional_server(body, seen, **validators)) as url:
        first = await run_ingest(served, url)
        with recorded_writes(served) as writes:
            second = await run_ingest(served, url)

    assert seen == [{}, shown]
    assert (summary_counts(first), first.unchanged) == ((2, 1, 0, {"MISSING_MAGNITUDE": 1}), False)
    assert (summary_counts(second), second.unchanged) == ((2, 0, 1, {"MISSING_MAGNITUDE": 1}), True)
    assert (second.upstream_size, second.upstream_hash) == (0, first.upstream_hash)
    assert writes == []


def truncating_server(body: bytes, after: int) -> Handler:
    """Return a handler that drops the connection after the first `after` bytes of the body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[:after])
        await asyncio.sleep(0.05)  # so that the client receives these bytes before the abort
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


async def test_events_before_a_broken_feed_stay_and_the_next_run_completes(served: Served) -> None:
    body = feed_bytes(*(feature(id=f"us{number}") for number in range(5)))
    middle = body.index(b'"us3"')

    async with feed_server(truncating_server(body, middle), answering(body=body), answering(body=body)) as url:
        broken = await run_ingest(served, url)
        stored = await ingested_event_ids(served)
        complete = await run_ingest(served, url)
        third = await run_ingest(served, url)

    assert (broken.error, summary_counts(broken), broken.upstream_size) == ("TRUNCATED", (3, 3, 0, {}), middle)
    assert stored == {"us0", "us1", "us2"}
    assert (complete.error, summary_counts(complete)) == (None, (5, 2, 3, {}))
    assert (third.unchanged, summary_counts(third)) == (True, (5, 0, 5, {}))


async def test_a_feed_that_ends_early_without_an_error_is_truncated_too(served: Served) -> None:
    body = feed_bytes(feature(id="us1"), feature(id="us2"))

    async with feed_server(answering(body=body[: body.index(b'"us2"')])) as url:
        summary = await run_ingest(served, url)

    assert (summary.error, summary_counts(summary)) == ("TRUNCATED", (1, 1, 0, {}))
    assert await scan(served, "INGEST_STATE") == []


async def test_temporary_failures_are_retried_and_counted(served: Served) -> None:
    async with feed_server(
        answering(429, Retry_After="0"), answering(503), answering(body=feed_bytes(feature(id="us1")))
    ) as url:
        summary = await run_ingest(served, url)

    assert (summary.error, summary.retries, summary_counts(summary)) == (None, 2, (1, 1, 0, {}))


async def test_a_permanent_failure_is_reported(served: Served) -> None:
    async with feed_server(answering(404), answering(400), answering(429, Retry_After="3600")) as url:
        summaries = [await run_ingest(served, url) for _ in range(3)]

    assert [(summary.error, summary_counts(summary)) for summary in summaries] == [
        (code, (0, 0, 0, {})) for code in ("NOT_FOUND", "HTTP_STATUS", "RATE_LIMITED")
    ]


# Callers and sources


async def test_only_the_system_may_ingest(served: Served) -> None:
    callers: list[dict[str, Any]] = [{}, {"user": "ada"}, {"user": "root", "role": Role.ADMIN}]

    async with feed_server(answering(body=feed_bytes(feature(id="us1")))) as url:
        answers = [await served.ask(INGEST, {"feed": url}, **caller) for caller in callers]

    assert [answer.codes for answer in answers] == [["UNAUTHENTICATED"], ["FORBIDDEN"], ["FORBIDDEN"]]
    assert await ingested_event_ids(served) == set()


FOREIGN = [
    "/etc/passwd",
    "../shared/data/usgs/all_hour_2017-12-03.geojson",
    "demo.geojson",
    "",
    "all_year",
    "ALL_DAY",
    "x" * 1025,
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "ftp://127.0.0.1/feed",
    "HTTP://LOCALHOST/feed",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1@169.254.169.254/",
    "http://somebody@127.0.0.1/",
    "http://somebody:secret@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://127.0.0.1.example.com/",
    "http://127.0.0.1\\@example.com/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://[::1]/",
    "http://[::1/",
    "http://127.0.0.1:port/",
    "http://127.0.0.1:99999/",
    "http://",
    "://",
    "http:///feed",
]


async def test_files_and_foreign_hosts_are_refused(served: Served) -> None:
    answers = [await served.ask(INGEST, {"feed": source}, user="poller", role=Role.SYSTEM) for source in FOREIGN]

    errors = {
        source: (answer.codes, (answer.errors or [{}])[0]) for source, answer in zip(FOREIGN, answers, strict=True)
    }
    assert {source: codes for source, (codes, _) in errors.items()} == {
        source: ["BAD_USER_INPUT"] for source in FOREIGN
    }
    assert {error["extensions"].get("field") for _, error in errors.values()} == {"feed"}
    assert all("`feed`" in error["message"] or "no feed" in error["message"] for _, error in errors.values())
    assert [call for answer in answers for call in answer.calls] == []


async def test_a_redirect_to_another_host_or_port_is_not_followed(served: Served) -> None:
    visited: list[str] = []

    async def secret(request: web.Request) -> web.StreamResponse:
        visited.append(request.path)
        return web.Response(body=feed_bytes(feature(id="secret")))

    async with feed_server(secret) as elsewhere:
        places = [elsewhere, elsewhere.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest/meta-data/"]
        summaries = []
        for place in places:
            async with feed_server(answering(302, Location=place)) as url:
                summaries.append(await served.ask(INGEST, {"feed": url}, user="poller", role=Role.SYSTEM))

    assert [answer.data["ingestEarthquakes"]["error"] for answer in summaries] == ["BAD_SOURCE"] * 3
    assert visited == []
    assert await ingested_event_ids(served) == set()


# A store that fails


async def test_an_event_that_the_store_refuses_is_reported_separately(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = Earthquakes.insert

    async def refuse_us2(self: Earthquakes, event: Earthquake) -> bool:
        if event.event_id == "us2":
            raise RequestRefused("ValidationException", "us2 is refused.")
        return await insert(self, event)

    monkeypatch.setattr(Earthquakes, "insert", refuse_us2)
    async with feed_server(answering(body=feed_bytes(*(feature(id=f"us{number}") for number in (1, 2, 3))))) as url:
        summary = await run_ingest(served, url)

    assert (summary.error, summary_counts(summary)) == ("INTERNAL", (3, 2, 0, {"STORE_INTERNAL": 1}))
    assert await scan(served, "INGEST_STATE") == []


async def test_an_outage_of_the_store_ends_an_ingest_that_the_next_one_completes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = feed_bytes(*(feature(id=f"us{number}") for number in range(300)))

    async def unavailable(self: Earthquakes, event: Earthquake) -> bool:
        raise Unavailable("The store cannot be reached.")

    async with feed_server(answering(body=body)) as url:
        with monkeypatch.context() as patch:
            patch.setattr(Earthquakes, "insert", unavailable)
            failed = await run_ingest(served, url)
        complete = await run_ingest(served, url)

    assert failed.error == "UNAVAILABLE"
    assert failed.fetched < 300
    assert failed.fetched == sum(failed.rejected.values())
    assert set(failed.rejected) == {"STORE_UNAVAILABLE"}
    assert (complete.error, summary_counts(complete)) == (None, (300, 300, 0, {}))


async def test_concurrent_ingests_of_a_feed_store_each_event_once(served: Served) -> None:
    body = feed_bytes(*(feature(id=f"us{number}") for number in range(50)))

    async with feed_server(answering(body=body)) as url:
        summaries = await asyncio.gather(*[run_ingest(served, url) for _ in range(3)])

    assert [summary.error for summary in summaries] == [None] * 3
    assert sum(summary.upserted for summary in summaries) == 50
    assert {summary.fetched for summary in summaries} == {50}
    assert len(await scan(served, "EVENT")) == 50
