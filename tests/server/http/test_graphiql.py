"""GraphiQL as its users meet it: in Chromium, against a gateway that serves the demo."""

import json
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from server.http.graphiql import ROOT, SCHEMA_PATH, Config, Example, examples
from tests.support.command_line import GatewayProcess
from tests.support.graphiql import (
    context,
    editor_text,
    execute,
    gateway,
    open_page,
    page,
    page_that_errs,
    set_query,
    settle,
)
from tests.support.photo_files import picture, upload_photo
from tests.support.until import until_blocking

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page, Route, expect
    from playwright.sync_api import Request as BrowserRequest

__all__ = ["context", "gateway", "page", "page_that_errs"]

REPORT = """mutation {
  reportSighting(input: { area: "Harbor", category: "Cats", description: "%s" }) { sightingId }
}"""


def choose(page: "Page", name: str) -> None:
    """Open an example from the pane."""
    page.fill(".examples input", name)
    page.click(".examples li button")
    settle(page)


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


def test_a_first_visit_loads_at_most_a_few_files_and_a_reload_next_to_nothing(
    page_that_errs: "Page", gateway: GatewayProcess
) -> None:
    received: list[tuple[str, int, str | None]] = []

    def count(request: "BrowserRequest") -> None:
        response = request.response()
        assert response is not None
        size = max(0, request.sizes()["responseBodySize"])
        received.append((urlsplit(request.url).path, size, response.headers.get("content-encoding")))

    def has_schema() -> bool:
        """Return whether the page has loaded the schema, which it does last."""
        page_that_errs.wait_for_timeout(20)  # handles the messages of the browser
        return SCHEMA_PATH in {name for name, *_ in received}

    page_that_errs.on("requestfinished", count)
    page_that_errs.context.new_cdp_session(page_that_errs).send("Network.clearBrowserCache")
    open_page(page_that_errs, gateway)
    until_blocking(has_schema)
    assert sum(size for _, size, _ in received) < 1_250_000
    assert {coding for name, size, coding in received if name.endswith((".js", ".css", ".json")) and size > 1024} == {
        "br",
        "gzip",
    }
    # The browser does not report the sizes of workers.
    assert sum(path.stat().st_size for path in (ROOT / "dist" / "assets").glob("*.worker-*.br")) < 350_000

    received.clear()
    page_that_errs.reload()
    page_that_errs.wait_for_selector(".graphiql-query-editor .view-lines")
    until_blocking(has_schema)
    assert sum(size for _, size, _ in received) < 20_000


def test_examples_are_found_by_title_field_argument_kind_and_pattern(page: "Page") -> None:
    found = page.locator(".examples li button")

    def search(words: str) -> list[str]:
        page.fill(".examples input", words)
        return [text.split("\n")[0] for text in found.all_inner_texts()]

    assert search("likePost livestream") == []
    assert search("likePost") == ["Like a postlikePost", "Unlike a postunlikePost"]
    expect(found.first.locator("code")).to_have_text(re.compile("likePost", re.I))
    assert search("minIntervalMs") == [
        "Live scores of a league, at most every ten secondsminIntervalMs",
        "The events of a match, liveminIntervalMs",
    ]
    kinds = [len(search(kind)) for kind in ("query", "mutation", "subscription")]
    assert kinds == [
        sum(example.query.startswith(kind) or (kind == "query" and "query:" in example.query) for example in examples())
        for kind in ("query", "mutation", "subscription")
    ]
    assert search("blip-6") == ["Report a sighting"]
    assert len(search("CRICKET:")) == sum(example.group.startswith("Cricket:") for example in examples())
    # What the title says comes before what the fields say.
    assert search("live scores")[0] == "Live scores of all matches"
    assert search("no such thing") == []
    expect(page.locator(".examples p")).to_have_text("No example matches.")


def test_an_example_shows_its_title_first_and_the_id_of_its_pattern_quietly(page: "Page") -> None:
    example = page.locator(".examples li button").first
    assert example.locator("> *").all_inner_texts() == ["Strong earthquakes of the last 30 days", "QUAKE-2"]
    sizes = [
        float(example.locator(part).evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)"))
        for part in ("span", ".id")
    ]
    assert sizes[0] > sizes[1]


def test_a_query_shows_its_result(page: "Page") -> None:
    answer = json.loads(execute(page, '"earthquakes"'))
    assert answer["data"]["earthquakes"]["nodes"][0]["magnitude"] >= 4.5


def test_an_example_opens_in_a_tab_of_its_own_with_variables_and_a_token(page: "Page") -> None:
    before = page.locator("[role=tab]").count()
    choose(page, "BLIP-6")
    expect(page.locator("[role=tab]")).to_have_count(before + 1)
    assert "mutation Report" in editor_text(page, "operation.graphql")
    assert json.loads(editor_text(page, "variables.json"))["input"]["area"] == "Downtown"
    assert "Bearer " in editor_text(page, "request-headers.json")
    answer = json.loads(execute(page, '"reportSighting"'))
    assert answer["data"]["reportSighting"]["reporter"]["reportTotal"] >= 1


def test_the_role_can_be_switched(page: "Page") -> None:
    set_query(page, "{ me { userId role } }")
    roles = page.locator(".role-switch select")
    for label, words in (("Admin", '"ADMIN"'), ("System", '"SYSTEM"'), ("anonymous", '"me": null')):
        roles.select_option(label=label)
        settle(page)
        execute(page, words)


def test_an_example_for_admins_brings_an_admins_token(page: "Page") -> None:
    choose(page, "QUAKE-4")
    assert page.locator(".role-switch select option:checked").inner_text() == "Admin"
    assert "errors" not in json.loads(execute(page, '"requestLogs"'))


def test_a_syntax_error_is_shown_beside_the_query(page: "Page") -> None:
    set_query(page, "{ earthquakes(first: 1000) { nodes { place } } }")
    assert json.loads(execute(page, '"errors"'))["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


def test_its_workers_run_under_the_policies_of_page_and_files(page: "Page") -> None:
    set_query(page, "{ nope }")
    page.wait_for_function(
        "word => globalThis.__MONACO.editor.getModelMarkers({}).some(({ message }) => message.includes(word))",
        arg="nope",
    )

    def workers() -> set[str]:
        page.wait_for_timeout(20)
        return {worker.url.rpartition("/")[2].partition(".")[0] for worker in page.workers}

    until_blocking(lambda: workers() >= {"graphql", "json"})


def test_a_script_that_got_in_can_do_little(page_that_errs: "Page", gateway: GatewayProcess) -> None:
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


def test_a_page_of_ours_follows_with_an_event_source_that_ends(page_that_errs: "Page", gateway: GatewayProcess) -> None:
    page_that_errs.goto(f"{gateway.url}/graphql")
    received = page_that_errs.evaluate(
        """() => new Promise((done) => {
          const received = [];
          const source = new EventSource('/graphql?query={__typename}');
          for (const kind of ['next', 'complete'])
            source.addEventListener(kind, ({ lastEventId, data }) => received.push([kind, lastEventId, data]));
          source.onerror = () => source.readyState === EventSource.CLOSED && done(received);
        })"""
    )
    assert received == [["next", "1", '{"data":{"__typename":"Query"}}'], ["complete", "end", ""]]


def test_a_subscription_runs_until_it_is_stopped(page: "Page", gateway: GatewayProcess) -> None:
    choose(page, "BLIP-S1")
    button = page.locator("button.graphiql-execute-button")
    button.click()
    expect(button).to_have_attribute("aria-label", re.compile("Stop"))

    def is_seen() -> bool:
        gateway.data(REPORT % "seen while following", gateway.token())
        return "seen while following" in editor_text(page, "response.json")

    # The page does not show when the subscription has begun.
    until_blocking(is_seen)
    button.click()
    expect(button).to_have_attribute("aria-label", re.compile("Execute"))
    gateway.data(REPORT % "seen by nobody", gateway.token())
    page.wait_for_timeout(800)
    assert "seen by nobody" not in editor_text(page, "response.json")


def test_an_unreachable_gateway_is_reported_in_words(page_that_errs: "Page", gateway: GatewayProcess) -> None:
    page = page_that_errs
    open_page(page, gateway)
    page.route("**/graphql", lambda route: route.abort())
    answer = json.loads(execute(page, '"errors"'))
    assert answer == {"errors": [{"message": "The gateway cannot be reached. Check that it is running."}]}


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
    assert "errors" not in json.loads(execute(page, "scorecards"))  # of the match in the example
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


def test_the_documentation_shows_the_schema(page: "Page") -> None:
    page.click('button[aria-label="Show Documentation Explorer"]')
    page.click('.graphiql-doc-explorer a:text-is("Query")')
    expect(page.locator(".graphiql-doc-explorer")).to_contain_text("earthquakes of a range of times, newest first.")


def test_the_editors_survive_a_reload_and_no_token_is_stored(page: "Page") -> None:
    choose(page, "BLIP-6")
    execute(page, '"reportSighting"')
    kept: str = page.evaluate("JSON.stringify(localStorage)")
    assert "mutation Report" in kept
    assert "Bearer" not in kept
    page.reload()
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    assert "mutation Report" in editor_text(page, "operation.graphql")


# Its photos


def give(page: "Page", folder: Path, **files: bytes) -> None:
    """Choose files of these names, with the last underscore as a dot."""
    paths = [folder / ".".join(name.rsplit("_", 1)) for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_bytes(content)
    page.set_input_files(".photos input[type=file]", paths)


def test_a_picture_is_uploaded_and_its_thumbnail_is_seen(page: "Page", gateway: GatewayProcess, tmp_path: Path) -> None:
    for _ in range(8):  # with those of the demo more than the pane shows at once
        upload_photo(gateway, gateway.token())
    # By the other name of this machine: signed addresses contain 127.0.0.1.
    page.goto(f"{gateway.url.replace('127.0.0.1', 'localhost')}/graphql")
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    page.locator(".role-switch select").select_option(label="Admin")  # who has no profile in the library yet
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
    expect(photos.last).to_contain_text("Ilse and Tomo below the lighthouse")
    assert photos.locator("p:first-of-type").all_inner_texts().count("Nothing but teal") == 1


def test_each_of_several_files_is_reported_and_a_failed_one_frees_its_place(page: "Page", tmp_path: Path) -> None:
    reserved, given_up, old = [], [], ""

    def watch(route: "Route") -> None:
        """Make the first photo's thumbnail expired."""
        nonlocal old
        response = route.fetch()
        answer = response.json()
        data = answer.get("data") or {}
        if "createPhoto" in data:
            reserved.append(data["createPhoto"]["imageId"])
        if "cancelPhotoUpload" in data:
            sent = json.loads(route.request.post_data or "")
            given_up.append((sent["variables"]["imageId"], data["cancelPhotoUpload"]))
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
    before = photos.count()

    large = picture() + bytes(25 * 2**20)
    text = b"Buy milk."
    give(page, tmp_path, a_txt=text, cut_jpg=picture()[:300], b_jpg=text, large_jpg=large, c_png=picture())
    expect(page.locator(".photos [role=status]")).to_have_text("c.png is in the library.")
    expect(alerts).to_have_text(
        [
            "a.txt and b.jpg: not a JPEG, PNG or WebP picture.",
            "cut.jpg: The original is no picture that can be read: it is damaged, or something else.",
            "large.jpg: the file has 25.1 MB; at most 25 MB are accepted.",
        ]
    )
    expect(photos).to_have_count(before + 1)
    assert len({*reserved}) == 2
    assert given_up == [(reserved[0], True)]

    page.locator(".role-switch select").select_option(label="anonymous")
    give(page, tmp_path, teal_jpg=picture())
    expect(alerts).to_have_text(re.compile("teal.jpg: no user is selected."))
    assert len(reserved) == 2


def test_the_page_shows_pictures_of_its_bucket_and_loads_nothing_else_from_elsewhere() -> None:
    assert "https:" not in Config(lambda: []).policy()
    config = Config(lambda: [], bucket=lambda: "https://photos.example.com")
    policy = dict(rule.split(" ", 1) for rule in config.policy().split("; "))
    assert policy["img-src"] == "'self' data: https://photos.example.com"
    assert policy["connect-src"] == "'self' https://photos.example.com"
    assert [name for name, sources in policy.items() if "https:" in sources] == ["img-src", "connect-src"]
