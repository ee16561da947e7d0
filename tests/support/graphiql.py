"""Chromium and a gateway with demo data for the tests of GraphiQL."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.support.command_line import GatewayProcess, serve_process

try:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect, sync_playwright
    from playwright.sync_api import Request as BrowserRequest
except ImportError:  # the browser tests are skipped, or fail where a browser is required
    sync_playwright = None  # type: ignore[assignment]

CHROMIUM = shutil.which("chromium")
# Far above the time that the page takes, also on a busy machine.
SECONDS = 120

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# The browser logs violations of the page's policy in words of its own; this logs them in ours.
TELL_OF_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`${event.effectiveDirective} forbids ${event.blockedURI}`))"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with serve_process(tmp_path_factory.mktemp("graphiql") / "data", "--memory") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator["BrowserContext"]:
    """Open a browser with a profile on disk, whose pages load the compiled editors from its cache."""
    missing = "playwright cannot be imported" if sync_playwright is None else "no chromium is on PATH"
    if sync_playwright is None or CHROMIUM is None:
        message = f"GraphiQL is not tested in a browser: {missing}."
        pytest.fail(message) if os.environ.get("REQUIRE_BROWSER") == "1" else pytest.skip(message)
    expect.set_options(timeout=1000 * SECONDS)
    profile = tmp_path_factory.mktemp("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": 1400, "height": 900},
            color_scheme="light",
        )
        with closing(launched) as context:
            context.add_init_script(TELL_OF_VIOLATIONS)
            yield context


@pytest.fixture
def page_that_errs(context: "BrowserContext", gateway: GatewayProcess) -> Iterator["Page"]:
    """Open GraphiQL as at a first visit. The test judges the errors that the browser logs."""
    with closing(context.new_page()) as page:
        page.set_default_timeout(1000 * SECONDS)
        forgotten = {"origin": gateway.url, "storageTypes": "local_storage"}
        context.new_cdp_session(page).send("Storage.clearDataForOrigin", forgotten)
        yield page


@pytest.fixture
def page(page_that_errs: "Page", gateway: GatewayProcess) -> Iterator["Page"]:
    """Open GraphiQL as at a first visit. Errors in the page and requests to other hosts fail the test."""
    wrong: list[str] = []
    page = page_that_errs

    def look(request: "BrowserRequest") -> None:
        parts = urlsplit(request.url)
        if parts.hostname not in ("127.0.0.1", "localhost") and parts.scheme not in ("data", "blob"):
            wrong.append(f"asked for {request.url}")

    def listen(message: "ConsoleMessage") -> None:
        if message.type == "error":
            wrong.append(message.text)

    page.on("request", look)
    page.on("console", listen)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    open_page(page, gateway)
    yield page
    assert wrong == []


def open_page(page: "Page", gateway: GatewayProcess) -> None:
    page.goto(f"{gateway.url}/graphql")
    page.wait_for_selector(".graphiql-query-editor .view-lines")


def editor_text(page: "Page", file: str) -> str:
    """Return the content of an editor."""
    value: str = page.evaluate(
        "file => globalThis.__MONACO.editor.getModels().find(m => m.uri.path.endsWith(file))?.getValue() ?? ''", file
    )
    return value


def set_query(page: "Page", query: str) -> None:
    page.evaluate(
        "query => globalThis.__MONACO.editor.getModels()"
        ".find(m => m.uri.path.endsWith('operation.graphql')).setValue(query)",
        query,
    )
    settle(page)


def settle(page: "Page") -> None:
    """Wait until the page has taken over what was entered.

    GraphiQL does so by timers of up to 300 ms. A timer of the page that begins later and takes longer ends after them,
    however busy the machine is.
    """
    page.evaluate("() => new Promise(done => setTimeout(done, 350))")


def execute(page: "Page", until: str) -> str:
    """Run the operation in the editor. Return the result when it contains these words."""
    page.click("button.graphiql-execute-button")
    return wait_for_response(page, until)


def wait_for_response(page: "Page", words: str) -> str:
    page.wait_for_function(
        "words => globalThis.__MONACO.editor.getModels()"
        ".find(m => m.uri.path.endsWith('response.json'))?.getValue().includes(words)",
        arg=words,
    )
    return editor_text(page, "response.json")
