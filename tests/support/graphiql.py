"""Chromium and a gateway with demo data for the tests of GraphiQL."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.support.command_line import Process, serving

try:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, sync_playwright
    from playwright.sync_api import Request as BrowserRequest
except ImportError:  # the browser tests are skipped, or fail where a browser is required
    sync_playwright = None  # type: ignore[assignment]

CHROMIUM = shutil.which("chromium")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# What the page's policy forbids is an error in the browser's console too, but of this the words are ours.
TELL_OF_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`${event.effectiveDirective} forbids ${event.blockedURI}`))"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("graphiql") / "data", "--memory") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator["BrowserContext"]:
    """A browser with a profile on disk: its pages load the editors, compiled, from its cache."""
    missing = "playwright cannot be imported" if sync_playwright is None else "no chromium is on PATH"
    if sync_playwright is None or CHROMIUM is None:
        message = f"GraphiQL is not tested in a browser: {missing}."
        pytest.fail(message) if os.environ.get("REQUIRE_BROWSER") == "1" else pytest.skip(message)
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
def page_that_errs(context: "BrowserContext", gateway: Process) -> Iterator["Page"]:
    """GraphiQL as it opens at a first visit. What the browser logs as errors is the test's to judge."""
    with closing(context.new_page()) as page:
        page.set_default_timeout(15_000)
        forgotten = {"origin": gateway.url, "storageTypes": "local_storage"}
        context.new_cdp_session(page).send("Storage.clearDataForOrigin", forgotten)
        yield page


@pytest.fixture
def page(page_that_errs: "Page", gateway: Process) -> Iterator["Page"]:
    """GraphiQL as it opens at a first visit. What goes wrong in the page fails the test, and so does a call abroad."""
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
    enter(page, gateway)
    yield page
    assert wrong == []


def enter(page: "Page", gateway: Process) -> None:
    page.goto(f"{gateway.url}/graphql")
    page.wait_for_selector(".graphiql-query-editor .view-lines")


def text(page: "Page", file: str) -> str:
    """What an editor holds."""
    value: str = page.evaluate(
        "file => globalThis.__MONACO.editor.getModels().find(m => m.uri.path.endsWith(file))?.getValue() ?? ''", file
    )
    return value


def write(page: "Page", query: str) -> None:
    page.evaluate(
        "query => globalThis.__MONACO.editor.getModels()"
        ".find(m => m.uri.path.endsWith('operation.graphql')).setValue(query)",
        query,
    )
    page.wait_for_timeout(300)


def execute(page: "Page", until: str) -> str:
    """Run what is in the editor; the result once it has these words."""
    page.click("button.graphiql-execute-button")
    return shown(page, until)


def shown(page: "Page", words: str) -> str:
    page.wait_for_function(
        "words => globalThis.__MONACO.editor.getModels()"
        ".find(m => m.uri.path.endsWith('response.json'))?.getValue().includes(words)",
        arg=words,
    )
    return text(page, "response.json")
