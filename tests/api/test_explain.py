"""Explanations of the DynamoDB calls of an operation, compared with the requests and responses of the engine."""

from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from datastore.change_streams.shards.stream_reader import ChangesLost
from datastore.dynamodb.calls import Call, CallDetails, TracedRead
from datastore.dynamodb.requests import PreparedRequest
from datastore.explain.report import MAX_CALLS, MAX_KEYS, explanation_of
from datastore.keyspace import PATTERNS
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import WRITES
from datastore.model.identity import Role
from datastore.session.metering import Meter
from datastore.session.read_trace import SharedRead
from server.documents.request import Stage
from tests.support.comments import an_id
from tests.support.contract import every_page
from tests.support.contract.pages import Page
from tests.support.explain import ask_explained, explanation
from tests.support.explain_steps import (
    SIGHTINGS,
    EngineWire,
    explaining,
    receive_message,
    settings,
    socket,
    store_options,
    watch_engine,
)
from tests.support.fault_proxy import Proxy, Seen, forward, plain_error
from tests.support.feed_items import comment_item, post_item, user_item
from tests.support.home_feeds import feed_entry, put_feed_items
from tests.support.photo_items import ADA
from tests.support.served import Clock, Served
from tests.support.until import until

__all__ = ["settings", "socket", "store_options"]


def assert_matches_wire(explained: dict[str, Any], wire: EngineWire) -> None:
    """Check that the explanation shows exactly the requests on the wire, and that its parts add up to the whole."""
    assert explained["requests"] == sum(call["pages"] for call in explained["calls"]) == len(wire.requests)
    assert sorted(call["operation"] for call in explained["calls"] for _ in range(call["pages"])) == wire.operations
    for kind in ("read", "write"):
        whole = explained["units"][kind]
        assert sum(call["units"][kind] for call in explained["calls"]) == whole
        assert sum(row["units"][kind] for row in explained["fields"]) == whole
    assert explained["units"]["read"] + explained["units"]["write"] == wire.units
    assert {number for row in explained["fields"] for number in row["calls"]} == {
        call["id"] for call in explained["calls"]
    }
    for call in explained["calls"]:
        known = [pattern for pattern in PATTERNS if pattern.id in call["patterns"]]
        assert call["patterns"]
        assert {pattern.table.name for pattern in known} >= set(call["tables"])
        assert call["operation"] in {name for pattern in known for name in pattern.operations} | {"BatchGetItem"}
        assert {call["index"]} <= {pattern.index for pattern in known} if "index" in call else True
        assert {*call["fields"]} <= {row["path"] for row in explained["fields"] if call["id"] in row["calls"]}
        assert call["units"]["write"] == 0 or call["operation"].startswith(WRITES)


# --- Every pattern ----------------------------------------------------------------------------------------------------


@every_page
async def test_the_explanation_of_each_pattern_matches_the_wire(served: Served, proxy: Proxy, page: Page) -> None:
    prepared = await page.prepare(served)
    for field in page.fields:
        if field.is_mutation:
            continue
        with watch_engine(proxy) as wire:
            explained = explanation(
                await ask_explained(served, field.text(prepared), user=field.user, role=field.role, email=ADA)
            )
        assert_matches_wire(explained, wire)
        own = {pattern.id for pattern in PATTERNS if field.name in pattern.fields}
        root = next(row for row in explained["fields"] if row["path"] == field.name)
        assert sorted(call.partition(" ")[0] for call in field.calls) == wire.operations, field.name
        assert own & set(root["patterns"]), field.name


async def test_an_explanation_of_a_mutation_shows_its_writes(served: Served, proxy: Proxy) -> None:
    await put_feed_items(served, user_item("ada"))
    post = 'createPost(input: {text: "Hello #dogs"}) { text author { name } }'
    teams = 'syncTeams(input: [{teamId: "1", name: "One", code: "ONE"}, {teamId: "2", name: "Two", code: "TWO"}])'

    with watch_engine(proxy) as wire:
        explained = explanation(await ask_explained(served, f"mutation {{ written: {post} }}"))
    assert_matches_wire(explained, wire)
    (transaction,) = [call for call in explained["calls"] if call["operation"] == "TransactWriteItems"]
    assert transaction["written"] == 2
    assert [key["PK"].partition("#")[0] for key in transaction["keys"]] == ["POST", "POST"]
    assert "read" not in transaction
    assert explained["units"]["write"] > 0
    fields = {row["path"]: (row["reads"], row["writes"], row["hits"]) for row in explained["fields"]}
    assert fields == {"written": (1, 1, 0), "written.author": (1, 0, 0)}

    with watch_engine(proxy) as wire:
        explained = explanation(await ask_explained(served, f"mutation {{ {teams} {{ teamId }} }}", role=Role.SYSTEM))
    assert_matches_wire(explained, wire)
    (batch,) = explained["calls"]
    assert (batch["operation"], batch["tables"], batch["written"]) == ("BatchWriteItem", ["cricket-teams"], 2)
    assert batch["keys"] == [{"teamId": "1"}, {"teamId": "2"}]
    assert explained["fields"][0]["patterns"] == ["TM-3"]


# --- Sharing ----------------------------------------------------------------------------------------------------------


async def test_shared_reads_are_explained_as_hits(served: Served, proxy: Proxy) -> None:
    posts = [post_item(f"p{number}", "bob" if number else "eve") for number in range(5)]
    comments = [comment_item(posts[0], an_id(seconds=number), "bob") for number in range(3)]
    await put_feed_items(
        served, *posts, *map(feed_entry, posts), *comments, *[user_item(name) for name in ("bob", "eve", "ada")]
    )
    query = """{ homeFeed(userId: "ada") { nodes { post {
      author { name } likedByViewer comments(first: 3) { nodes { author { name } } } } } } }"""

    with watch_engine(proxy) as wire:
        explained = explanation(await ask_explained(served, query))

    assert_matches_wire(explained, wire)
    rows = {row["path"].removeprefix("homeFeed").removeprefix(".nodes."): row for row in explained["fields"]}
    counts = {path: (row["reads"], row["hits"], row["units"]["read"]) for path, row in rows.items()}
    assert counts == {
        "": (1, 0, 0.5),
        "post": (5, 0, 2.5),
        "post.author": (2, 3, 1.0),
        "post.likedByViewer": (5, 0, 2.5),
        "post.comments": (5, 0, 2.5),
        "post.comments.nodes.author": (0, 3, 0.0),
    }
    batch = explained["calls"][-1]
    assert batch["operation"] == "BatchGetItem"
    assert batch["patterns"] == ["FEED-001", "FEED-N1"]
    assert (len(batch["keys"]), batch["read"], batch["returned"]) == (7, 2, 2)
    assert rows["post.comments.nodes.author"]["calls"] == rows["post.author"]["calls"] == [batch["id"]]


async def test_the_pages_of_a_query_are_one_call(served: Served, proxy: Proxy, clock: Clock) -> None:
    # Another program wrote these, with a shorter lifetime than this gateway gives.
    short = {"PK": "AREA#Downtown", "expiresAt": int(clock().timestamp()) + 60}
    items = [short | {"SK": f"SIGHTING#2026-06-25T12:00:00Z#{number}"} for number in range(50)]
    await served.store().write_all(BLIP, puts=items)
    clock.forward(minutes=2)

    with watch_engine(proxy) as wire:
        explained = explanation(
            await ask_explained(served, '{ sightings(area: "Downtown", first: 1) { nodes { area } } }')
        )

    assert_matches_wire(explained, wire)
    (call,) = explained["calls"]
    assert (call["pages"], call["read"], call["returned"]) == (3, 50, 0)
    assert call["condition"] == "PK = :partition AND SK BETWEEN :oldest AND :end"
    assert call["values"]["end"] == "SIGHTING$"
    assert "expiresAt" in call["filter"]


async def test_rounds_and_retries_are_explained(served: Served, proxy: Proxy) -> None:
    await put_feed_items(served, user_item("ada"), user_item("bob"))
    query = '{ a: user(id: "ada") { name } b: user(id: "bob") { name } }'
    first = True

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        nonlocal first
        if seen.operation != "BatchGetItem" or not first:
            return await forward(proxy, seen)
        first = False
        return web.Response(body=orjson.dumps({"Responses": {}, "UnprocessedKeys": seen.body["RequestItems"]}))

    proxy.always = answer
    explained = explanation(await ask_explained(served, query))
    (call,) = explained["calls"]
    assert (call["pages"], call["returned"], call["units"]["read"]) == (2, 2, 1.0)
    assert [(row["path"], row["units"]["read"]) for row in explained["fields"]] == [("a", 0.5), ("b", 0.5)]

    tries = iter([plain_error(500), plain_error(500)])

    async def stumble(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        fault = next(tries, None) if seen.operation == "BatchGetItem" else None
        return await (fault or forward)(proxy, seen)

    proxy.always = stumble
    explained = explanation(await ask_explained(served, query))
    assert (explained["retries"], explained["calls"][0]["retries"], explained["requests"]) == (2, 2, 1)


async def test_a_cached_read_is_not_explained_as_a_call(served: Served, proxy: Proxy) -> None:
    with watch_engine(proxy) as wire:
        first, second = [explanation(await ask_explained(served, "{ teams { nodes { name } } }")) for _ in range(2)]

    assert wire.operations == ["Scan"]
    assert [(explained["requests"], explained["fields"][0]["hits"]) for explained in (first, second)] == [
        (1, 0),
        (0, 1),
    ]
    assert second["calls"] == []
    assert second["fields"][0]["patterns"] == ["TM-2"]


async def test_storing_a_response_is_explained_and_a_replay_is_not(served: Served, proxy: Proxy) -> None:
    await put_feed_items(served, user_item("ada"), post_item("p"))
    like = 'mutation { likePost(postId: "p") { createdAt } }'

    with watch_engine(proxy) as wire:
        first = await ask_explained(served, like, headers={"Idempotency-Key": "once"})
    again = await ask_explained(served, like, headers={"Idempotency-Key": "once"})

    explained = explanation(first)
    assert_matches_wire(explained, wire)
    assert [(row["path"], row["writes"] > 0) for row in explained["fields"]] == [(None, True), ("likePost", True)]
    assert {table for call in explained["calls"] if call["fields"] == [None] for table in call["tables"]} == {"gateway"}
    assert again == {"data": first["data"]}


async def test_a_failed_call_is_explained_beside_the_error(served: Served, proxy: Proxy) -> None:
    refuse = plain_error(400)

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (refuse if "IndexName" in seen.body else forward)(proxy, seen)

    proxy.always = answer
    answered = await ask_explained(served, '{ postsByTag(tag: "cats") { nodes { text } } }')

    assert answered["errors"][0]["extensions"]["code"] == "INTERNAL"
    (call,) = answered["extensions"]["dynamodb"]["calls"]
    assert (call["operation"], call["index"], call["failed"], call["units"]["read"]) == ("Query", "GSI2", True, 0.0)


# --- Over a socket ----------------------------------------------------------------------------------------------------


async def test_each_event_has_its_own_explanation(served: Served, socket: Any) -> None:
    posts = [post_item("one", "bob"), post_item("two", "bob")]
    await put_feed_items(served, user_item("ada"), user_item("bob"), *posts)
    query = 'subscription { homeFeedUpdated(userId: "ada") { post { text author { name } } } }'
    await socket.send_json({"id": "1", "type": "subscribe", "payload": explaining(query)})
    await served.settle(FEED)
    explanations = []
    for post in posts:
        await put_feed_items(served, feed_entry(post))
        explanations.append(explanation((await receive_message(socket))["payload"]))

    counts = [{row["path"]: (row["reads"], row["hits"]) for row in report["fields"]} for report in explanations]
    of_event = {"homeFeedUpdated.post": (1, 0), "homeFeedUpdated.post.author": (1, 0)}
    # The initial state is read for the subscription's field. A read for one event does not serve the next.
    assert counts == [{"homeFeedUpdated": (1, 0)} | of_event, of_event]
    assert [report["requests"] for report in explanations] == [3, 2]
    assert [report["units"]["read"] for report in explanations] == [2.5, 1.5]

    # Delivered explanations are not kept, because a subscription has no end.
    await socket.close()
    await until(lambda: bool(served.reports))
    (report,) = served.reports
    assert (report.calls, report.explained_calls.calls, report.explained_calls.hits) == (5, [], [])


async def test_a_subscription_that_fails_at_its_start_is_explained_in_its_only_event(
    served: Served, socket: Any
) -> None:
    query = 'subscription { matchUpdates(matchId: "nope") { version } }'
    headers = served.headers("ada", Role.ADMIN) | {"X-Explain": "1", "Accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        [event] = [line[6:] for line in (await response.text()).splitlines() if line.startswith("data: {")]
    result = orjson.loads(event)
    # graphql-transport-ws has no extensions in error messages.
    await socket.send_json({"id": "1", "type": "subscribe", "payload": explaining(query)})
    message = await receive_message(socket)

    assert [result["errors"][0]["extensions"]["code"], "data" in result] == ["NOT_FOUND", False]
    explanation = result["extensions"]["dynamodb"]
    assert [row["path"] for row in explanation["fields"]] == ["matchUpdates"]
    assert (message["type"], message["payload"]) == ("error", result["errors"])
    assert len(served.reports) == 2
    for report in served.reports:
        assert (report.stage, report.codes) == (Stage.EXECUTION, ["NOT_FOUND"])
        assert report.calls == len(explanation["calls"]) > 0


async def test_a_subscription_that_its_resolver_refuses_is_explained(served: Served) -> None:
    query = 'subscription { sightingReported(area: "Nowhere") { sightingId } }'
    headers = served.headers("ada", Role.ADMIN) | {"X-Explain": "1", "Accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        (event,) = [line[6:] for line in (await response.text()).splitlines() if line.startswith("data: {")]
    result = orjson.loads(event)
    assert result["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
    assert result["extensions"]["dynamodb"]["requests"] == 0


async def test_the_error_of_a_source_is_explained_with_its_calls(served: Served) -> None:
    """The source has read the watches before it failed."""
    query = 'subscription { watchAlerts(userId: "ada") { sightingId } }'
    headers = served.headers("ada", Role.ADMIN) | {"X-Explain": "1", "Accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        await served.settle(BLIP)
        assert served.gateway.services is not None
        (followed,) = served.gateway.services.changes._tables.values()
        followed.log.end(ChangesLost("lost"))
        (event,) = [line[6:] for line in (await response.text()).splitlines() if line.startswith("data: {")]
    result = orjson.loads(event)
    assert result["errors"][0]["extensions"]["code"] == ChangesLost.code
    assert result["extensions"]["dynamodb"]["requests"] == 1


async def test_queries_over_a_socket_are_explained_on_demand(served: Served, socket: Any) -> None:
    await socket.send_json({"id": "1", "type": "subscribe", "payload": explaining(SIGHTINGS)})
    assert explanation((await receive_message(socket))["payload"])["requests"] == 1
    assert (await receive_message(socket))["type"] == "complete"

    await socket.send_json({"id": "2", "type": "subscribe", "payload": {"query": SIGHTINGS}})
    assert "extensions" not in (await receive_message(socket))["payload"]


async def test_replayed_events_are_explained(served: Served, socket: Any) -> None:
    posts = [post_item(name, "bob") for name in ("one", "two", "three")]
    await put_feed_items(served, user_item("ada"), user_item("bob"), *posts)
    query = 'subscription { homeFeedUpdated(userId: "ada") { post { text author { name } } } }'
    await socket.send_json({"id": "1", "type": "subscribe", "payload": explaining(query)})
    await served.settle(FEED)
    await put_feed_items(served, feed_entry(posts[0]))
    last = (await receive_message(socket))["payload"]["extensions"]["eventId"]
    await socket.send_json({"id": "1", "type": "complete"})
    await put_feed_items(served, feed_entry(posts[1]))

    again = explaining(query)
    again["extensions"]["resumeAfter"] = last
    await socket.send_json({"id": "2", "type": "subscribe", "payload": again})
    events = [(await receive_message(socket))["payload"]]
    await put_feed_items(served, feed_entry(posts[2]))
    events.append((await receive_message(socket))["payload"])
    texts = [event["data"]["homeFeedUpdated"]["post"]["text"] for event in events]
    assert texts == [posts[1]["text"], posts[2]["text"]]
    assert [explanation(event)["requests"] for event in events] == [3, 2]
    assert len({last, *(event["extensions"]["eventId"] for event in events)}) == 3
    assert not any("resync" in event["extensions"] for event in events)


@pytest.mark.parametrize("last", ["nobody.0.0", "nobody.123abc.5"])
async def test_a_resync_is_explained_once(served: Served, socket: Any, last: str) -> None:
    query = 'subscription { homeFeedUpdated(userId: "ada") { post { text } } }'
    payload = explaining(query)
    payload["extensions"]["resumeAfter"] = last
    await socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
    event = (await receive_message(socket))["payload"]
    assert (event["data"], [error["extensions"]["code"] for error in event["errors"]]) == (None, ["RESYNC"])
    await put_feed_items(served, user_item("bob"), post_item("one", "bob"))
    await put_feed_items(served, feed_entry(post_item("one", "bob")))
    assert explanation((await receive_message(socket))["payload"])["requests"] == 2


# --- The sums --------------------------------------------------------------------------------------------------------

HALVES = st.integers(0, 400).map(lambda halves: halves / 2)

FIELDS = st.sampled_from(["a", "a.b", "c", None])

KEYS = st.lists(st.tuples(FIELDS, st.sampled_from(["feed", "blip"])), min_size=1, max_size=30)


def call_of(operation: str, asks: list[TracedRead], units: dict[str, float], began: float = 0.0) -> Call:
    tables = {ask.table: None for ask in asks}
    keys = [{"PK": {"S": f"k{number}"}} for number in range(len(asks))]
    details = CallDetails(tuple(asks), 0, 0, 0, {f"x-{table}": (units.get(table, 0.0), 0.0) for table in tables})
    request: dict[str, Any] = {"RequestItems": {f"x-{table}": {"Keys": keys} for table in tables}}
    total = sum(read for read, _ in details.units.values())
    return Call(operation, PreparedRequest.of(request), started_at=began, units=total, details=details)


@given(st.lists(st.tuples(KEYS, HALVES, HALVES), max_size=5), st.lists(FIELDS, max_size=5))
def test_the_shares_of_the_fields_add_up_to_the_whole(
    batches: list[tuple[list[tuple[str | None, str]], float, float]], hits: list[str | None]
) -> None:
    meter = Meter()
    for keys, feed, blip in batches:
        asks = [TracedRead(path, "P-1", table) for path, table in keys]
        meter.calls.append(call_of("BatchGetItem", asks, {"feed": feed, "blip": blip}))
    meter.hits = [SharedRead(path, "P-1", None) for path in hits]

    explained = explanation_of(meter, prefix="x-", estimate=0.0, source=None, redact=str)

    assert explained["units"]["read"] == meter.units
    assert sum(row["units"]["read"] for row in explained["fields"]) == meter.units
    assert sum(row["reads"] for row in explained["fields"]) == sum(len(keys) for keys, *_ in batches)
    assert sum(row["hits"] for row in explained["fields"]) == len(hits)
    assert all(row["units"]["read"] * 2 % 1 == 0 for row in explained["fields"])


def test_a_long_explanation_is_truncated_and_says_so() -> None:
    meter = Meter()
    for number in range(MAX_CALLS + 7):
        asks = [TracedRead(f"field{number}", "P-1", "feed") for _ in range(MAX_KEYS + 3)]
        meter.calls.append(call_of("BatchGetItem", asks, {"feed": 51.5}, began=number))

    explained = explanation_of(meter, prefix="x-", estimate=0.0, source=None, redact=str)

    assert len(explained["calls"]) == MAX_CALLS
    assert explained["omitted"] == {"calls": 7, "fields": 0}
    assert (
        explained["units"]["read"] == 51.5 * (MAX_CALLS + 7) == sum(row["units"]["read"] for row in explained["fields"])
    )
    assert (len(explained["calls"][0]["keys"]), explained["calls"][0]["omittedKeys"]) == (MAX_KEYS, 3)
    assert sum(len(call["keys"]) for call in explained["calls"]) == 2000
    assert explained["calls"][0]["tables"] == ["feed"]
    assert len(orjson.dumps(explained)) < 250_000
