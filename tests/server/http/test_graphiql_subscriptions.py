"""How GraphiQL shows the end of a subscription and continues it, in Chromium."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest

from tests.support.command_line import GatewayProcess
from tests.support.graphiql import (
    context,
    editor_text,
    execute,
    gateway,
    open_page,
    page_that_errs,
    set_query,
    wait_for_response,
)
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page, WebSocketRoute, expect

__all__ = ["context", "gateway", "page_that_errs"]

FOLLOW = "subscription { sightingReported { description } }"
REPORT = """mutation {
  reportSighting(input: { area: "Harbor", category: "Cats", description: "%s" }) { sightingId }
}"""
# A socket to a port that the page's policy forbids fails as one to a server that is down.
UNREACHABLE_SOCKET = """globalThis.WebSocket = class extends WebSocket {
  constructor(url, protocols) { super(url.replace(`:${location.port}`, ':9'), protocols); }
}"""


class Sockets:
    """The WebSockets between a page and the gateway, with the messages that the page sent."""

    def __init__(self, page: "Page") -> None:
        self.open: list[WebSocketRoute] = []
        self.sent: list[dict[str, Any]] = []
        page.route_web_socket("**/graphql", self._connect)

    def _connect(self, socket: "WebSocketRoute") -> None:
        server = socket.connect_to_server()

        def send(message: "str | bytes") -> None:
            self.sent.append(json.loads(message))
            server.send(message)

        socket.on_message(send)
        self.open.append(socket)

    def cut(self, code: int, reason: str = "") -> None:
        """Close all sockets, as the gateway would."""
        for socket in self.open:
            socket.close(code=code, reason=reason)
        self.open.clear()

    def are_subscribed(self, page: "Page") -> bool:
        """Return whether the page has subscribed, after its messages so far were handled."""
        page.wait_for_timeout(20)
        return self.resume_ids() != []

    def resume_ids(self) -> list[str | None]:
        """Return what each subscription of the page continued after."""
        return [
            message["payload"]["extensions"]["resumeAfter"] for message in self.sent if message["type"] == "subscribe"
        ]


@pytest.fixture
def sockets(page_that_errs: "Page") -> Sockets:
    return Sockets(page_that_errs)


def subscribe_until_seen(page: "Page", gateway: GatewayProcess, words: str, query: str = FOLLOW) -> None:
    """Subscribe, and report sightings until one has arrived."""
    set_query(page, query)
    page.click("button.graphiql-execute-button")

    def is_seen() -> bool:
        gateway.data(REPORT % words, gateway.token())
        return words in editor_text(page, "response.json")

    until_blocking(is_seen)


def test_a_subscription_that_was_cut_resumes_where_it_ended(
    page_that_errs: "Page", sockets: Sockets, gateway: GatewayProcess
) -> None:
    page = page_that_errs
    open_page(page, gateway)
    subscribe_until_seen(page, gateway, "before the cut")
    sockets.cut(1012, '{"reconnectAfterMs":7}')

    ending = page.locator(".ending")
    expect(ending.locator("p")).to_have_text("The server is restarting. (Code 1012)")
    last = json.loads(editor_text(page, "response.json"))  # the last event stays visible
    gateway.data(REPORT % "while it was cut", gateway.token())
    ending.get_by_role("button", name="Resume").click()
    wait_for_response(page, "while it was cut")

    expect(ending.locator("p")).to_have_count(0)
    assert sockets.resume_ids() == [None, last["extensions"]["eventId"]]
    page.click("button.graphiql-execute-button")  # stops it
    expect(ending.locator("p")).to_have_count(0)


def test_the_end_is_shown_with_its_operation_only_and_a_new_run_starts_over(
    page_that_errs: "Page", sockets: Sockets, gateway: GatewayProcess
) -> None:
    page = page_that_errs
    open_page(page, gateway)
    subscribe_until_seen(page, gateway, "seen first")
    sockets.cut(4410, "Too slow: the queue is full")
    ending = page.locator(".ending p")
    expect(ending).to_have_text(
        "Events arrived faster than this page could read them. "
        "The server says: “Too slow: the queue is full”. (Code 4410)"
    )
    page.click("[role=tab] >> nth=1")
    expect(ending).to_have_count(0)
    page.click("[role=tab] >> nth=0")
    expect(ending).to_have_count(1)
    subscribe_until_seen(page, gateway, "seen later", FOLLOW.replace("{ desc", "{ area desc"))
    expect(ending).to_have_count(0)
    assert sockets.resume_ids() == [None, None]


def test_a_connection_that_closes_before_the_first_event_is_explained_in_the_result(
    page_that_errs: "Page", sockets: Sockets, gateway: GatewayProcess
) -> None:
    page = page_that_errs
    open_page(page, gateway)
    set_query(page, 'subscription { watchAlerts(userId: "demo") { area } }')
    page.click("button.graphiql-execute-button")
    until_blocking(lambda: sockets.are_subscribed(page))
    sockets.cut(4403, "Forbidden: the token has expired")

    words = (
        "The token is invalid or has expired. Choose a role again, or enter another token under Headers. "
        "The server says: “Forbidden: the token has expired”. (Code 4403)"
    )
    assert json.loads(wait_for_response(page, "Code 4403")) == {"errors": [{"message": words}]}


def test_a_gateway_that_is_down_is_reported_in_words(page_that_errs: "Page", gateway: GatewayProcess) -> None:
    page = page_that_errs
    page.add_init_script(UNREACHABLE_SOCKET)
    open_page(page, gateway)
    set_query(page, FOLLOW)
    answer = json.loads(execute(page, '"errors"'))
    assert answer == {"errors": [{"message": "The gateway cannot be reached. Check that it is running."}]}


def test_a_subscription_that_the_server_completes_says_so(
    page_that_errs: "Page", sockets: Sockets, gateway: GatewayProcess
) -> None:
    page = page_that_errs
    open_page(page, gateway)
    subscribe_until_seen(page, gateway, "seen before the end")
    id = next(message["id"] for message in sockets.sent if message["type"] == "subscribe")
    sockets.open[0].send(json.dumps({"type": "complete", "id": id}))
    ending = page.locator(".ending")
    expect(ending.locator("p")).to_have_text("The subscription is complete: the server has no further events.")
    expect(ending.get_by_role("button")).to_have_count(0)


def test_every_documented_close_code_has_a_sentence() -> None:
    documented = re.findall(r"^\| (\d{4}) \|", (ROOT / "docs/websocket.md").read_text(), re.M)
    translated = re.findall(r"^  (\d{4}): '[A-Z].*\.',$", (ROOT / "web/src/endings.js").read_text(), re.M)
    assert documented
    assert set(documented) <= set(translated)
