"""Routers in front of the gateway and a second subgraph: Apollo Server with @apollo/gateway, and Hive Gateway."""

from dataclasses import replace
from typing import Any

import pytest

from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from resolvers.shared.global_ids import global_id
from server.documents.settings import DocumentSettings
from server.observability import operation_log
from server.operations.report import Report
from server.operations.request import Transport
from server.settings import Settings
from tests.support.feed_steps import create_profiles
from tests.support.logs import captured_lines
from tests.support.match_documents import DOCUMENT, write_match_items
from tests.support.notifications import notification_item
from tests.support.served import Served, call_name
from tests.support.sse import blocks
from tests.support.supergraphs import ROUTERS, router
from tests.support.until import until

every_router = pytest.mark.parametrize("composer", ROUTERS)
NOTIFICATIONS = '{ notifications(userId: "ada") { nodes { id } } }'
OF_SECOND = """query ($matches: [ID!]!, $users: [ID!]!) {
  matchesWithTickets(ids: $matches) { ticketPrice id league { leagueId } }
  ratedUsers(ids: $users) { rating name }
  tickets { nodes pageInfo { hasNextPage } }
}"""
RECEIVED = 'subscription { notificationReceived(userId: "ada") { notificationId actor { name rating } } }'
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
USERS = [global_id("User", name) for name in ("ada", "bob")]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, documents=DocumentSettings(federation=True))


@pytest.fixture
async def written(served: Served) -> None:
    """Store the match `m1` and the users `ada` and `bob`."""
    await create_profiles(served, "ada", "bob")
    write_match_items(served, *DOCUMENT)


async def ask_router(served: Served, url: str, query: str, variables: Any = None, **headers: str) -> Any:
    served.reports.clear()
    async with served.http.post(url, json={"query": query, "variables": variables}, headers=headers) as response:
        return await response.json()


def calls_behind_router(reports: list[Report]) -> list[str]:
    return sorted(call_name(call) for report in reports for call in report.latest_calls)


@every_router
async def test_a_router_adds_the_fields_of_the_second_subgraph(served: Served, written: None, composer: str) -> None:
    query = '{ match(id: "m1") { leagueCode ticketPrice } nodes(ids: ["%s"]) { id ... on User { name rating } } }'

    async with router(served, composer) as url:
        answer = await ask_router(served, url, query % USERS[0])

    assert answer == {
        "data": {
            "match": {"leagueCode": "IPL", "ticketPrice": 20},
            "nodes": [{"id": USERS[0], "name": "Ada", "rating": len(USERS[0]) / 2}],
        }
    }


@every_router
async def test_a_router_reads_entities_of_the_gateway(served: Served, written: None, composer: str) -> None:
    async with router(served, composer) as url:
        answer = await ask_router(served, url, OF_SECOND, {"matches": ["m1"], "users": USERS})

    assert answer == {
        "data": {
            "matchesWithTickets": [{"ticketPrice": 20, "id": global_id("Match", "m1"), "league": None}],
            "ratedUsers": [
                {"rating": len(id) / 2, "name": name} for id, name in zip(USERS, ("Ada", "Bob"), strict=True)
            ],
            "tickets": {"nodes": ["T1"], "pageInfo": {"hasNextPage": False}},
        }
    }
    # Hive Gateway sends both fields in one operation, Apollo's an operation for each.
    calls = {
        "apollo": ["BatchGetItem feed", "GetItem cricket-fixtures"],
        "guild": ["BatchGetItem cricket-fixtures+feed"],
    }
    assert calls_behind_router(served.reports) == calls[composer]


@every_router
async def test_errors_keep_their_code_and_name_the_path_of_the_client(
    served: Served, written: None, composer: str
) -> None:
    many = [global_id("User", str(number)) for number in range(101)]

    async with router(served, composer) as url:
        without_token = await ask_router(served, url, NOTIFICATIONS)
        of_another = await ask_router(served, url, NOTIFICATIONS, **served.headers("bob", Role.USER))
        sold = await ask_router(served, url, '{ matchesWithTickets(ids: ["sold-out"]) { matchId ticketPrice } }')
        too_many = await ask_router(
            served, url, "query ($ids: [ID!]!) { ratedUsers(ids: $ids) { name } }", {"ids": many}
        )

    assert codes_and_paths(without_token) == [("UNAUTHENTICATED", ["notifications"])]
    assert codes_and_paths(of_another) == [("FORBIDDEN", ["notifications"])]
    assert sold["data"] == {"matchesWithTickets": [{"matchId": "sold-out", "ticketPrice": None}]}
    assert [error["message"] for error in sold["errors"]] == ["No tickets are left."]
    assert "BAD_USER_INPUT" in {code for code, _ in codes_and_paths(too_many)}


def codes_and_paths(answer: Any) -> list[tuple[str, Any]]:
    return [(error["extensions"]["code"], error.get("path")) for error in answer["errors"]]


@every_router
async def test_the_gateway_receives_the_headers_of_the_client(served: Served, written: None, composer: str) -> None:
    headers = {"X-Request-Id": "client-7", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}

    async with router(served, composer) as url:
        with captured_lines() as lines:
            answer = await ask_router(
                served, url, "{ me { userId user { rating } } }", **headers, **served.headers("ada", Role.USER)
            )

    assert answer == {"data": {"me": {"userId": "ada", "user": {"rating": len(USERS[0]) / 2}}}}
    (line,) = lines.of(operation_log.LOGGER)
    assert (line["requestId"], line["traceId"]) == ("client-7", TRACE)


@pytest.mark.parametrize("transport", [Transport.EVENTS, Transport.WEBSOCKET])
async def test_subscriptions_through_hive_gateway(served: Served, written: None, transport: Transport) -> None:
    socket = {
        "kind": "ws",
        "location": f"{served.url.replace('http', 'ws')}/graphql",
        "headers": [["authorization", "{context.headers.authorization}"]],
    }
    transports = {"*.http": {"options": {"subscriptions": socket}}} if transport is Transport.WEBSOCKET else {}
    accept = {"Accept": "text/event-stream"}

    async with router(served, "guild", transportEntries=transports) as url:
        served.reports.clear()
        async with served.http.post(
            url, json={"query": RECEIVED}, headers={**accept, **served.headers("ada", Role.USER)}
        ) as response:
            await served.settle(FEED)
            await served.store().write_all(FEED, puts=[notification_item("n1")])
            events = (block async for block in blocks(response) if block != ":")
            received = (await anext(events))["data"]["data"]["notificationReceived"]
        async with served.http.post(url, json={"query": RECEIVED}, headers=accept) as response:
            refused = [block async for block in blocks(response) if block != ":"]
        await until(lambda: len(served.reports) == 2)

    assert received["actor"] == {"name": "Bob", "rating": len(USERS[1]) / 2}
    assert codes_and_paths(refused[0]["data"]) == [("UNAUTHENTICATED", ["notificationReceived"])]
    assert refused[1]["event"] == "complete"
    assert [report.transport for report in served.reports] == [transport] * 2
