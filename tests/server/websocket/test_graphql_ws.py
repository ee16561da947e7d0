"""The public npm client graphql-ws, with the gateway and its real engine."""

import asyncio
from typing import Any

import aiohttp
import pytest

from datastore.database import StoreOptions
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from runtime.container import Gateway
from server.settings import Settings
from server.websocket.transport import SocketLimits
from tests.support.node_client import documented_client, run_node_script, running_script
from tests.support.served import Clock, Served, listening
from tests.support.store_engines import make_tables
from tests.support.toy_sockets import ServedSockets as Toys
from tests.support.toy_sockets import serve_websockets

REPORT = """mutation ($description: String!) {
  reportSighting(input: { area: "Harbor", category: "Cats", description: $description }) { sightingId }
}"""


def websocket_url(served: Served) -> str:
    return served.url.replace("http", "ws") + "/graphql"


async def report_description(served: Served, description: str) -> None:
    answer = await served.ask(REPORT, {"description": description}, user="bob")
    assert answer.errors is None


def reported_payload(description: str) -> dict[str, Any]:
    return {"data": {"sightingReported": {"description": description}}}


def without_id(event: dict[str, Any]) -> dict[str, Any]:
    """Remove the extensions of an event, which must be its id only."""
    extensions = event.pop("extensions")
    assert extensions.keys() == {"eventId"}
    return event


async def test_operations_over_a_lazy_socket(served: Served) -> None:
    async with running_script(
        "graphql-ws.js", scenario="operations", url=websocket_url(served), token=served.token("ada")
    ) as client:
        assert await client.said() == {"idle": []}
        assert await client.said() == {"data": {"areas": list(served.gateway.settings.areas)}}
        refused = await client.said()
        assert refused["data"] is None
        assert refused["errors"][0]["path"] == ["requestLogs"]
        assert refused["errors"][0]["extensions"]["code"] == "FORBIDDEN"
        for _ in ("syntax", "validation"):
            (error,) = await client.said()
            assert error["extensions"]["code"] == "BAD_USER_INPUT"
        await served.settle(BLIP)
        await client.tell("go")
        assert [without_id(event) for event in await client.said()] == [
            reported_payload(description) for description in ("one", "two", "three")
        ]
        assert await client.said() == {"stillServed": True}
        events = (await client.said())["events"]
        assert events[0] == "connected"
        assert set(events[1::2]) == {"closed 1000"}
        await client.everything()


async def test_an_eager_socket_kept_alive_by_pings(served: Served) -> None:
    said = await run_node_script("graphql-ws.js", scenario="eager", url=websocket_url(served))
    assert said == ["connected", "alive", {"closed": 1000}]


async def test_a_token_renewed_without_connecting_again(served: Served, clock: Clock) -> None:
    tokens = served.gateway.server.tokens
    short, long = (tokens.issue("ada", Role.USER, lifetime=seconds) for seconds in (600, 1800))
    async with running_script("graphql-ws.js", scenario="renewal", url=websocket_url(served), token=short) as client:
        await served.settle(BLIP)
        await report_description(served, "before")
        assert without_id(await client.said()) == reported_payload("before")
        await client.tell(long)
        assert await client.said() == {"pong": {}}
        clock.forward(seconds=900)
        await report_description(served, "after")
        assert without_id(await client.said()) == reported_payload("after")
        await client.tell(served.token("bob"))
        closed = await client.said()
        assert closed["closed"] == 4403
        assert closed["reason"].startswith("Forbidden: the new token is not of the user who connected")


async def test_a_client_connects_again_when_the_server_was_restarted(
    settings: Settings, store_options: StoreOptions, clock: Clock
) -> None:
    gateway = Gateway(settings, store_options, now=clock)
    async with gateway.running(), aiohttp.ClientSession() as http:
        served = Served(gateway, settings.url, http, clock)
        assert gateway.database is not None
        await make_tables(gateway.database)
        async with running_script("graphql-ws.js", scenario="restart", url=websocket_url(served)) as client:
            async with listening(gateway):
                assert await client.said() == "connected"
                await served.settle(BLIP)
            assert await client.said() == {"closed": 1001}
            async with listening(gateway):
                while (said := await client.said()) != "connected":
                    assert said == {"closed": 1006}  # no listener was attached yet
                await served.settle(BLIP)
                await report_description(served, "again")
                assert without_id(await client.said()) == reported_payload("again")


@pytest.mark.proof
async def test_the_documented_client_resumes_two_subscriptions_on_one_socket(
    settings: Settings, store_options: StoreOptions, clock: Clock
) -> None:
    """The events of each subscription arrive without a gap and without a repeat, over two restarts of the server."""
    areas = ("Harbor", "Downtown")
    gateway = Gateway(settings, store_options, now=clock)
    async with gateway.running(), aiohttp.ClientSession() as http:
        served = Served(gateway, settings.url, http, clock)
        assert gateway.database is not None
        await make_tables(gateway.database)
        async with running_script(
            "resume.js", url=websocket_url(served), snippet=documented_client(), areas=areas
        ) as client:
            expected: dict[str, list[str]] = {area: [] for area in areas}
            received: dict[str, list[str]] = {area: [] for area in areas}
            for restart in range(3):
                async with listening(gateway):
                    # The client may connect before, between and after these reports.
                    for number, area in enumerate(("Harbor", "Downtown", "Harbor")):
                        if restart == 0 and number == 0:
                            assert await client.said() == "connected"
                            await served.settle(BLIP, len(areas))
                        description = f"{restart}.{number}"
                        await report_in(served, area, description)
                        expected[area].append(description)
                    while received != expected:
                        match await client.said():
                            case {"area": area, "description": description}:
                                received[area].append(description)
                            case said:
                                assert said in ("connected", "closed")


async def report_in(served: Served, area: str, description: str) -> None:
    mutation = "mutation ($input: ReportSightingInput!) { reportSighting(input: $input) { sightingId } }"
    sighting = {"area": area, "category": "Cats", "description": description}
    answer = await served.ask(mutation, {"input": sighting}, user="bob")
    assert answer.errors is None


async def ping_everybody(server: Toys) -> None:
    """Ping every socket repeatedly, as if the interval had passed each time."""
    while True:
        for socket in tuple(server.endpoint.sockets):
            if socket._acknowledged and not socket.is_over:
                socket.ping()
        await asyncio.sleep(0.05)


async def test_close_codes_and_reconnecting_clients() -> None:
    """Clients that send in time have long limits; clients that stay silent use servers of their own."""
    patient = SocketLimits(init_timeout=600, ping_every=600, unanswered_pings=1)
    hasty = SocketLimits(init_timeout=0.2)
    async with (
        serve_websockets(limits=patient) as usual,
        serve_websockets(limits=patient) as pinging,
        serve_websockets(limits=hasty) as at_once,
    ):
        pings = asyncio.create_task(ping_everybody(pinging))
        (found,) = await run_node_script(
            "close-codes.js", url=usual.url, urls={"noPongs": pinging.url, "noInit": at_once.url}
        )
        pings.cancel()
    fault = found["ourFault"].pop("reason")
    assert fault.startswith("Internal server error ")
    assert found == {
        way: {"code": code, "name": name, "attempts": attempts} | ({"reason": reason} if reason else {})
        for way, (code, name, attempts, reason) in {
            "garbage": (4400, "BadRequest", 1, "Invalid message: not an object"),
            "binary": (4400, "BadRequest", 1, "Invalid message: binary, and not text"),
            "tooLarge": (1009, None, 1, "a frame of 65,537 bytes, where the message may have 65,536 more"),
            "twoInits": (4429, "TooManyInitialisationRequests", 1, "Too many initialisation requests"),
            "sameId": (4409, "SubscriberAlreadyExists", 1, "Subscriber for 1 already exists"),
            "beforeTheAck": (4401, "Unauthorized", 1, "Unauthorized"),
            "noInit": (4408, "ConnectionInitialisationTimeout", 2, "Connection initialisation timeout"),
            "noSubprotocol": (4406, "SubprotocolNotAcceptable", 1, "Subprotocol not acceptable"),
            "wrongToken": (4403, "Forbidden", 2, "Forbidden: The token's signature is wrong."),
            "keysCannotBeFetched": (1013, None, 2, "The keys cannot be fetched."),
            "ourFault": (4500, "InternalServerError", 1, None),
            "noPongs": (4411, None, 2, "1 pings went unanswered"),
        }.items()
    }
