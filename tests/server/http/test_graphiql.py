"""GraphiQL as its users meet it: in Chromium, against a gateway that serves the demo."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest
from starlette.requests import Request
from websockets.sync.client import connect

from datastore.keyspace import PATTERNS
from server.http.graphiql import Config, Example, examples
from tests.support.command_line import Process, serving
from tests.support.photo_files import picture
from tests.support.until import until_blocking

try:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Route, expect, sync_playwright
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
NAMES = {"user": "Demo user", "admin": "Admin", "system": "System"}
REPORT = """mutation {
  reportSighting(input: { area: "Harbor", category: "Cats", description: "%s" }) { sightingId }
}"""

WATCH = 'mutation { createWatch(input: { area: "Downtown", category: "Cats" }) { id watchId } }'


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


def choose(page: "Page", name: str) -> None:
    """Open an example from the pane."""
    page.fill(".examples input", name)
    page.click(".examples li button")
    page.wait_for_timeout(300)


# The page


def test_the_page_opens_with_its_tabs_and_examples(page: "Page") -> None:
    assert page.title() == "DynamoDB GraphQL gateway"
    assert page.locator("[role=tab]").all_inner_texts() == [
        _operation(example) for example in examples() if example.tab
    ]
    assert page.locator(".examples button").count() == len(examples())


def _operation(example: Example) -> str:
    found = re.match(r"\s*\w+ (\w+)", example.query)
    return found[1] if found else ""


def test_a_query_shows_what_it_found(page: "Page") -> None:
    answer = json.loads(execute(page, '"earthquakes"'))
    assert answer["data"]["earthquakes"]["nodes"][0]["magnitude"] >= 4.5


def test_an_example_opens_in_a_tab_of_its_own_with_variables_and_a_token(page: "Page") -> None:
    before = page.locator("[role=tab]").count()
    choose(page, "BLIP-6")
    expect(page.locator("[role=tab]")).to_have_count(before + 1)
    assert "mutation Report" in text(page, "operation.graphql")
    assert json.loads(text(page, "variables.json"))["input"]["area"] == "Downtown"
    assert "Bearer " in text(page, "request-headers.json")
    answer = json.loads(execute(page, '"reportSighting"'))
    assert answer["data"]["reportSighting"]["reporter"]["reportTotal"] >= 1


def test_the_role_can_be_switched(page: "Page") -> None:
    write(page, "{ me { userId role } }")
    roles = page.locator(".role-switch select")
    for label, words in (("Admin", '"ADMIN"'), ("System", '"SYSTEM"'), ("nobody", '"me": null')):
        roles.select_option(label=label)
        page.wait_for_timeout(300)
        execute(page, words)


def test_an_example_for_admins_brings_an_admins_token(page: "Page") -> None:
    choose(page, "QUAKE-4")
    assert page.locator(".role-switch select option:checked").inner_text() == "Admin"
    assert "errors" not in json.loads(execute(page, '"requestLogs"'))


def test_a_mistake_is_told_beside_the_query(page: "Page") -> None:
    write(page, "{ earthquakes(first: 1000) { nodes { place } } }")
    assert json.loads(execute(page, '"errors"'))["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


def test_its_workers_run_under_the_policies_of_page_and_files(page: "Page") -> None:
    write(page, "{ nope }")
    page.wait_for_function(
        "word => globalThis.__MONACO.editor.getModelMarkers({}).some(({ message }) => message.includes(word))",
        arg="nope",
    )

    def workers() -> set[str]:
        page.wait_for_timeout(20)
        return {worker.url.rpartition("/")[2].partition(".")[0] for worker in page.workers}

    until_blocking(lambda: workers() >= {"graphql", "json"}, 15)


def test_a_script_that_got_in_can_do_little(page_that_errs: "Page", gateway: Process) -> None:
    page_that_errs.goto(f"{gateway.url}/graphql")
    tried = page_that_errs.evaluate(
        """async () => {
          const forbidden = [];
          addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) =>
            forbidden.push(`${effectiveDirective} ${blockedURI}`));
          document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = 1' }));
          const form = Object.assign(document.createElement('form'), { action: 'https://example.com' });
          document.body.append(form);
          form.submit();
          const fetched = await fetch('https://example.com').catch(() => null);
          for (const url of ['ws://127.0.0.1:9/', 'wss://example.com/']) new WebSocket(url);
          for (let waited = 0; forbidden.length < 5 && waited < 100; waited++)
            await new Promise((later) => setTimeout(later, 50));
          return [window.ran ?? null, fetched, forbidden.sort()];
        }"""
    )
    assert tried == [
        None,
        None,
        [
            "connect-src https://example.com/",
            "connect-src ws://127.0.0.1:9/",
            "connect-src wss://example.com/",
            "form-action https://example.com/?",
            "script-src-elem inline",
        ],
    ]


def test_a_page_of_ours_follows_with_an_event_source_that_ends(page_that_errs: "Page", gateway: Process) -> None:
    page_that_errs.goto(f"{gateway.url}/graphql")
    told = page_that_errs.evaluate(
        """() => new Promise((done) => {
          const told = [];
          const source = new EventSource('/graphql?query={__typename}');
          for (const kind of ['next', 'complete'])
            source.addEventListener(kind, ({ lastEventId, data }) => told.push([kind, lastEventId, data]));
          source.onerror = () => source.readyState === EventSource.CLOSED && done(told);
        })"""
    )
    assert told == [["next", "1", '{"data":{"__typename":"Query"}}'], ["complete", "end", ""]]


def test_a_subscription_runs_until_it_is_stopped(page: "Page", gateway: Process) -> None:
    choose(page, "BLIP-S1")
    button = page.locator("button.graphiql-execute-button")
    button.click()
    expect(button).to_have_attribute("aria-label", re.compile("Stop"))
    page.wait_for_timeout(500)
    gateway.data(REPORT % "seen while following", gateway.token())
    shown(page, "seen while following")
    button.click()
    expect(button).to_have_attribute("aria-label", re.compile("Execute"))
    gateway.data(REPORT % "seen by nobody", gateway.token())
    page.wait_for_timeout(800)
    assert "seen by nobody" not in text(page, "response.json")


def test_a_gateway_that_cannot_be_reached_is_told_in_words(page_that_errs: "Page", gateway: Process) -> None:
    page = page_that_errs
    enter(page, gateway)
    page.route("**/graphql", lambda route: route.abort())
    answer = json.loads(execute(page, '"errors"'))
    assert answer == {"errors": [{"message": "The gateway cannot be reached. Does it still run?"}]}


def test_on_a_telephone_a_pane_covers_the_page_until_an_example_is_opened(page: "Page") -> None:
    def widths() -> list[int]:
        found: list[int] = page.evaluate(
            "['.graphiql-query-editor', '.graphiql-response'].map((one) => document.querySelector(one).clientWidth)"
        )
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        return found

    page.set_viewport_size({"width": 420, "height": 800})
    assert min(widths()) > 300
    choose(page, "FIX-1")
    assert "errors" not in json.loads(execute(page, "scorecards"))  # of the match that it found
    assert min(widths()) > 300
    page.click("button[aria-label='Show Explain']")
    assert page.locator(".explain").bounding_box()["width"] > 300  # type: ignore[index]
    widths()
    page.click("button[aria-label='Hide Explain']")
    execute(page, "scorecards")


def test_it_is_light_or_dark(page: "Page") -> None:
    def background() -> str:
        colour: str = page.evaluate("getComputedStyle(document.querySelector('.graphiql-container')).backgroundColor")
        return colour

    light = background()
    page.click('button[aria-label="Open settings dialog"]')
    page.click(".graphiql-dialog button[data-theme=dark]")
    page.keyboard.press("Escape")
    assert background() != light
    page.reload()
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    assert background() != light


def test_the_documentation_tells_of_the_schema(page: "Page") -> None:
    page.click('button[aria-label="Show Documentation Explorer"]')
    page.click('.graphiql-doc-explorer a:text-is("Query")')
    expect(page.locator(".graphiql-doc-explorer")).to_contain_text("earthquakes of a time window, newest first.")


def test_what_was_written_is_there_after_a_reload_and_no_token_is_kept(page: "Page") -> None:
    choose(page, "BLIP-6")
    execute(page, '"reportSighting"')
    kept: str = page.evaluate("JSON.stringify(localStorage)")
    assert "mutation Report" in kept
    assert "Bearer" not in kept
    page.reload()
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    assert "mutation Report" in text(page, "operation.graphql")


# Its photos


def give(page: "Page", folder: Path, **files: bytes) -> None:
    """Choose files of these names, whose last part is what comes after the dot."""
    paths = [folder / ".".join(name.rsplit("_", 1)) for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_bytes(content)
    page.set_input_files(".photos input[type=file]", paths)


def test_a_picture_is_uploaded_and_its_thumbnail_is_seen(page: "Page", gateway: Process, tmp_path: Path) -> None:
    # By its other name: signed addresses say 127.0.0.1.
    page.goto(f"{gateway.url.replace('127.0.0.1', 'localhost')}/graphql")
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    page.locator(".role-switch select").select_option(label="Admin")  # who is not in the library yet
    page.click('button[aria-label="Show Photos"]')
    photos = page.locator(".gallery li")
    expect(photos).to_have_count(12)
    page.get_by_label("Description of the pictures").fill("Nothing but teal")
    with page.expect_response("**/media") as answer:
        give(page, tmp_path, teal_png=picture("PNG"))
    assert (answer.value.request.method, answer.value.ok) == ("POST", True)

    expect(photos.first).to_contain_text("Nothing but teal")
    expect(page.locator(".photos [role=status]")).to_have_text("teal.png is in the library.")
    page.wait_for_function(
        "() => { const seen = document.querySelector('.gallery img[alt=\"Nothing but teal\"]');"
        " return seen?.complete && seen.naturalWidth === 480 && seen.naturalHeight === 320; }"
    )
    assert photos.first.locator("img").get_attribute("src").startswith("/media/")  # type: ignore[union-attr]
    page.click("text=Load more")
    expect(page.locator(".photos .more")).to_have_count(0)
    expect(photos.last).to_contain_text("The last boat into Lantern Bay.")
    assert photos.locator("p:first-of-type").all_inner_texts().count("Nothing but teal") == 1


def test_of_several_files_each_is_told_of_and_one_that_fails_gives_its_place_back(page: "Page", tmp_path: Path) -> None:
    reserved, given_up, old = [], [], ""

    def watch(route: "Route") -> None:
        """Lets the first photo's thumbnail be one that cannot be seen any more."""
        nonlocal old
        response = route.fetch()
        answer = response.json()
        data = answer.get("data") or {}
        if "createPhoto" in data:
            reserved.append(data["createPhoto"]["imageId"])
        if "cancelUpload" in data:
            sent = json.loads(route.request.post_data or "")
            given_up.append((sent["variables"]["imageId"], data["cancelUpload"]))
        if "photos" in data:
            first = data["photos"]["nodes"][0]
            old, first["thumbnailUrl"] = first["thumbnailUrl"], "/media/expired"
        route.fulfill(response=response, json=answer)

    page.route("**/graphql", watch)
    page.route("**/media/expired", lambda route: route.fulfill(body="gone"))
    page.click('button[aria-label="Show Photos"]')
    photos, alerts = page.locator(".gallery li"), page.locator(".photos .upload .problem")
    expect(photos.first.locator("img")).to_have_attribute("src", re.compile(r"/media/(?!expired)"))
    assert old.endswith(photos.first.locator("img").get_attribute("src") or "-")

    large = picture() + bytes(25 * 2**20)
    text = b"Buy milk."
    give(page, tmp_path, a_txt=text, cut_jpg=picture()[:300], b_jpg=text, large_jpg=large, c_png=picture())
    expect(page.locator(".photos [role=status]")).to_have_text("c.png is in the library.")
    expect(alerts).to_have_text(
        [
            "a.txt and b.jpg: not a JPEG, PNG or WebP picture.",
            "cut.jpg: The original is no picture that can be read: it is damaged, or something else.",
            "large.jpg: it has 25.1 MB; at most 25 MB are taken.",
        ]
    )
    expect(photos).to_have_count(13)
    assert len({*reserved}) == 2
    assert given_up == [(reserved[0], True)]

    page.locator(".role-switch select").select_option(label="nobody")
    give(page, tmp_path, teal_jpg=picture())
    expect(alerts).to_have_text(re.compile("teal.jpg: nobody is signed in."))
    assert len(reserved) == 2


# Explain


def test_the_pane_explains_what_runs_do(page: "Page") -> None:
    page.click("button[aria-label='Show Explain']")
    pane = page.locator(".explain")
    pane.get_by_role("switch", name="Explain each run").check()
    write(page, '{ one: user(id: "mira") { name } other: user(id: "teo") { name } again: user(id: "mira") { bio } }')

    result = execute(page, '"other"')

    assert "extensions" not in json.loads(result)
    expect(pane.locator(".totals div")).to_have_text(
        [re.compile(r"Requests1"), "Read units1", "Write units0", re.compile("Time")]
    )
    rows = [row.split() for row in pane.locator("tbody tr").all_inner_texts()]
    assert [[row[0], *row[-3:]] for row in rows] == [
        ["again", "0", "1", "0"],
        ["one", "1", "–", "0.5"],
        ["other", "1", "–", "0.5"],
    ]
    call = pane.locator(".calls summary")
    expect(call).to_contain_text("BatchGetItem feed")
    expect(call).to_contain_text("2 items · 1 unit")
    call.focus()
    page.keyboard.press("Enter")
    expect(pane.locator(".calls dd").first).to_have_text(re.compile("USER#mira.*META.*USER#teo.*META"))
    pane.get_by_role("button", name="other").press("Enter")
    expect(pane.locator(".calls h3")).to_contain_text("1 call of other")

    pane.get_by_role("switch", name="Explain each run").uncheck()
    write(page, "{ liveMatches { matchId } }")
    execute(page, '"liveMatches"')
    expect(pane.locator(".asked")).to_contain_text("later runs are not explained")


def test_the_pane_explains_each_event_of_a_subscription(page: "Page") -> None:
    page.click("button[aria-label='Show Explain']")
    pane = page.locator(".explain")
    pane.get_by_role("switch", name="Explain each run").check()
    button, hint = page.locator("button.graphiql-execute-button"), pane.locator(".hint")
    write(page, 'subscription Quiet { watchAlerts(userId: "demo") { area } }')
    button.click()
    expect(pane.locator(".asked code")).to_have_text("Quiet")
    expect(hint).to_have_text("Waiting for the first event.")
    button.click()
    expect(hint).to_have_text("It was stopped before its first event.")
    write(page, 'subscription Lost { matchUpdates(matchId: "nope") { version } }')
    execute(page, "There is no match")
    expect(hint).to_have_text("No explanation came: the result says why.")
    write(page, 'subscription Likes { postEngagement(postId: "mira-1") { likeCount } }')

    result = execute(page, "likeCount")

    assert json.loads(result)["extensions"].keys() == {"eventId"}
    expect(pane.locator(".asked code")).to_have_text("Likes")
    expect(pane.locator("tbody th")).to_have_text(["postEngagement FEED-S1"])
    expect(pane.locator(".calls summary")).to_contain_text("GetItem feed")


def test_who_may_not_have_operations_explained_is_told_so(page_that_errs: "Page", gateway: Process) -> None:
    page = page_that_errs  # an answer of 401 is no fault of it
    enter(page, gateway)
    page.click("button[aria-label='Show Explain']")
    page.locator(".explain").get_by_role("switch", name="Explain each run").check()
    page.select_option(".role-switch select", label="nobody")
    write(page, "{ liveMatches { matchId } }")

    execute(page, "UNAUTHENTICATED")

    told = page.locator(".explain").get_by_role("alert")
    expect(told).to_contain_text("This caller may not have operations explained.")
    expect(told).to_contain_text("Nothing was executed.")


# What the page is told


def roles(tokens: list[dict[str, str]]) -> list[str]:
    return [token["name"] for token in tokens]


def config(
    headers: list[tuple[str, str]], client: tuple[str, int] | None = ("127.0.0.1", 50000), version: str = "1.1"
) -> Any:
    """What a request with these headers from this peer is told."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    request = Request({"type": "http", "http_version": version, "headers": raw, "client": client})
    return json.loads(bytes(Config(lambda: [{"name": "Admin", "token": "a token"}]).response(request).body))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:3000", "localhost:9", "[::1]:8000", "[::1]"]
)
def test_who_calls_this_machine_by_its_own_name_gets_the_demo_tokens(host: str) -> None:
    assert roles(config([("host", host)])["tokens"]) == ["Admin"]
    assert roles(config([("host", host)], ("::1", 50000))["tokens"]) == ["Admin"]


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
        [("sec-fetch-site", "none")],
        [("origin", "http://localhost:8000"), ("sec-fetch-site", "same-origin")],
        [("referer", "http://localhost:8000/graphql"), ("cookie", "a=b"), ("x-requested-with", "page")],
    ],
    ids=str,
)
def test_a_page_of_our_own_gets_the_demo_tokens(headers: list[tuple[str, str]]) -> None:
    assert roles(config([("host", "localhost:8000"), *headers])["tokens"]) == ["Admin"]


@pytest.mark.parametrize("version", ["1.0", "0.9"])
def test_http_before_1_1_gets_no_token(version: str) -> None:
    assert config([("host", "localhost")], version=version)["tokens"] == []


FROM_PROXIES = [
    *("via", "forwarded", "cdn-loop", "x-forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    *("x-forwarded-port", "x-forwarded-server", "x-forwarded-prefix", "x-forwarded-user", "x-forwarded-anything"),
    *("x-original-host", "x-original-url", "x-original-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip"),
    *("x-cluster-client-ip", "fastly-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "cf-ray", "cf-visitor"),
    *("fly-client-ip", "x-envoy-external-address", "x-azure-clientip", "x-appengine-user-ip", "x-amzn-trace-id"),
    *("proxy-client-ip", "wl-proxy-client-ip", "x-proxyuser-ip", "x-varnish", "surrogate-capability", "client-ip"),
    *("x-arr-log-id", "x-remote-ip", "forwarded-for", "x-vercel-forwarded-for", "do-connecting-ip", "x-nginx-proxy"),
    *("proxy-connection", "max-forwards", "early-data", "tailscale-user-login", "x-cloud-trace-context"),
    *("x-request-id", "x-ms-proxy", "x-gitpod-port-number", "x-of-a-proxy-to-come"),
]
OTHER_ORIGINS = [
    *("https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:8001", "http://localhost:8000"),
    *("https://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", "http://127.0.0.1:8000/", "file://"),
]


@pytest.mark.parametrize(
    "headers",
    [
        [("host", "rebound.example.com")],
        [("host", "rebound.example.com:8000")],
        [("host", "127.0.0.1.example.com")],
        [("host", "localhost.example.com:8000")],
        [("host", "example.com@127.0.0.1")],
        [("host", "127.0.0.1\n")],
        [("host", "")],
        [],
        [("host", "127.0.0.1"), ("host", "example.com")],
        [("host", "localhost:99999999")],
        [("host", "127.0.0.1:8000"), ("referer", "http://evil.example/")],
        [("host", "127.0.0.1:8000"), ("referer", "http://127.0.0.1:8000.evil.example/")],
        [("host", "127.0.0.1:8000"), ("referer", "about:blank")],
        [("host", "127.0.0.1"), ("x-forwarded-for", "192.0.2.1")],
        [("host", "127.0.0.1"), ("x-forwarded-host", "example.com")],
        [("host", "127.0.0.1"), ("forwarded", "for=192.0.2.1")],
        *([("host", "127.0.0.1"), (name, "x")] for name in FROM_PROXIES),
        *([("host", "127.0.0.1"), ("sec-fetch-site", site)] for site in ("cross-site", "same-site", "", "None", "x")),
        [("host", "127.0.0.1"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        *([("host", "127.0.0.1:8000"), ("origin", origin)] for origin in OTHER_ORIGINS),
        [("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000"), ("origin", "https://evil.example")],
    ],
    ids=str,
)
def test_another_name_or_a_proxy_gets_no_token(headers: list[tuple[str, str]]) -> None:
    told = config(headers)
    assert told["tokens"] == []
    assert told["examples"]


@pytest.mark.parametrize("client", [None, ("192.0.2.1", 50000), ("", 0)], ids=str)
def test_another_machine_gets_no_token_whatever_host_it_names(client: tuple[str, int] | None) -> None:
    assert config([("host", "127.0.0.1")], client)["tokens"] == []


def test_the_page_shows_pictures_of_its_bucket_and_loads_nothing_else_from_elsewhere() -> None:
    page = Config(lambda: [])
    assert "https:" not in page.page().headers["content-security-policy"]
    page = Config(lambda: [], bucket=lambda: "https://photos.example.com")
    policy = dict(rule.split(" ", 1) for rule in page.page().headers["content-security-policy"].split("; "))
    assert policy["img-src"] == "'self' data: https://photos.example.com"
    assert policy["connect-src"] == "'self' https://photos.example.com"
    assert [name for name, sources in policy.items() if "https:" in sources] == ["img-src", "connect-src"]


def test_a_rebound_name_gets_no_token_over_the_wire(gateway: Process) -> None:
    def tokens(**headers: str) -> list[str]:
        with urlopen(UrlRequest(f"{gateway.url}/graphiql/config.json", headers=headers), timeout=20) as response:
            return roles(json.load(response)["tokens"])

    assert tokens() == ["Demo user", "Admin", "System"]
    assert tokens(Host="rebound.example.com") == []
    # As nginx asks, and whoever takes the gateway for a proxy.
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.1") == ["Demo user", "Admin", "System"]
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.0") == []
    # The server ignores an upgrade in any version other than HTTP/1.1.
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.0", "Connection: Upgrade", "Upgrade: x") == []
    assert _tokens_of(gateway, "GET http://example.com/graphiql/config.json HTTP/1.1") == []
    assert tokens(**{"X-Forwarded-For": "192.0.2.1"}) == []
    assert tokens(**{"Sec-Fetch-Site": "cross-site"}) == []
    assert tokens(Origin="https://evil.example") == []
    assert tokens(Origin=gateway.url) == ["Demo user", "Admin", "System"]


def _tokens_of(gateway: Process, line: str, connection_field: str = "Connection: close", *fields: str) -> list[str]:
    """Return the roles in the answer to a request with this first line and this machine as its host."""
    address = urlsplit(gateway.url)
    with create_connection((address.hostname, address.port), timeout=20) as connection:
        head = "\r\n".join((line, f"Host: {address.netloc}", connection_field, *fields, "", ""))
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return roles(json.loads(answer.partition(b"\r\n\r\n")[2]).get("tokens", []))


# The examples


def ids(name: str) -> list[str]:
    return re.findall(r"^[A-Z]+-\w+", name)


def test_every_example_begins_with_the_id_of_a_declared_access_pattern() -> None:
    declared = {pattern.id for pattern in PATTERNS}
    assert [example.name for example in examples() if not set(ids(example.name)) & declared] == []


def test_every_access_pattern_that_clients_reach_has_an_example() -> None:
    shown = {id for example in examples() for id in ids(example.name)}
    assert {pattern.id for pattern in PATTERNS if pattern.fields} - shown == set()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_every_example_runs(example: Example, gateway: Process) -> None:
    token = gateway.token(NAMES[example.run_as or "user"])
    variables = example.variables if example.find is None else _found(example, gateway, token)
    if example.query.startswith("subscription"):
        assert _followed(example.query, variables, gateway, token)
        return
    answer = gateway.ask(example.query, token, variables)
    assert "errors" not in answer
    assert None not in answer["data"].values()


def test_what_is_not_the_same_each_day_is_found() -> None:
    pasted = [example for example in examples() if "paste" in json.dumps(example.variables)]
    assert [example.name for example in pasted if example.find is None] == []
    assert len(pasted) == 14


def _found(example: Example, gateway: Process, token: str) -> dict[str, Any]:
    """The variables as the page finds them, as soon as there is something to find."""
    assert example.find is not None
    if "watches" in example.find:
        gateway.data(WATCH, token)
    found = None

    def find() -> bool:
        nonlocal found
        found = _first_with(set(example.variables or {}), gateway.data(example.find or "", token))
        return found is not None

    until_blocking(find, 20)
    assert found is not None
    return found


def _first_with(names: set[str], value: Any) -> dict[str, Any] | None:
    """The first object inside that has all of these, and of it these alone."""
    if isinstance(value, dict) and names <= value.keys():
        return {name: value[name] for name in names}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := _first_with(names, each)) is not None), None)


def _followed(query: str, variables: dict[str, Any] | None, gateway: Process, token: str) -> bool:
    """Whether the subscription goes on without an error for a moment."""
    with _socket(gateway, token) as socket:
        payload = {"query": query, "variables": variables}
        socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
        try:
            message = json.loads(socket.recv(0.2))
        except TimeoutError:
            return True
        return bool(message["type"] in ("next", "ping") and "errors" not in message.get("payload", {}))


@contextmanager
def _socket(gateway: Process, token: str) -> Iterator[Any]:
    url = gateway.url.replace("http", "ws") + "/graphql"
    with connect(url, subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
        socket.send(json.dumps({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}))
        assert json.loads(socket.recv(5))["type"] == "connection_ack"
        yield socket
