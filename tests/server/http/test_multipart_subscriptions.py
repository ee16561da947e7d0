"""Multipart subscriptions: the bytes on the wire, the choice of the format, the ends of streams, and public clients."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.admission.callers import Caller
from server.http.streams.multipart import MultipartSubscription
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.operations.outcome import Outcome
from server.operations.request import Transport
from server.shutdown import Delays
from tests.support import node_client
from tests.support.served import Served
from tests.support.sightings import report_sighting
from tests.support.sse import EVENTS, serve_event_streams
from tests.support.toy_sockets import NOW, world
from tests.support.until import until

# The header of Apollo Client 4 and of Apollo Router.
APOLLO = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json"
ROUTER = 'multipart/mixed;subscriptionSpec="1.0", application/json'
ONLY = "multipart/mixed;subscriptionSpec=1.0"
DELIMITER = b"\r\n--graphql"
PART = b"\r\ncontent-type: application/json; charset=utf-8\r\n\r\n"


async def parts(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """Yield the bodies of the parts. Each ends with the next delimiter, as clients read them."""
    assert response.headers["content-type"] == 'multipart/mixed; boundary="graphql"; subscriptionSpec=1.0'
    assert await response.content.readexactly(len(DELIMITER)) == DELIMITER
    async with asyncio.timeout(50):
        while (head := await response.content.readexactly(2)) != b"--":
            part = head + await response.content.readuntil(DELIMITER)
            assert part.startswith(PART)
            yield json.loads(part.removeprefix(PART).removesuffix(DELIMITER))
        assert await response.content.read() == b"\r\n"


async def without_heartbeats(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for part in parts(response):
        if part != {}:
            yield part


async def test_the_bytes_of_a_multipart_subscription() -> None:
    async with serve_event_streams() as here, here.ask("subscription { count(to: 2) }", accept=APOLLO) as response:
        first, second = (b'{"payload":{"data":{"count":%d}}}' % number for number in range(2))
        expected = DELIMITER + PART + first + DELIMITER + PART + second + DELIMITER + b"--\r\n"
        assert await response.read() == expected
    assert response.status == 200
    assert (response.headers["cache-control"], response.headers["vary"]) == ("no-store", "accept")
    assert [report.transport for report in here.reports] == [Transport.MULTIPART]


@pytest.mark.parametrize(
    ("accept", "query", "subscription"),
    [
        (APOLLO, "application/json", "multipart/mixed"),
        (ROUTER, "application/json", "multipart/mixed"),
        (ONLY, "multipart/mixed", "multipart/mixed"),
        (f"{ONLY}, {EVENTS}", EVENTS, EVENTS),
        (f"{ONLY}, {EVENTS};q=0.5, application/json", "application/json", "multipart/mixed"),
        # Other protocols in the same media type.
        ("multipart/mixed", None, None),
        ("multipart/mixed;deferSpec=20220824, application/json", "application/json", None),
        ("multipart/mixed;subscriptionSpec=2.0, application/json", "application/json", None),
    ],
)
async def test_the_accepted_types_select_multipart(accept: str, query: str | None, subscription: str | None) -> None:
    async with serve_event_streams() as here:
        for text, expected in (("{ hello }", query), ("subscription { count }", subscription)):
            async with here.ask(text, accept=accept) as response:
                if expected is None:
                    assert response.status == 406
                    assert "multipart/mixed;subscriptionSpec=1.0" in (await response.json())["errors"][0]["message"]
                else:
                    assert response.headers["content-type"].partition(";")[0] == expected


async def test_the_errors_of_graphql_are_in_the_payload() -> None:
    async with serve_event_streams() as here:
        async with here.ask("subscription { nope }", accept=ONLY) as response:
            [refused] = [part async for part in parts(response)]
        assert refused["payload"]["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
        async with here.ask('subscription { failing(how: "domain") }', accept=APOLLO) as response:
            first, last = [part async for part in parts(response)]
    assert first == {"payload": {"data": {"failing": 0}}}
    assert last["payload"]["errors"][0]["extensions"]["code"] == "NOT_FOUND"
    assert "errors" not in last


async def test_a_temporary_end_is_an_error_of_the_transport() -> None:
    slow = 'subscription { failing(how: "slow") }'
    async with serve_event_streams() as here, here.ask(slow, accept=APOLLO) as response:
        first, last = [part async for part in parts(response)]
    assert first == {"payload": {"data": {"failing": 0}}}
    assert last["payload"] is None
    assert last["errors"][0]["extensions"]["code"] == "SLOW_SUBSCRIBER"
    assert last["errors"][0]["extensions"]["retryable"] is True


async def test_a_silent_multipart_subscription_has_heartbeats_until_its_token_expires() -> None:
    async with serve_event_streams(StreamLimits(heartbeat=0.02)) as here:
        async with here.ask("subscription { held }", token="ann/user/1", accept=APOLLO) as response:
            stream = parts(response)
            seen = [await anext(stream)]
            while seen.count({}) < 2:
                seen.append(await anext(stream))
            assert [part for part in seen if part] == [{"payload": {"data": {"held": 0}}}]
            world.now = NOW + 1
            [last] = [part async for part in stream if part]
        assert last["payload"]["errors"][0]["extensions"] == {"code": "UNAUTHENTICATED"}
        assert world.held == 0


async def test_a_shutdown_ends_a_multipart_subscription_with_an_error_of_the_transport() -> None:
    async with serve_event_streams() as here, here.ask("subscription { held }", accept=APOLLO) as response:
        stream = without_heartbeats(response)
        assert await anext(stream) == {"payload": {"data": {"held": 0}}}
        draining = asyncio.create_task(here.streams.drain(Delays(1, random.Random(1)), 50))
        [last] = [part async for part in stream]
        await draining
    assert last["payload"] is None
    assert last["errors"][0]["message"] == "The gateway shuts down. Subscribe again."
    extensions = last["errors"][0]["extensions"]
    assert (extensions["code"], extensions["retryable"]) == ("UNAVAILABLE", True)
    assert extensions["retryAfter"] >= 0


async def test_a_subscription_that_completes_during_a_shutdown_has_no_error() -> None:
    streams, sent = ResponseStreams(), bytearray()

    async def outcomes() -> AsyncGenerator[Outcome, None]:
        yield Outcome({"count": 1})
        draining.append(asyncio.create_task(streams.drain(Delays(1, random.Random(1)), 50)))

    async def send(message: Any) -> None:
        sent.extend(message.get("body", b""))

    draining: list[asyncio.Task[None]] = []
    arguments: Any = (outcomes(), MultipartSubscription(), Caller(None, "::1"), asyncio.Event().wait, send)
    await asyncio.create_task(streams.serve(*arguments))
    await draining[0]
    assert sent == DELIMITER + PART + b'{"payload":{"data":{"count":1}}}' + DELIMITER + b"--\r\n"


async def test_a_multipart_subscription_ends_when_its_client_leaves() -> None:
    async with serve_event_streams(StreamLimits(heartbeat=0.02)) as here:
        async with here.ask("subscription { held }", accept=APOLLO) as response:
            assert await anext(without_heartbeats(response)) == {"payload": {"data": {"held": 0}}}
            assert world.held == 1
            response.close()
        await until(lambda: world.held == 0)


# The public clients

LISTEN = "subscription ($area: String) { sightingReported(area: $area) { id area } }"


async def test_apollo_client_and_meros_follow_and_leave(served: Served) -> None:
    headers = served.headers("ada", Role.USER)
    async with node_client.running_script("multipart.js", url=f"{served.url}/graphql", headers=headers) as script:
        for client in ("apollo", "meros"):
            await script.tell({"client": client, "query": LISTEN, "variables": {"area": "Harbor"}, "take": 2})
            await served.settle(BLIP)
            reported = [
                await report_sighting(served, area=area, category="Cats", user="ada")
                for area in ("Harbor", "Downtown", "Harbor")
            ]
            for number in (0, 2):
                received = (await script.said())["next"]
                data = received if client == "apollo" else received["payload"]["data"]
                assert data["sightingReported"]["id"] == reported[number]["id"]
            assert await script.said() == {"left": 2}
            services = served.gateway.services
            assert services is not None
            changes = services.changes
            await until(lambda: changes.followers(BLIP) == 0)  # noqa: B023
    assert len(served.gateway.server.http.streams) == 0


async def test_apollo_client_distinguishes_the_errors_of_graphql_and_of_the_transport() -> None:
    async with (
        serve_event_streams(StreamLimits(heartbeat=0.02)) as here,
        node_client.running_script("multipart.js", url=here.url, headers={}) as script,
    ):
        await script.tell({"client": "apollo", "query": "subscription { count(to: 2) }"})
        assert [await script.said() for _ in range(3)] == [
            {"next": {"count": 0}},
            {"next": {"count": 1}},
            {"complete": 2},
        ]

        await script.tell({"client": "apollo", "query": 'subscription { failing(how: "domain") }'})
        assert await script.said() == {"next": {"failing": 0}}
        assert (await script.said())["graphql"][0]["extensions"]["code"] == "NOT_FOUND"
        assert await script.said() == {"complete": 2}

        await script.tell({"client": "apollo", "query": 'subscription { failing(how: "slow") }'})
        assert await script.said() == {"next": {"failing": 0}}
        assert (await script.said())["protocol"][0]["extensions"]["code"] == "SLOW_SUBSCRIBER"
        assert await script.said() == {"complete": 2}

        await script.tell({"client": "apollo", "query": "subscription { held }"})
        assert await script.said() == {"next": {"held": 0}}
        await here.streams.close()
        assert (await script.said())["protocol"][0]["extensions"]["retryable"] is True
