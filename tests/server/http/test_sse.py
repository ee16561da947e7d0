"""Server-sent events: the bytes on the wire, and the ends of streams; and the public client on the real engine."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.admission.connection_limits import Connections, HttpConnectionLimits
from server.http.protocol import UVICORN_OPTIONS
from server.http.streams.response_stream import StreamLimits
from server.operations.request import Transport
from tests.support import node_client
from tests.support.served import Served
from tests.support.sightings import report_sighting
from tests.support.sse import EVENTS, QUICK, blocks, next_of, serve_event_streams
from tests.support.toy_sockets import NOW, world
from tests.support.until import until

ALL = "application/graphql-response+json, application/json, text/event-stream, multipart/mixed"
COMPLETE = {"id": "end", "event": "complete", "data": ""}


async def test_the_bytes_of_a_subscription() -> None:
    async with serve_event_streams() as here, here.ask("subscription { count(to: 2) }") as response:
        assert (await response.read()).decode() == (
            "retry: 3000\n\n"
            'id: 1\nevent: next\ndata: {"data":{"count":0}}\n\n'
            'id: 2\nevent: next\ndata: {"data":{"count":1}}\n\n'
            "id: end\nevent: complete\ndata:\n\n"
        )
    assert response.status == 200
    sent = {name: response.headers[name] for name in ("content-type", "cache-control", "x-accel-buffering", "vary")}
    assert sent == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        "vary": "accept",
    }
    assert [report.transport for report in here.reports] == [Transport.EVENTS]


async def test_a_query_and_a_mutation_are_one_event() -> None:
    async with serve_event_streams() as here:
        for query, data in (("{ hello }", {"hello": "world"}), ("mutation { change }", {"change": "changed"})):
            assert (await here.whole(query))[1:] == [next_of(1, {"data": data}), COMPLETE]
        assert {report.transport for report in here.reports} == {Transport.EVENTS}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("{", "BAD_USER_INPUT"),
        ("subscription { nope }", "BAD_USER_INPUT"),
        ("subscription ($to: Int!) { count(to: $to) }", "BAD_USER_INPUT"),
        ("{ slow }", "TIMEOUT"),
        ("subscription { refused }", "UNAUTHENTICATED"),
    ],
)
async def test_an_operation_that_never_executes_is_reported_in_the_stream(query: str, code: str) -> None:
    async with serve_event_streams(deadline=0.3 if code == "TIMEOUT" else 50) as here:
        _, received, complete = await here.whole(query)
        assert "data" not in received["data"]
        assert received["data"]["errors"][0]["extensions"]["code"] == code
        assert complete == COMPLETE


@pytest.mark.parametrize(("how", "code"), [("domain", "NOT_FOUND"), ("slow", "SLOW_SUBSCRIBER"), ("bug", "INTERNAL")])
async def test_a_source_that_fails_ends_the_stream_with_its_error(how: str, code: str) -> None:
    async with serve_event_streams() as here:
        _, first, last, *complete = await here.whole(f'subscription {{ failing(how: "{how}") }}')
        assert first == next_of(1, {"data": {"failing": 0}})
        assert last["data"]["errors"][0]["extensions"]["code"] == code
        assert "swordfish" not in json.dumps(last)
        # A temporary end keeps the last id, and the client reconnects.
        assert (last.get("id"), complete) == ((None, []) if how == "slow" else ("2", [COMPLETE]))


async def test_an_event_may_have_errors_beside_its_data() -> None:
    async with serve_event_streams() as here:
        world.go.set()
        _, *events, complete = await here.whole("subscription { events { number failing } }")
        assert [event["data"]["data"] for event in events] == [
            {"events": {"number": n, "failing": None}} for n in range(3)
        ]
        assert complete == COMPLETE


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"data": b"{", "headers": {"content-type": "application/json"}}, 400, "BAD_USER_INPUT"),
        ({"data": b"{}", "headers": {"content-type": "text/plain"}}, 415, "BAD_USER_INPUT"),
        ({"json": {"query": "{ me }"}, "headers": {"authorization": "Bearer wrong"}}, 401, "UNAUTHENTICATED"),
        ({"json": {"query": "{ me }"}, "headers": {"authorization": "Bearer unlucky"}}, 503, "UNAVAILABLE"),
    ],
)
async def test_a_bad_graphql_request_gets_an_http_status(request_: dict[str, Any], status: int, code: str) -> None:
    headers = {"accept": EVENTS} | request_.pop("headers")
    async with serve_event_streams() as here, here.http.post(here.url, headers=headers, **request_) as response:
        body = await response.json()
        assert (response.status, body["errors"][0]["extensions"]["code"]) == (status, code)


async def test_by_get_there_are_queries_and_subscriptions_but_no_mutations() -> None:
    async with serve_event_streams() as here:
        for query, status in (("{ hello }", 200), ("subscription { count }", 200), ("mutation { change }", 405)):
            async with here.http.get(f"{here.url}?query={quote(query)}", headers={"accept": EVENTS}) as response:
                assert response.status == status
                assert (await response.read()).endswith(b"event: complete\ndata:\n\n") is (status == 200)
        assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("accept", "query", "subscription"),
    [
        (ALL, "application/graphql-response+json", EVENTS),
        (f"application/json, {EVENTS}", "application/json", EVENTS),
        (f"application/json;q=0.5, {EVENTS}", EVENTS, EVENTS),
        (f"application/json, {EVENTS};q=0.5", "application/json", EVENTS),
        ("*/*", "application/json", None),
    ],
)
async def test_a_client_that_accepts_both_gets_events_for_subscriptions(
    accept: str, query: str, subscription: str | None
) -> None:
    async with serve_event_streams() as here:
        for text, expected in (("{ hello }", query), ("subscription { count }", subscription)):
            async with here.ask(text, accept=accept) as response:
                if expected is None:
                    assert response.status == 406
                else:
                    assert response.headers["content-type"].partition(";")[0] == expected


async def first_event(stream: AsyncIterator[Any]) -> Any:
    """Return the next block that is no sign of life."""
    while (block := await anext(stream)) == ":":
        pass
    return block


async def test_a_silent_stream_gives_signs_of_life_until_its_client_leaves() -> None:
    async with serve_event_streams(StreamLimits(heartbeat=0.02)) as here:
        async with here.ask("subscription { held }") as response:
            stream = blocks(response)
            first = [await anext(stream), await first_event(stream)]
            assert first == [{"retry": "3000"}, next_of(1, {"data": {"held": 0}})]
            assert [await anext(stream) for _ in range(2)] == [":", ":"]
            assert world.held == 1
            response.close()
        await until(lambda: world.held == 0)


async def test_the_work_for_a_query_ends_when_its_client_leaves() -> None:
    async with serve_event_streams() as here:
        async with here.ask("{ slow }") as response:
            await until(lambda: world.held == 1)
            response.close()
        await until(lambda: world.held == 0)
        assert here.reports[0].seconds < 15  # the query itself takes 20 s


async def test_no_event_is_sent_once_the_token_has_expired() -> None:
    async with (
        serve_event_streams() as here,
        here.ask("subscription { events { number } }", token="ann/user/2") as response,
    ):
        stream = blocks(response)
        await anext(stream)
        world.go.set()  # each event takes a second
        seen = [await anext(stream) for _ in range(3)]
        assert seen[0] == next_of(1, {"data": {"events": {"number": 0}}})
        assert seen[1]["data"]["errors"][0]["extensions"] == {"code": "UNAUTHENTICATED"}
        assert (seen[1]["id"], seen[2]) == ("2", COMPLETE)


async def test_a_silent_stream_ends_soon_after_its_token_has_expired() -> None:
    async with serve_event_streams(StreamLimits(heartbeat=0.02)) as here:
        async with here.ask("subscription { held }", token="ann/user/1") as response:
            stream = blocks(response)
            assert (await anext(stream), (await first_event(stream))["id"]) == ({"retry": "3000"}, "1")
            world.now = NOW + 1
            rest = [block async for block in stream if block != ":"]
        assert rest[0]["data"]["errors"][0]["extensions"] == {"code": "UNAUTHENTICATED"}
        assert rest[1:] == [COMPLETE]
        assert world.held == 0


async def test_streams_end_without_being_complete_when_the_server_stops() -> None:
    async with serve_event_streams() as here, here.ask("subscription { held }") as response:
        stream = blocks(response)
        assert [await anext(stream) for _ in range(2)][1] == next_of(1, {"data": {"held": 0}})
        await here.streams.close()
        assert world.held == 0
        assert [block async for block in stream] == []  # a regular end: the client reconnects


async def test_a_browser_that_reconnects_after_the_end_is_told_to_stay_away() -> None:
    async with serve_event_streams() as here:
        headers = {"accept": EVENTS, "last-event-id": "end"}
        async with here.http.get(f"{here.url}?query=%7Bhello%7D", headers=headers) as response:
            assert (response.status, await response.read()) == (204, b"")
        async with here.http.get(f"{here.url}?query=%7Bhello%7D", headers=headers | {"last-event-id": "1"}) as response:
            assert response.status == 200


IMPATIENT = {"connections": Connections(http_limits=HttpConnectionLimits(silent_seconds=0.2))}


@pytest.mark.parametrize(
    "how",
    [
        {"limits": QUICK},
        {"limits": replace(QUICK, send_timeout=30), "state": IMPATIENT, **UVICORN_OPTIONS},
    ],
    ids=["by its stream", "by the protocol below"],
)
async def test_a_client_that_does_not_read_stops_its_own_source_and_is_disconnected(how: dict[str, Any]) -> None:
    async with serve_event_streams(**how) as here:
        port = int(here.url.rsplit(":", 1)[1].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            body = json.dumps({"query": "subscription { flood }"})
            head = f"accept: {EVENTS}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            deaf.sendall(f"POST /graphql HTTP/1.1\r\nhost: x\r\n{head}\r\n{body}".encode())
            await until(lambda: world.held == 1)
            await until(lambda: world.held == 0)
            # The kernel's buffers, and one more event: each has 200 kB.
            assert here.reports[0].events < 60


# The public client graphql-sse, and the real engine


LISTEN = "subscription ($area: String) { sightingReported(area: $area) { sightingId area } }"


async def test_the_public_client_asks_follows_and_leaves(served: Served) -> None:
    url = f"{served.url}/graphql"
    async with node_client.running_script("sse.js", url=url, headers=served.headers("ada", Role.USER)) as client:
        await client.tell(
            {"query": "query ($n: Int!) { earthquakes(first: $n) { nodes { place } } }", "variables": {"n": 1}}
        )
        assert await client.said() == {"next": {"data": {"earthquakes": {"nodes": []}}}}
        assert await client.said() == {"complete": 1}

        await client.tell({"query": "{ nope }"})
        assert (await client.said())["next"]["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
        assert await client.said() == {"complete": 1}

        await client.tell({"query": LISTEN, "variables": {"area": "Harbor"}, "take": 3})
        await served.settle(BLIP)
        received = []
        for area in ("Harbor", "Downtown", "Harbor", "Harbor"):
            received.append(await report_sighting(served, area=area, category="Cats", user="ada"))
        for number in (0, 2, 3):
            sighting = {"sightingId": received[number]["sightingId"], "area": "Harbor"}
            assert (await client.said())["next"]["data"] == {"sightingReported": sighting}
        assert await client.said() == {"left": 3}
    services = served.gateway.services
    assert services is not None
    await until(lambda: services.changes.followers(BLIP) == 0)
    assert len(served.gateway.server.http.streams) == 0
