"""The React examples in a browser, against a gateway with demo data."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.command_line import GatewayProcess, serve_process
from tests.support.example_programs import EXAMPLES
from tests.support.graphiql import SECONDS, context
from tests.support.until import until_blocking

with suppress(ImportError):  # the fixture `context` skips or fails the tests
    from playwright.sync_api import BrowserContext, Page, Response, Route, expect

__all__ = ["context"]  # a fixture

LIVE = "{ liveMatches { id } }"
FEED = '{ homeFeed(userId: "demo", first: 10) { nodes { id } } }'


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """Build the pages, and return the origin that serves them."""
    subprocess.run(["npm", "run", "--silent", "build"], cwd=EXAMPLES, check=True)
    handler = partial(QuietHandler, directory=EXAMPLES / "dist")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def demo_gateway(pages: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("examples") / "data"
    with serve_process(folder, "--memory", GATEWAY_ALLOWED_ORIGINS=pages) as gateway:
        # After the start the pipelines fan the demo's posts out, and register its matches.
        until_blocking(lambda: gateway.data(LIVE)["liveMatches"])
        until_blocking(lambda: len(gateway.data(FEED, gateway.token())["homeFeed"]["nodes"]) >= 10)
        yield gateway


@pytest.fixture
def example_page(context: "BrowserContext") -> Iterator["Page"]:
    """Open a page whose errors fail the test."""
    wrong: list[str] = []
    with closing(context.new_page()) as page:
        page.set_default_timeout(1000 * SECONDS)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        yield page
    assert wrong == []


def test_the_apollo_page_likes_at_once_pages_and_shows_live_scores(
    example_page: "Page", pages: str, demo_gateway: GatewayProcess
) -> None:
    page = example_page
    page.goto(f"{pages}/react-apollo/?api={demo_gateway.url}/graphql#{demo_gateway.token()}")
    posts = page.get_by_role("heading", name="Feed").locator("xpath=..").get_by_role("listitem")
    expect(posts).to_have_count(5)
    like = posts.first.get_by_role("button")
    before = int(like.inner_text().split()[1])
    expect(like).to_have_attribute("aria-pressed", "false")

    # The count changes before the request is sent, and does not fall back with the response.
    held: list[Route] = []
    page.route("**/graphql", lambda route: held.append(route))
    like.click()
    expect(like).to_have_text(f"♥ {before + 1}")
    expect(like).to_have_attribute("aria-pressed", "true")
    with page.expect_response(is_like) as liked:
        for route in held:
            route.continue_()
    page.unroute("**/graphql")
    assert liked.value.json()["data"]["likePost"]["post"]["likeCount"] == before + 1
    expect(like).to_have_text(f"♥ {before + 1}")

    page.get_by_role("button", name="More").click()
    expect(posts).to_have_count(10)

    # A subscription changes the scores in the cache.
    match = page.get_by_role("heading", name="Live").locator("xpath=..").get_by_role("listitem").first
    version = match.get_attribute("data-version")
    assert version is not None
    expect(match).not_to_have_attribute("data-version", version)


def is_like(response: "Response") -> bool:
    return "likePost" in (response.request.post_data or "")


def test_the_relay_page_pages_filters_and_reads_again(
    example_page: "Page", pages: str, demo_gateway: GatewayProcess
) -> None:
    page = example_page
    page.goto(f"{pages}/react-relay/?api={demo_gateway.url}/graphql")
    earthquakes = page.get_by_role("listitem")
    expect(earthquakes).to_have_count(5)
    page.get_by_role("button", name="More").click()
    expect(earthquakes).to_have_count(10)

    with page.expect_response("**/graphql") as read:
        earthquakes.first.get_by_role("button", name="Read again").click()
    assert read.value.json()["data"]["node"]["place"] in earthquakes.first.inner_text()

    page.get_by_role("combobox").select_option("4.5")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    magnitudes = [float(text.split()[0]) for text in earthquakes.all_inner_texts()]
    assert len(magnitudes) == 5
    assert min(magnitudes) >= 4.5
