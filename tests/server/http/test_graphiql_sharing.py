"""GraphiQL in Chromium: links and commands for an operation, pictures of a result, and the page on a telephone."""

import json
import subprocess
from contextlib import suppress
from urllib.parse import urlsplit

from tests.support.command_line import GatewayProcess
from tests.support.graphiql import (
    context,
    editor_text,
    execute,
    gateway,
    page,
    page_that_errs,
    set_query,
    settle,
)
from tests.support.until import until_blocking

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page, expect

__all__ = ["context", "gateway", "page", "page_that_errs"]

QUOTED = """{ searchPosts(query: "noor's harbour") { nodes { postId } } me { userId } }"""


def copied_text(page: "Page", button: str, words: str) -> str:
    """Press a copy button. Return the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator(".copied")).to_have_text(words)
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_a_query_is_copied_as_a_command_that_runs(page: "Page") -> None:
    set_query(page, QUOTED)
    command = copied_text(page, "Copy as curl", "The command is copied.")
    done = subprocess.run(["bash", "-c", f"{command} -sS"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["data"]["me"] == {"userId": "demo"}


def test_a_command_has_no_token_of_the_users_own_and_follows_subscriptions(page: "Page") -> None:
    set_query(page, "subscription { sightingReported { area } }")
    page.evaluate(
        "globalThis.__MONACO.editor.getModels().find(m => m.uri.path.endsWith('request-headers.json'))"
        """.setValue('{"Authorization": "Bearer my-own-token"}')"""
    )
    settle(page)
    command = copied_text(page, "Copy as curl", "The command is copied. Set TOKEN to your token before you run it.")
    assert "my-own-token" not in command
    assert '-H "Authorization: Bearer $TOKEN"' in command
    assert command.startswith("curl -N ")
    assert "-H 'Accept: text/event-stream'" in command


def test_a_link_restores_query_variables_and_role_and_contains_no_token(page: "Page", gateway: GatewayProcess) -> None:
    page.fill(".examples input", "BLIP-6")
    page.click(".examples li button")
    page.locator(".role-switch select").select_option(label="Admin")
    settle(page)
    query, variables = editor_text(page, "operation.graphql"), editor_text(page, "variables.json")
    link = copied_text(page, "Copy link", "The link is copied. It contains no token.")
    assert link.startswith(f"{gateway.url}/graphql#query=")
    assert "Bearer" not in link
    assert gateway.token("Admin") not in link

    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    until_blocking(lambda: editor_text(page, "operation.graphql") == query)
    assert editor_text(page, "variables.json") == variables
    expect(page.locator(".role-switch select option:checked")).to_have_text("Admin")
    assert urlsplit(page.url).fragment == ""  # a reload opens no second tab
    assert editor_text(page, "response.json") == ""  # nothing runs by itself


def test_a_link_pasted_into_the_open_page_opens_a_tab(page: "Page") -> None:
    before = page.locator("[role=tab]").count()
    page.evaluate("location.hash = 'query=%7B+areas+%7D&role=anonymous'")
    expect(page.locator("[role=tab]")).to_have_count(before + 1)
    until_blocking(lambda: editor_text(page, "operation.graphql") == "{ areas }")
    expect(page.locator(".role-switch select option:checked")).to_have_text("anonymous")


def test_pictures_of_a_result_are_shown_and_no_other_host_is_asked(page: "Page") -> None:
    set_query(
        page, "{ photos(first: 4) { nodes { description thumbnailUrl originalUrl } } latestLivestream { streamUrl } }"
    )
    answer = json.loads(execute(page, "streamUrl"))
    assert answer["data"]["latestLivestream"]["streamUrl"].startswith("https://example.com/")
    pictures = page.locator(".pictures img")
    expect(pictures).to_have_count(4)
    page.wait_for_function("[...document.querySelectorAll('.pictures img')].every((one) => one.naturalWidth > 0)")
    assert [picture.get_attribute("alt") for picture in pictures.all()] == [
        photo["description"] for photo in answer["data"]["photos"]["nodes"]
    ]
    set_query(page, "{ areas }")
    execute(page, '"areas"')
    expect(pictures).to_have_count(0)


def test_a_picture_that_is_in_the_result_twice_is_shown_once(page: "Page") -> None:
    fields = " ".join(f"p{number}: photos(first: 4) {{ nodes {{ thumbnailUrl originalUrl }} }}" for number in range(2))
    set_query(page, f"{{ {fields} }}")
    execute(page, '"p1"')
    expect(page.locator(".pictures img")).to_have_count(4)


def test_on_a_telephone_the_query_has_the_width_and_escape_closes_a_pane(page: "Page") -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait_for_selector(".graphiql-query-editor .view-lines")
    expect(page.locator("[role=tab]")).to_have_count(1)
    editor = page.locator(".graphiql-query-editor .monaco-editor").first.bounding_box()
    assert editor is not None
    assert editor["width"] > 220
    expect(page.get_by_role("button", name="Show editor tools")).to_be_visible()  # the variables are collapsed
    label = "getComputedStyle(document.querySelector(`[aria-label='Show Examples']`), '::after').content"
    assert page.evaluate(label) == '"Examples"'

    page.click("button[aria-label='Show Examples']")
    page.fill(".examples input", "likePost")
    page.keyboard.press("Escape")  # clears the search
    expect(page.locator(".examples input")).to_have_value("")
    page.keyboard.press("Escape")
    expect(page.locator(".examples")).to_have_count(0)


def test_tabs_beyond_the_tab_bar_are_in_a_menu(page: "Page") -> None:
    tabs, menu = page.locator("[role=tab]"), page.get_by_label("All tabs")
    assert tabs.count() == 3
    expect(menu).to_be_hidden()
    page.set_viewport_size({"width": 360, "height": 740})
    expect(menu).to_be_visible()
    menu.select_option(index=2)
    expect(tabs.nth(2)).to_have_attribute("aria-selected", "true")
